"""Ctrl-C at a chosen line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class Interruption(BaseException):
    """Like KeyboardInterrupt, but never taken for a real one."""


def interrupted(call: Callable[[], Any], after_lines: int) -> None:
    """Run `call` and raise at the n-th line executed in the package."""
    left = after_lines

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        if "msprobe" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise Interruption
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Interruption:
        pass
    finally:
        sys.settrace(before)
