"""The optimizers whose step() runs now: what they call themselves is theirs, what their closure calls (LBFGS, Lightning) is not."""

from __future__ import annotations

import functools
import sys
from types import CodeType, FrameType
from typing import Any


class OptimizerSteps:
    """Open calls of `Optimizer.step`, one inside the other too."""

    def __init__(self) -> None:
        self.open: list[CodeType | None] = []
        """For each the code of the closure that it was given."""

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An optimizer's step is called with these arguments, itself included."""
        self.open.append(None)
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is not None:
            self.open[-1] = _code_of(closure)

    def end(self) -> None:
        """It has returned."""
        if self.open:
            self.open.pop()

    def clear(self) -> None:
        """A step that raised has told nobody that it ended."""
        self.open.clear()

    def in_closure(self) -> bool:
        """Whether the caller is called by the closure that the innermost optimizer was given."""
        code = self.open[-1] if self.open else None
        if code is None:
            return False
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code is code:
                return True
            frame = frame.f_back
        return False


def _code_of(function: Any) -> CodeType | None:
    """The code that a call of `function` runs first; None where it is no Python code."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__"):
        function = type(function).__call__
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None
