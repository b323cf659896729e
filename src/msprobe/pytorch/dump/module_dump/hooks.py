"""Hooks on modules: registered by start, removed by stop."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.module_dump.fast_path import FAST_PATH_CLASSES
from msprobe.pytorch.dump.module_dump.naming import named_modules

Before = Callable[[str, torch.nn.Module, tuple[Any, ...], dict[str, Any]], None]
After = Callable[[str, torch.nn.Module, Any], None]

_KEY = "msprobe"
"""Under which our hooks stand in a module's dictionaries; torch's own keys are numbers."""


class _Hook:
    """A hook that a copy or a pickle of the model does not take along: there it is a function of Python's own that does nothing."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> None:
        self._call(*args)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return contextlib.nullcontext().__exit__

    def __copy__(self) -> Any:
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> Any:
        return getattr, (contextlib.nullcontext(), "__exit__")


class ModuleHooks:
    """The hooks of one window.

    Args:
        before: `before(name, module, args, kwargs)` when a module's forward begins.
        after: `after(name, module, output)` when it ends, also by an exception.
        skip: called with the name of each module that takes no hooks, and the reason.
    """

    def __init__(self, before: Before, after: After, skip: Callable[[str, str], None]) -> None:
        self._before, self._after, self._skip = before, after, skip
        self._handles: list[Any] = []
        self._by_id: dict[int, tuple[str, torch.nn.Module]] = {}
        self.count = 0
        self._modules: list[torch.nn.Module] = []

    def register(self, model: object) -> None:
        """Hook everything inside the model or models."""
        named = list(named_modules(model))
        self._modules = [module for _, module in named]
        fast = _inside_fast_path(module for _, module in named)
        for name, module in named:
            if isinstance(module, torch.jit.ScriptModule):
                self._skip(name, "a scripted module takes no hooks")
                continue
            self.count += 1
            if id(module) in fast:
                self._by_id[id(module)] = (name, module)
                continue
            before, after = _bound_before(self._before, name, module), _bound_after(self._after, name, module)
            torch_internals.put_module_hooks(module, _KEY, _Hook(before), _Hook(after))
        if self._by_id:
            self._handles.append(torch_module.register_module_forward_pre_hook(self._global_before))
            self._handles.append(torch_module.register_module_forward_hook(self._global_after, always_call=True))

    def remove(self) -> None:
        """Take all hooks off."""
        while self._modules:
            torch_internals.take_module_hooks(self._modules[-1], _KEY)
            self._modules.pop()
        while self._handles:
            self._handles[-1].remove()
            self._handles.pop()
        self._by_id.clear()

    def _global_before(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        known = self._by_id.get(id(module))
        if known is not None:
            kwargs = sys._getframe(1).f_locals.get("kwargs")  # torch gives a global hook no keyword arguments
            self._before(known[0], module, args, kwargs if isinstance(kwargs, dict) else {})

    def _global_after(self, module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        known = self._by_id.get(id(module))
        if known is not None:
            self._after(known[0], module, output)


class ScriptGuard:
    """`torch.jit.script` compiles a module's hooks, and ours are no TorchScript: it does not get to see them."""

    def __init__(self) -> None:
        self._before: Callable[..., Any] | None = None
        self._wrapper: Callable[..., Any] | None = None

    def on(self) -> None:
        """Hide our hooks from the script compiler."""
        place = torch_internals.script_hook_stubs()
        if place is None:
            return
        before = getattr(*place)

        def without_ours(module: torch.nn.Module) -> Any:
            hidden = [(hooks, dict(hooks)) for hooks in (module._forward_pre_hooks, module._forward_hooks)]
            try:
                for hooks, _ in hidden:
                    for number in [number for number, hook in hooks.items() if type(hook) is _Hook]:
                        del hooks[number]
                return before(module)
            finally:
                for hooks, everything in hidden:
                    hooks.clear()
                    hooks.update(everything)

        self._before, self._wrapper = before, without_ours
        setattr(*place, without_ours)

    def off(self) -> None:
        """Restore what was there, unless somebody else has replaced it since."""
        place = torch_internals.script_hook_stubs()
        if place is not None and self._before is not None and getattr(*place) is self._wrapper:
            setattr(*place, self._before)


def _bound_before(before: Before, name: str, owner: torch.nn.Module) -> Callable[..., None]:
    """A shallow copy of a module shares its hooks: only the module itself is recorded."""
    known = weakref.ref(owner)

    def call(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        if known() is module and kwargs is not None:  # without them: removed by a stop() inside another hook of this very call
            before(name, module, args, kwargs)

    return call


def _bound_after(after: After, name: str, owner: torch.nn.Module) -> Callable[..., None]:
    known = weakref.ref(owner)

    def call(module: torch.nn.Module, *rest: Any) -> None:
        if known() is module:
            after(name, module, rest[-1])

    return call


def _inside_fast_path(modules: Iterable[torch.nn.Module]) -> set[int]:
    """ids of modules that have, or stand inside one that has, an inference fast path."""
    inside: set[int] = set()
    for module in modules:
        if isinstance(module, FAST_PATH_CLASSES):
            inside.update(map(id, module.modules()))
    return inside
