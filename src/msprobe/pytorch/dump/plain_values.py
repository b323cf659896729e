"""Records of values that hold no tensor: numbers, text, and torch's own small kinds."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch

PLAIN = frozenset((bool, int, float, str))
"""Exact classes that are recorded as they are."""

_MEMORY_FORMATS = {
    torch.contiguous_format: "contiguous_format",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d",
    torch.preserve_format: "preserve_format",
}


def plain_record(value: Any) -> tuple[bool, Any]:
    """(True, record) for a value known here; (False, None) for anything else."""
    kind = type(value).__name__
    if isinstance(value, np.generic):
        item = value.item()
        if isinstance(value, np.bool_):
            kind = "bool"
        return True, {"type": kind, "value": item if type(item) in PLAIN else str(item)}
    if isinstance(value, bool | int | float | str):
        base = next(b for b in (bool, int, float, str) if isinstance(value, b))
        return True, {"type": kind, "value": base.__str__(value) if base is str else base(value)}
    if isinstance(value, complex):
        return True, {"type": kind, "value": str(value)}
    if value is ...:
        return True, {"type": "ellipsis", "value": "..."}
    if isinstance(value, slice):
        return True, {"type": "slice", "value": [_bound(value.start), _bound(value.stop), _bound(value.step)]}
    if isinstance(value, torch.Size):
        return True, {"type": "torch.Size", "value": [int(n) for n in value]}
    if isinstance(value, torch.memory_format):
        return True, {"type": "torch.memory_format", "format": _MEMORY_FORMATS.get(value, str(value))}
    if isinstance(value, torch.dtype):
        return True, {"type": "torch.dtype", "value": str(value)}
    if isinstance(value, torch.device):
        return True, {"type": "torch.device", "value": str(value)}
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return True, {"type": kind, "value": str(value)}
    if torch.distributed.is_available():
        return _distributed_record(value)
    return False, None


def _bound(value: Any) -> int | None:
    """A bound of a slice as an integer, None where it is none."""
    if value is None:
        return None
    try:
        return int(value)
    except Exception:
        return None


def group_record(group: Any) -> dict[str, Any]:
    """A process group: its ranks, and the CRC-32 of their text as its id."""
    ranks = torch.distributed.get_process_group_ranks(group)
    return {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": f"{zlib.crc32(str(ranks).encode()):08x}"}


def _distributed_record(value: Any) -> tuple[bool, Any]:
    if isinstance(value, torch.distributed.ProcessGroup):
        return True, group_record(value)
    if isinstance(value, torch.distributed.ReduceOp | torch.distributed.ReduceOp.RedOpType):
        return True, {"type": "torch.distributed.ReduceOp", "value": str(value)}
    return False, None
