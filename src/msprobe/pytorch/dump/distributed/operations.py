"""Records of `torch.distributed.P2POp`, the elements of the list that `batch_isend_irecv` takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from msprobe.pytorch.dump.plain_values import group_record


def is_operation(kind: type) -> bool:
    """Whether values of this class are recorded by `operation_record`."""
    return kind.__name__ == "P2POp" and kind.__module__.startswith("torch.distributed")


def operation_record(operation: Any, role: str, encode: Callable[[torch.Tensor], Any], left_out: Callable[[], Any]) -> dict[str, Any]:
    """The record of one operation.

    Args:
        operation: a `P2POp`.
        role: `input` or `kwargs` before the call, `output` after it; what a receiving buffer holds before is not recorded.
        encode: makes the record of its tensor.
        left_out: makes the null in the place of one that is not recorded.
    """
    name = getattr(operation.op, "__name__", str(operation.op))
    unreceived = name == "irecv" and role != "output"
    group = operation.group if operation.group is not None else torch.distributed.group.WORLD
    return {
        "class_type": "torch.distributed.P2POp",
        "tensor": left_out() if unreceived else encode(operation.tensor),
        "op": name,
        "peer": operation.peer,
        "tag": operation.tag,
        "group_id": group_record(group)["group_id"],
    }
