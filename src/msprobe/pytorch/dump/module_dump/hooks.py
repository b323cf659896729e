"""Hooks on modules: registered by start, removed by stop."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.module_dump.fast_path import FAST_PATH_CLASSES
from msprobe.pytorch.dump.module_dump.naming import checked_models, named_modules, shape_and_modules
from msprobe.pytorch.dump.module_dump.shared_hooks import own_keys

Before = Callable[[str, torch.nn.Module, tuple[Any, ...], dict[str, Any]], None]
After = Callable[[str, torch.nn.Module, Any], None]

_is_compiling = torch_internals.is_compiling
"""Asked here: what torch.compile and torch.export trace must not come to C."""
HOOK_KEY = _KEY = "msprobe"
"""Under which our hooks stand in a module's dictionaries; torch's own keys are numbers."""


class _Hook:
    """A hook that a copy or a pickle of the model does not take along: there it is a function of Python's own that does nothing.

    A shallow copy of a module shares its hooks: each hook records its own module only.
    """

    __slots__ = ("_call", "_name", "_owner")

    def __init__(self, call: Callable[..., Any], name: str, owner: weakref.ref[torch.nn.Module]) -> None:
        self._call, self._name, self._owner = call, name, owner

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return contextlib.nullcontext().__exit__

    def __copy__(self) -> Any:
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> Any:
        return getattr, (contextlib.nullcontext(), "__exit__")


class _Before(_Hook):
    """Called when a module's forward begins."""

    __slots__ = ()

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        # Compiling is asked for first: what traces a call (torch.cond does) need not understand the rest. Without keyword arguments: the
        # hook was removed by a stop() inside another hook of this very call.
        if not _is_compiling() and self._owner() is module and kwargs is not None:
            self._call(self._name, module, args, kwargs)


class ByCaller(_Before):
    """The same, of a module that stands in several places: which of its names a call has depends on the module that calls it.

    Args:
        call, name, module: what is called, the name where the caller is none of those, and the module.
        names: name of a caller -> the name there.
        caller: gives the name of the module that runs now.
    """

    __slots__ = ("_caller", "_names")

    def __init__(self, call: Before, name: str, module: torch.nn.Module, names: Mapping[str, str], caller: Callable[[], str]) -> None:
        super().__init__(call, name, weakref.ref(module))
        self._names, self._caller = names, caller

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        if not _is_compiling() and self._owner() is module and kwargs is not None:
            self._call(self._names.get(self._caller(), self._name), module, args, kwargs)


class _After(_Hook):
    """Called when a module's forward ends."""

    __slots__ = ()

    def __call__(self, module: torch.nn.Module, *rest: Any) -> None:
        if not _is_compiling() and self._owner() is module:
            self._call(self._name, module, rest[-1])


def hook_pair(name: str, module: torch.nn.Module, before: Before, after: After) -> tuple[_Before, _After]:
    """The two hooks of a module that is recorded under `name`; they do not keep it alive."""
    owner = weakref.ref(module)
    return _Before(before, name, owner), _After(after, name, owner)


class HookPlan:
    """Names and hooks of a model's modules, kept from window to window: most models are the same in every step."""

    def __init__(self) -> None:
        self._shape: list[Any] = []
        self._hooks: list[tuple[str, weakref.ref[torch.nn.Module], _Before, _After]] = []
        self._callbacks: tuple[Before, After] | None = None
        self.values: list[tuple[Any, ...]] = []
        """For each of the modules, what `put_in_each` puts in, as `of` gave them last."""
        self.ordinary = False
        """All of them take hooks of their own, and none stands where hooks would change which code runs."""
        self.own_keys: dict[int, str] = {}
        """See `shared_hooks.own_keys`."""
        self.engine: Any = None
        """What engine.py has found in this model; like the plan itself, it keeps no module alive."""

    def of(self, model: object, shape: list[Any], before: Before, after: After) -> list[tuple[str, torch.nn.Module, _Before, _After]]:
        """(name, module, hooks) of everything inside the model or models.

        Args:
            model: as `named_modules` takes it.
            shape: what `shape_of` says of it.
            before, after: what the hooks call.
        """
        if shape == self._shape and self._callbacks == (before, after):
            known = [(name, owner(), first, last) for name, owner, first, last in self._hooks]
            if all(module is not None for _, module, _, _ in known):
                return known
        made = [(name, module, *hook_pair(name, module, before, after)) for name, module in named_modules(model)]
        self._shape = []  # until all below is that of this model, also where an interruption comes between
        self._hooks = [(name, first._owner, first, last) for name, _, first, last in made]
        modules = [module for _, module, _, _ in made]
        self.values = [torch_internals.values_of_hooks(first, last) for _, _, first, last in made]
        taking = [module for module in modules if not isinstance(module, torch.jit.ScriptModule)]
        self.own_keys = own_keys(taking, _KEY)
        roots = (root for _, root in checked_models(model))
        self.ordinary = len(taking) == len(modules) and not self.own_keys and not _inside_fast_path([*modules, *roots])
        self._shape, self._callbacks, self.engine = shape, (before, after), None
        return made

    def named(self) -> list[tuple[str, torch.nn.Module]]:
        """Names and modules of the latest model."""
        return [(name, module) for name, owner, _, _ in self._hooks if (module := owner()) is not None]


