"""Calls of random functions, passed through our hands: stand-ins in the place of the functions, wherever a module has a name for them.

A function mode would see them too, but it would be on for the whole run: modules would leave their fast paths, `torch.compile` its graphs.
A stand-in costs nothing to calls of other functions. It equals the function it stands for and hashes like it, so tables keyed by functions
(what is recorded under which name, torch's overrides, numba's types) find it. Only functions written in C get one: torch.jit.script knows
those by identity, and is told of the stand-in.
"""

from __future__ import annotations

import operator
import os
import sys
import threading
from collections.abc import Callable
from types import MethodType, ModuleType
from typing import Any

import torch

from msprobe.pytorch.reproducibility.random_functions import Arguments, RandomFunction, catalogue
from msprobe.pytorch.torch_internals import script_like

Observer = Callable[[RandomFunction, tuple[Any, ...], dict[str, Any]], None]
Rewrite = Callable[[tuple[Any, ...], dict[str, Any]], Arguments]

_is_compiling = torch.compiler.is_compiling


class _Inside(threading.local):
    now = False


class _Shared:
    """What all stand-ins look at."""

    inside = _Inside()
    """A random function runs in this thread: what it calls is part of it."""
    observer: Observer | None = None
    """Is told of a call before it is made."""
    before_draw: Observer | None = None
    """Sets the generators for a call; no other thread draws between this and the call."""
    drawing = threading.RLock()


if hasattr(os, "register_at_fork"):

    def _renew_lock() -> None:
        _Shared.drawing = threading.RLock()  # a thread that is not in the child may have held it

    os.register_at_fork(after_in_child=_renew_lock)


class StandIn:
    """Stands for one random function."""

    def __init__(self, function: RandomFunction, original: Any) -> None:
        self.function = function
        self.original = self.msprobe_original = original
        self.rewrite: Rewrite | None = None
        """Gives other arguments to call the function with."""
        self.own = True
        """The home has the function itself, it is not inherited or looked up elsewhere."""
        self.__name__ = self.__qualname__ = function.attribute
        self.__doc__ = original.__doc__
        self.__wrapped__ = original

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self.rewrite is not None:
            args, kwargs = self.rewrite(args, kwargs)
        if _is_compiling():
            return self.original(*args, **kwargs)
        return self._watched(args, kwargs)

    def _watched(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        shared = _Shared
        if shared.inside.now:
            return self.original(*args, **kwargs)
        shared.inside.now = True
        try:
            if shared.observer is not None:
                shared.observer(self.function, args, kwargs)
            if shared.before_draw is None:
                return self.original(*args, **kwargs)
            with shared.drawing:
                shared.before_draw(self.function, args, kwargs)
                return self.original(*args, **kwargs)
        finally:
            shared.inside.now = False

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.original or (isinstance(other, StandIn) and other.original is self.original)

    def __hash__(self) -> int:
        return hash(self.original)

    def __getattr__(self, name: str) -> Any:
        if name in ("original", "__deepcopy__", "__copy__"):
            raise AttributeError(name)
        return getattr(self.original, name)

    def __repr__(self) -> str:
        return repr(self.original)

    def __copy__(self) -> StandIn:
        return self

    def __deepcopy__(self, memo: Any) -> StandIn:
        return self

    def __reduce__(self) -> Any:
        return operator.getitem, ([self.original], 0)  # a pickle holds the function, and is read without us


class _MethodStandIn(StandIn):
    """Stands for a method of a class."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)


_stand_ins: list[StandIn] = []
_installed: set[int] = set()


def _all() -> list[StandIn]:
    if not _stand_ins:
        for function in catalogue():
            original = getattr(function.home, function.attribute)
            kind = _MethodStandIn if isinstance(function.home, type) else StandIn
            stand_in = kind(function, original)
            script_like(original, stand_in)
            _stand_ins.append(stand_in)
    return _stand_ins


def observe(observer: Observer | None) -> None:
    """Call `observer` before each call of a random function; None ends it. It must not raise."""
    _Shared.observer = observer
    _update()


def set_before_draw(before_draw: Observer | None) -> None:
    """Call `before_draw` before each call of a random function, with a lock on all of them; None ends it. It must not raise."""
    _Shared.before_draw = before_draw
    _update()


def rewrite(attributes: tuple[str, ...], change: Rewrite | None) -> None:
    """Call the functions of these names with the arguments that `change(args, kwargs)` gives; None ends it."""
    for stand_in in _all():
        if stand_in.function.attribute in attributes:
            stand_in.rewrite = change
    _update()


def _update() -> None:
    """Put up the stand-ins that somebody needs, take down the others."""
    everything = _Shared.observer is not None or _Shared.before_draw is not None
    up = [one for one in _all() if id(one) not in _installed and (everything or one.rewrite is not None)]
    down = [one for one in _all() if id(one) in _installed and not (everything or one.rewrite is not None)]
    for stand_in in up:
        _installed.add(id(stand_in))
        stand_in.own = stand_in.function.attribute in vars(stand_in.function.home)
        setattr(stand_in.function.home, stand_in.function.attribute, stand_in)
    for stand_in in down:
        _installed.discard(id(stand_in))
        _restore(stand_in)
    # The same function under several homes: the one listed first stands for names elsewhere.
    _rename({id(one.original): (one.original, one) for one in reversed(up)} | {id(one): (one, one.original) for one in down})


def _restore(stand_in: StandIn) -> None:
    home, attribute = stand_in.function.home, stand_in.function.attribute
    if vars(home).get(attribute) is not stand_in:
        return  # somebody else has put something there since: leave it
    if stand_in.own:
        setattr(home, attribute, stand_in.original)
    else:
        delattr(home, attribute)


def _rename(changes: dict[int, tuple[Any, Any]]) -> None:
    """In all modules, let names for one object (`from random import shuffle`) be names for another: id -> (object, other)."""
    if not changes:
        return
    for key, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType) or key.startswith("torch._C"):  # there torch itself looks up what it tells modes and fx
            continue
        namespace = vars(module)
        for name, value in list(namespace.items()):
            change = changes.get(id(value))
            if change is not None and change[0] is value:
                namespace[name] = change[1]
