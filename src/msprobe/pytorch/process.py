"""Which rank this process is, and which line called us."""

from __future__ import annotations

import os
import sys
from types import FrameType

import torch

_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


def current_rank() -> int | None:
    """The rank in the default process group, None where there is none."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return None


def calling_place() -> str:
    """`/home/you/train.py:12`, the innermost line outside of msprobe, "" where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""
