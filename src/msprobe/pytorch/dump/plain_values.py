"""Records of values that hold no tensor: numbers, text, and torch's own small kinds."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch

from msprobe.contain import let_through

PLAIN = frozenset((bool, int, float, str))
"""Exact classes that are recorded as they are."""

_MEMORY_FORMATS = {
    torch.contiguous_format: "contiguous_format",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d",
    torch.preserve_format: "preserve_format",
}


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
    if kind is torch.Size:
        return True, {"type": "torch.Size", "value": [int(n) for n in value]}
    if kind is torch.memory_format:
        return True, {"type": "torch.memory_format", "format": _MEMORY_FORMATS.get(value, str(value))}
    if kind is torch.dtype:
        return True, {"type": "torch.dtype", "value": str(value)}
    if kind is torch.device:
        return True, {"type": "torch.device", "value": str(value)}
    if issubclass(kind, torch.SymInt | torch.SymFloat | torch.SymBool):
        return True, {"type": name, "value": str(value)}
    if torch.distributed.is_available():
        return _distributed_record(value, kind)
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
    """A bound of a slice as an integer, None where it is none."""
    if value is None:
        return None
    try:
        return int(value)
    except Exception as caught:
        let_through(caught)
        return None


def group_record(group: Any) -> dict[str, Any]:
    """A process group: its ranks, and the CRC-32 of their text as its id."""
    ranks = torch.distributed.get_process_group_ranks(group)
    return {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": f"{zlib.crc32(str(ranks).encode()):08x}"}


def _distributed_record(value: Any, kind: type) -> tuple[bool, Any]:
    if issubclass(kind, torch.distributed.ProcessGroup):
        return True, group_record(value)
    if issubclass(kind, torch.distributed.ReduceOp | torch.distributed.ReduceOp.RedOpType):
        return True, {"type": "torch.distributed.ReduceOp", "value": str(value)}
    return False, None
