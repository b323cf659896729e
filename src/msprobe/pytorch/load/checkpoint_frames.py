"""Which checkpointed code is running: the frames and the nodes by which torch itself tells, its private names."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch.utils.checkpoint

from msprobe.pytorch.torch_internals import CHECKPOINTING, PythonNode, graph_task

_CHECKPOINT_FILE = torch.utils.checkpoint.__file__


def checkpoints(frame: FrameType | None) -> tuple[list[Any], tuple[Any, Any] | None]:
    """The checkpointed pieces of code that the caller of `frame` runs in, innermost first.

    Gives those that run for the first time, up to the innermost one that is being recomputed, and that one: (piece, number of the
    recomputation) or None. A piece is torch's `_CheckpointFrame` (use_reentrant=False), or the node of an autograd Function that runs code
    in forward and once more in backward (use_reentrant=True, Megatron, DeepSpeed). Only frames of these kinds are looked into: a look into
    a frame keeps its variables alive.
    """
    opened: list[Any] = []
    while frame is not None:
        code = frame.f_code
        name = code.co_name
        if name in ("forward", "backward"):
            if code.co_argcount and code.co_varnames[0] == "ctx":
                node = frame.f_locals.get("ctx")
                if isinstance(node, PythonNode):
                    if name == "backward":
                        return opened, (node, graph_task())
                    opened.append(node)
        elif (name in CHECKPOINTING or name == "unpack_hook") and code.co_filename == _CHECKPOINT_FILE:
            known = frame.f_locals
            if name == "unpack_hook":
                return opened, (known["frame"], known["gid"]) if "frame" in known and "gid" in known else None
            piece = getattr(getattr(known.get("gen"), "gi_frame", None), "f_locals", {}).get("new_frame")
            if piece is not None:
                opened.append(piece)
        frame = frame.f_back
    return opened, None
