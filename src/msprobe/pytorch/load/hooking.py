"""The hooks by which inputs are exchanged: on the named modules alone, before those of the recorder."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from msprobe.pytorch import compile_internals, torch_internals
from msprobe.pytorch.dump.module_dump.fast_path import FAST_PATH_CLASSES
from msprobe.pytorch.dump.module_dump.hooks import ScriptGuard, _Hook
from msprobe.pytorch.dump.module_dump.naming import all_modules

KEY = "msprobe load"
Exchanged = tuple[tuple[Any, ...], dict[str, Any]]
Called = Callable[[str, tuple[Any, ...], dict[str, Any]], Exchanged | None]


class _Before(_Hook):
    """Called when a module's forward begins; gives what it gets instead."""

    __slots__ = ()

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        if self._owner() is module and kwargs is not None:
            return self._call(self._name, args, kwargs)
        return None


class InputHooks:
    """Hooks on some modules of a model, from `put` to `remove`.

    Modules inside one that has an inference fast path carry none, which would drive it off that path: torch's global hooks see them.

    Args:
        called: `called(name, args, kwargs)` when a module's forward begins, after all other pre-hooks that are there now; gives what it
            gets instead, or None. Must not raise.
    """

    def __init__(self, called: Callable[[str, tuple[Any, ...], dict[str, Any]], Exchanged | None]) -> None:
        self._called = called
        self._modules: dict[str, torch.nn.Module] = {}
        self._aside: dict[int, tuple[str, torch.nn.Module]] = {}
        self._undo: list[Callable[[], Any]] = []
        self._compiling_known = False

    def put(self, model: object, modules: dict[str, torch.nn.Module]) -> None:
        """Hook the modules; compiled code runs eagerly from here, or it would not see them.

        Args:
            model: the model or models that the modules are in.
            modules: by name.
        """
        restore = compile_internals.force_eager()
        self._compiling_known = restore is not None
        if restore is not None:
            self._undo.append(restore)
        guard = ScriptGuard()
        self._undo.append(guard.off)
        guard.on()
        fast = {id(inner) for module in all_modules(model) if isinstance(module, FAST_PATH_CLASSES) for inner in module.modules()}
        for name, module in modules.items():
            if id(module) in fast:
                self._aside[id(module)] = (name, module)
                continue
            self._modules[name] = module
            torch_internals.put_pre_hook(module, KEY, _Before(self._called, name, weakref.ref(module)))
        if self._aside:
            self._undo.append(torch_module.register_module_forward_pre_hook(self._global).remove)

    def compiled_later(self) -> bool:
        """Whether `torch.compile` came into use after `put`: what it has compiled does not run eagerly, and carries no hooks."""
        return not self._compiling_known and compile_internals.compiling_is_loaded()

    def _global(self, module: torch.nn.Module, args: tuple[Any, ...]) -> Any:
        known = self._aside.get(id(module))
        if known is None:
            return None
        kwargs = sys._getframe(1).f_locals.get("kwargs")  # torch gives a global hook no keyword arguments; this dict is the call's own
        exchanged = self._called(known[0], args, kwargs if isinstance(kwargs, dict) else {})
        if exchanged is None:
            return None
        if isinstance(kwargs, dict):
            kwargs.update(exchanged[1])
        return exchanged[0]

    def remove(self, but: frozenset[str] = frozenset()) -> None:
        """Take the hooks off, but for those of some modules that are named."""
        for name in [name for name in self._modules if name not in but]:
            torch_internals.take_module_hooks(self._modules[name], KEY)
            del self._modules[name]
        while self._undo:
            self._undo[-1]()
            self._undo.pop()
        self._aside.clear()
