"""Records of values that hold no tensor: those that every framework has, and MindSpore's own small kinds."""

from __future__ import annotations

from typing import Any

import mindspore

from msprobe.recording.plain_values import plain_record as recorded_everywhere

_DTYPES = type(mindspore.float32).__module__
"""Where the classes of dtypes are: each has its own."""


def plain_record(value: Any, kind: type) -> dict[str, Any] | None:
    """The record of a value known here; None for anything else.

    Args:
        value: the value.
        kind: its class, as `type` gives it: an object may lie about its `__class__`.
    """
    known = recorded_everywhere(value, kind)
    if known is not None:
        return known
    if kind is slice:
        return {"type": "slice", "value": [_bound(value.start), _bound(value.stop), _bound(value.step)]}
    if kind.__module__ == _DTYPES:
        return {"type": "mindspore.dtype", "value": str(value)}
    return None


def _bound(value: Any) -> int | None:
    """A bound of a slice; None where it is no plain integer: a tensor would have to be waited for."""
    return value if type(value) is int else None
