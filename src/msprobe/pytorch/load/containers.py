"""Tensors inside lists, tuples, dicts and dataclasses are exchanged in copies of these; the user's own objects stay as they are."""

from __future__ import annotations

import copy
import dataclasses
from collections import UserDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from msprobe.contain import let_through

Path = tuple[str, ...]
Exchange = Callable[[torch.Tensor, Path], torch.Tensor]
Changed = dict[Any, tuple[Any, Any]]
"""Key -> what stood there, and what stands there now."""
Copies = dict[int, list[tuple[Any, Changed, Any]]]
"""id of a container -> it itself, which keeps the id from being used again, what was exchanged in a copy, and the copy."""
_MAX_DEPTH = 200
_MAX_CONTAINERS = 10_000


class CannotRebuild(Exception):
    """There is no safe way to make a copy of a container that holds other tensors."""


class Rebuilding:
    """One walk through the arguments of a call; paths are spelled as the recorder spells them.

    Args:
        exchange: `exchange(tensor, path)` gives what takes the tensor's place, the tensor itself to leave it.
        left_alone: called with the class of a container that holds tensors to exchange and cannot be copied.
        copies: made so far in this call: a container that stands in two places is one again, if both get the same tensors.
    """

    def __init__(self, exchange: Exchange, left_alone: Callable[[type], None], copies: Copies | None = None) -> None:
        self._exchange, self._left_alone = exchange, left_alone
        self._copies: Copies = {} if copies is None else copies
        self._open: set[int] = set()
        self._containers = 0

    def value(self, value: Any, path: Path) -> Any:
        """The value, or a copy of it with other tensors in it."""
        kind = type(value)
        if issubclass(kind, torch.Tensor):
            return self._exchange(value, path)
        mapping = issubclass(kind, Mapping)
        fields = not mapping and dataclasses.is_dataclass(kind) and not issubclass(kind, torch.nn.Module | list | tuple)
        if not (mapping or fields or issubclass(kind, list | tuple)) or id(value) in self._open:
            return value
        self._containers += 1
        if len(path) > _MAX_DEPTH or self._containers > _MAX_CONTAINERS:
            return value
        self._open.add(id(value))
        try:
            changed: Changed = {}
            for key, name, item in _items(value, kind, mapping, fields):
                new = self.value(item, (*path, name))
                if new is not item:
                    changed[key] = (item, new)
            return self._copy(value, kind, changed, mapping, fields) if changed else value
        except CannotRebuild:
            self._left_alone(kind)
            return value
        finally:
            self._open.discard(id(value))

    def _copy(self, value: Any, kind: type, changed: Changed, mapping: bool, fields: bool) -> Any:
        made = self._copies.setdefault(id(value), [])
        for _, other, copied in made:
            if other.keys() == changed.keys() and all(other[key][1] is new for key, (_, new) in changed.items()):
                return copied
        copied = _rebuilt(value, kind, changed, mapping, fields)
        made.append((value, changed, copied))
        return copied


def _items(value: Any, kind: type, mapping: bool, fields: bool) -> Iterable[tuple[Any, str, Any]]:
    """Key, name in the path, item."""
    if mapping:
        names: set[str] = set()
        for key, item in value.items():
            name = str(key)
            if name in names:  # 1 and "1": the recorder tells them apart like this
                name = f"{name}#{type(key).__name__}{len(names)}"
            names.add(name)
            yield key, name, item
    elif fields:
        for field in dataclasses.fields(kind):
            yield field.name, field.name, getattr(value, field.name, None)
    else:
        own = getattr(kind, "_fields", None) if issubclass(kind, tuple) else None
        names_of = own if own is not None and len(own) == len(value) else None
        for index, item in enumerate(value):
            yield index, str(index) if names_of is None else names_of[index], item


def _rebuilt(value: Any, kind: Any, changed: Changed, mapping: bool, fields: bool) -> Any:
    """A copy of a container with some items exchanged."""
    try:
        if issubclass(kind, tuple):
            return _tuple(value, kind, [changed[i][1] if i in changed else item for i, item in enumerate(value)])
        if mapping and not issubclass(kind, dict | UserDict):
            raise CannotRebuild  # a copy of it may share the store behind it
        made = _same_fields(value, kind) if fields else copy.copy(value)
        if made is value or type(made) is not kind:
            raise CannotRebuild
        for key, (before, new) in changed.items():
            if fields:
                object.__setattr__(made, key, new)  # a frozen one too
            else:
                made[key] = new
            if (getattr(value, key) if fields else value[key]) is not before:  # the copy is none, it shares what is behind
                if fields:
                    object.__setattr__(value, key, before)
                else:
                    value[key] = before
                raise CannotRebuild
    except CannotRebuild:
        raise
    except Exception as error:  # whatever a user's class does when it is copied
        let_through(error)
        raise CannotRebuild from None
    return made


def _same_fields(value: Any, kind: Any) -> Any:
    """A copy of a dataclass, without its `__init__`, which may do anything; of a frozen one too."""
    made = object.__new__(kind)
    slots = [name for base in kind.__mro__ for name in _slots(base)]
    for name in (*getattr(value, "__dict__", ()), *slots):
        if hasattr(value, name):
            object.__setattr__(made, name, getattr(value, name))
    return made


def _slots(base: type) -> Iterable[str]:
    slots = base.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else slots
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _tuple(value: Any, kind: Any, items: list[Any]) -> Any:
    if kind is tuple:
        return tuple(items)
    if hasattr(kind, "_make"):
        made = kind._make(items)
    elif hasattr(kind, "n_sequence_fields"):  # torch.return_types
        made = kind(items)
    else:
        made = tuple.__new__(kind, items)
    if type(made) is not kind or len(made) != len(items):
        raise CannotRebuild
    if hasattr(value, "__dict__"):
        vars(made).update(vars(value))
    return made
