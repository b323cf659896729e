"""What lies in a container, read without running a line of the user's: a class may have its own `__iter__`, `items` or `__getattribute__`.

What a list, a tuple or a dict holds is read by these classes' own methods, of whatever class derived from them the value is. Other
mappings are known by where they keep what they hold; one that is not known gives nothing away without its own code.
"""

from __future__ import annotations

import dataclasses
import gc
from collections import ChainMap, OrderedDict, UserDict
from collections.abc import Iterable
from types import GetSetDescriptorType, MappingProxyType, MemberDescriptorType
from typing import Any

from msprobe.recording.plain_values import PLAIN

Items = Iterable[tuple[Any, Any]]

_MISSING = object()


class RunsCode(Exception):
    """A field that only code of the user's could give."""


def elements(value: Any, kind: type) -> list[Any]:
    """The elements of a list, or of a class derived from it."""
    return value if kind is list else list.copy(value)


def spread(value: Any, kind: type) -> tuple[Any, ...]:
    """The elements of a tuple, or of a class derived from it."""
    return value if kind is tuple else tuple.__getitem__(value, slice(None))


def is_mapping(kind: type) -> bool:
    """Whether `items` may know what is in such a value."""
    return issubclass(kind, dict | UserDict | MappingProxyType | ChainMap)


def items(value: Any, kind: type) -> Items | None:
    """Keys and values of a mapping, in its order; None for one that is not known.

    Args:
        value: the mapping.
        kind: its class, one that `is_mapping`.
    """
    if kind is dict:
        return value.items()
    if issubclass(kind, dict):
        found = list(dict.items(value))
        # An OrderedDict has its own order, which it finds by the keys' hashes.
        if issubclass(kind, OrderedDict) and all(type(key) in PLAIN for key, _ in found):
            return list(OrderedDict.items(value))
        return found
    if issubclass(kind, MappingProxyType):
        return _of(gc.get_referents(value)[0])
    inside = _attributes(value)
    return _of(inside.get("data")) if issubclass(kind, UserDict) else _chained(inside.get("maps"))


def _of(value: Any) -> Items | None:
    return items(value, type(value)) if is_mapping(type(value)) else None


def _chained(maps: Any) -> Items | None:
    """A ChainMap's, from its list of mappings."""
    found: dict[Any, Any] = {}
    for one in reversed(maps if type(maps) is list else []):
        pairs = _of(one)
        if pairs is None:
            return None
        for key, value in list(pairs):
            if type(key) not in PLAIN:
                return None  # to look it up would run its `__hash__` and `__eq__`
            found[key] = value
    return found.items()


def _attributes(value: Any) -> dict[str, Any]:
    """An object's own attributes."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:  # it has slots only
        return {}
    return found if type(found) is dict else {}


def field_names(kind: type) -> list[str]:
    """The fields of a dataclass."""
    return [field.name for field in dataclasses.fields(kind)]


def field(value: Any, kind: type, name: str) -> Any:
    """A dataclass's field, None where it has no value yet; RunsCode where it is a property."""
    of_class = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), _MISSING)
    if type(of_class) in (MemberDescriptorType, GetSetDescriptorType):
        try:
            return of_class.__get__(value, kind)  # type: ignore[attr-defined]
        except AttributeError:
            return None
    if hasattr(type(of_class), "__set__"):
        raise RunsCode
    own = _attributes(value).get(name, _MISSING)
    if own is not _MISSING:
        return own
    if hasattr(type(of_class), "__get__"):
        raise RunsCode
    return None if of_class is _MISSING else of_class
