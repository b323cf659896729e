"""Records of values that hold no tensor: those that every framework has, and torch's own small kinds."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch

from msprobe.contain import let_through
from msprobe.pytorch.torch_internals import NoTorchFunction, no_dispatch_modes
from msprobe.recording.plain_values import plain_record as recorded_everywhere

_MEMORY_FORMATS = {
    torch.contiguous_format: "contiguous_format",
    torch.channels_last: "channels_last",
    torch.channels_last_3d: "channels_last_3d",
    torch.preserve_format: "preserve_format",
}

_AS_INTEGERS = frozenset([float, str, torch.Tensor, *(np.dtype(code).type for code in "bhilqBHILQ")])
"""Classes of which `int` makes a number without code of the user's."""
_NAME_OF_CLASS = type.__dict__["__name__"].__get__


def class_name(kind: type) -> str:
    """The name of a class, whatever its metaclass makes of being asked."""
    return str(_NAME_OF_CLASS(kind))


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
    if kind is torch.Size:
        return {"type": "torch.Size", "value": [int(n) for n in value]}
    if kind is torch.memory_format:
        return {"type": "torch.memory_format", "format": _MEMORY_FORMATS.get(value, str(value))}
    if kind is torch.dtype:
        return {"type": "torch.dtype", "value": str(value)}
    if kind is torch.device:
        return {"type": "torch.device", "value": str(value)}
    if issubclass(kind, torch.SymInt | torch.SymFloat | torch.SymBool):
        return {"type": kind.__name__, "value": str(value)}
    if torch.distributed.is_available():
        return _distributed_record(value, kind)
    return None


def _bound(value: Any) -> int | str | None:
    """A bound of a slice as an integer, None where it is none; of an object whose own code would have to say which, its class."""
    if value is None:
        return None
    kind = type(value)
    if issubclass(kind, int):
        return int.__index__(value)
    if kind not in _AS_INTEGERS:
        return class_name(kind)
    try:
        with NoTorchFunction(), torch.no_grad(), no_dispatch_modes():
            return int(value)
    except Exception as caught:
        let_through(caught)
        return None


def group_record(group: Any) -> dict[str, Any]:
    """A process group: its ranks, and the CRC-32 of their text as its id."""
    ranks = torch.distributed.get_process_group_ranks(group)
    return {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": f"{zlib.crc32(str(ranks).encode()):08x}"}


def _distributed_record(value: Any, kind: type) -> dict[str, Any] | None:
    if issubclass(kind, torch.distributed.ProcessGroup):
        return group_record(value)
    if issubclass(kind, torch.distributed.ReduceOp | torch.distributed.ReduceOp.RedOpType):
        return {"type": "torch.distributed.ReduceOp", "value": str(value)}
    return None
