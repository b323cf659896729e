"""Records of values that hold no tensor and belong to no framework: numbers, text, numpy's scalars, `...`."""

from __future__ import annotations

from typing import Any

import numpy as np

PLAIN = frozenset((bool, int, float, str))
"""Exact classes that are recorded as they are."""


def plain_record(value: Any, kind: type) -> dict[str, Any] | None:
    """The record of a value known here; None for anything else.

    Args:
        value: the value.
        kind: its class, as `type` gives it: an object may lie about its `__class__`.
    """
    name = kind.__name__
    if issubclass(kind, np.generic):
        item = value.item()
        return {"type": "bool" if kind is np.bool_ else name, "value": item if type(item) in PLAIN else str(item)}
    for base in (bool, int, float, str):
        if issubclass(kind, base):
            return {"type": name, "value": _plain(value, base)}
    if issubclass(kind, complex):
        return {"type": name, "value": str(value)}
    if value is ...:
        return {"type": "ellipsis", "value": "..."}
    return None


def _plain(value: Any, base: type) -> Any:
    """The value without its subclass; an integer too long to be read again as text of hexadecimal digits."""
    if base is str:
        return str.__str__(value)
    if base is int:
        number = int.__index__(value)
        return number if number.bit_length() <= 4096 else hex(number)
    return base.__float__(value) if base is float else base(value)
