"""Records of values that hold no tensor: numbers, text, and MindSpore's own small kinds."""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

from typing import Any

import numpy as np

import mindspore

PLAIN = frozenset((bool, int, float, str))
"""Exact classes that are recorded as they are."""
_DTYPES = type(mindspore.float32).__module__
"""Where the classes of dtypes are: each has its own."""


def plain_record(value: Any, kind: type) -> tuple[bool, Any]:
    """(True, record) for a value known here; (False, None) for anything else.

    Args:
        value: the value.
        kind: its class, as `type` gives it: an object may lie about its `__class__`.
    """
    name = kind.__name__
    if issubclass(kind, np.generic):
        item = value.item()
        return True, {"type": "bool" if kind is np.bool_ else name, "value": item if type(item) in PLAIN else str(item)}
    for base in (bool, int, float, str):
        if issubclass(kind, base):
            return True, {"type": name, "value": _plain(value, base)}
    if issubclass(kind, complex):
        return True, {"type": name, "value": str(value)}
    if value is ...:
        return True, {"type": "ellipsis", "value": "..."}
    if kind is slice:
        return True, {"type": "slice", "value": [_bound(value.start), _bound(value.stop), _bound(value.step)]}
    if kind.__module__ == _DTYPES:
        return True, {"type": "mindspore.dtype", "value": str(value)}
    return False, None


def _plain(value: Any, base: type) -> Any:
    """The value without its subclass; an integer too long to be read again as text of hexadecimal digits."""
    if base is str:
        return str.__str__(value)
    if base is int:
        number = int.__index__(value)
        return number if number.bit_length() <= 4096 else hex(number)
    return base.__float__(value) if base is float else base(value)


def _bound(value: Any) -> int | None:
    return value if type(value) is int else None
