"""Which rank this process is, which line called us, and waiting for what still runs."""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import os
import sys
from types import FrameType

from msprobe.contain import let_through
from msprobe.mindspore.mindspore_internals import synchronize

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def current_rank() -> int | None:
    """The rank in the world group, None where communication was not initialised (MindSpore's get_rank says 0 there)."""
    try:
        from mindspore.communication import GlobalComm, get_rank

        return int(get_rank()) if GlobalComm.INITED else None
    except Exception as error:
        let_through(error)
        return None


def calling_place() -> str:
    """`/home/you/train.py:12`, the innermost line outside of msprobe, "" where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def wait_for_device() -> Exception | None:
    """Return when everything that was started has run; gives what an operation of the user's raised meanwhile."""
    try:
        synchronize()
    except Exception as error:
        let_through(error)
        return error
    return None