def put_in_python(owners: list[Any], names: tuple[str, ...], key: Any, values: list[tuple[Any, ...]]) -> None:
    """Put an item into dictionaries of many objects.

    Args:
        owners: the objects.
        names: of the attributes that are the dictionaries.
        key: of the item.
        values: for each object, the item's value in each of the dictionaries.
    """
    for owner, items in zip(owners, values, strict=True):
        for name, value in zip(names, items, strict=True):
            getattr(owner, name)[key] = value


def take_in_python(owners: list[Any], names: tuple[str, ...], key: Any) -> bool:
    """Take such an item out, where there is one, and say whether it was everywhere. What is interrupted may be done again."""
    everywhere = True
    for owner in owners:
        for name in names:
            everywhere &= getattr(owner, name).pop(key, None) is not None
    return everywhere


put_in_each: Callable[[list[Any], tuple[str, ...], Any, list[tuple[Any, ...]]], None] = put_in_python
take_from_each: Callable[[list[Any], tuple[str, ...], Any], bool] = take_in_python
try:
    from msprobe.pytorch.dump import _hot

    put_in_each, take_from_each = _hot.put_in_each, _hot.take_from_each
except ImportError:  # no compiler when msprobe was installed
    pass


class ModuleHooks:
    """The hooks of one window.

    Args:
        before: `before(name, module, args, kwargs)` when a module's forward begins.
        after: `after(name, module, output)` when it ends, also by an exception.
        skip: called with the name of each module that takes no hooks, and the reason.
        plan: of the windows before.
    """

    def __init__(self, before: Before, after: After, skip: Callable[[str, str], None], plan: HookPlan | None = None) -> None:
        self._before, self._after, self._skip, self._plan = before, after, skip, plan or HookPlan()
        self._handles: list[Any] = []
        self._by_id: dict[int, tuple[str, torch.nn.Module]] = {}
        self.count = 0
        self._modules: list[torch.nn.Module] = []
        self._own: list[tuple[torch.nn.Module, str]] = []
        """Modules whose hooks stand under keys of their own."""
        self._model: object = ()

    def register(self, model: object) -> list[torch.nn.Module]:
        """Hook everything inside the model or models; gives every module, the models themselves included."""
        shape, everything = shape_and_modules(model)
        self._model = model
        plan = self._plan
        named = plan.of(model, shape, self._before, self._after)
        self._modules = [module for _, module, _, _ in named]
        if plan.ordinary:
            self.count = len(named)
            put_in_each(self._modules, torch_internals.MODULE_HOOKS, _KEY, plan.values)
            return everything
        fast = _inside_fast_path([*self._modules, *(root for _, root in checked_models(model))])
        hooked: list[torch.nn.Module] = []
        values: list[tuple[Any, ...]] = []
        for name, module, before, after in named:
            if isinstance(module, torch.jit.ScriptModule):
                self._skip(name, "a scripted module takes no hooks")
                continue
            self.count += 1
            if id(module) in fast:
                self._by_id[id(module)] = (name, module)
                continue
            own = plan.own_keys.get(id(module))
            if own is not None:
                self._own.append((module, own))
                torch_internals.put_module_hooks(module, own, before, after)
                continue
            hooked.append(module)
            values.append(torch_internals.values_of_hooks(before, after))
        self._modules = hooked
        put_in_each(hooked, torch_internals.MODULE_HOOKS, _KEY, values)
        if self._by_id:
            self._handles.append(torch_module.register_module_forward_pre_hook(self._global_before))
            self._handles.append(torch_module.register_module_forward_hook(self._global_after, always_call=True))
        return everything

    def remove(self) -> None:
        """Take all hooks off."""
        if self._modules:
            if not take_from_each(self._modules, torch_internals.MODULE_HOOKS, _KEY):
                self._take_moved()
            self._modules.clear()
        self._model = ()
        while self._own:
            torch_internals.take_module_hooks(*self._own[-1])
            self._own.pop()
        while self._handles:
            self._handles[-1].remove()
            self._handles.pop()
        self._by_id.clear()

    def _take_moved(self) -> None:
        """Hooks that somebody has put under other keys, or on other modules (`fuse_modules`), are taken off there."""
        for module in (*self._modules, *shape_and_modules(self._model)[1]):
            if isinstance(module, torch.jit.ScriptModule):
                continue
            for kind in torch_internals.HOOKS_OF_A_KIND:
                hooks = getattr(module, kind[0])
                for key in [key for key, hook in hooks.items() if isinstance(hook, _Hook)]:
                    for name in kind:
                        getattr(module, name).pop(key, None)

    def _global_before(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        known = self._by_id.get(id(module))
        if known is not None and not _is_compiling():
            kwargs = sys._getframe(1).f_locals.get("kwargs")  # torch gives a global hook no keyword arguments
            self._before(known[0], module, args, kwargs if isinstance(kwargs, dict) else {})

    def _global_after(self, module: torch.nn.Module, args: tuple[Any, ...], output: Any) -> None:
        known = self._by_id.get(id(module))
        if known is not None and not _is_compiling():
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
                    for number in [number for number, hook in hooks.items() if isinstance(hook, _Hook)]:
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


def _inside_fast_path(modules: Iterable[torch.nn.Module]) -> set[int]:
    """ids of modules that have, or stand inside one that has, an inference fast path."""
    inside: set[int] = set()
    for module in modules:
        if isinstance(module, FAST_PATH_CLASSES):
            inside.update(map(id, module.modules()))
    return inside
