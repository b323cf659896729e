"""A step() that was forgotten: one optimizer steps several times in what is recorded as one step, and the model runs in between.

Looked at when an optimizer steps, and never when a call is recorded.
"""

from __future__ import annotations

from typing import Any

HINT = (
    "call debugger.stop() and debugger.step() at the end of each, and debugger.start(model) at its beginning"
    " (or `with debugger.record(model):` around each)"
)


class ForgottenStep:
    """What the optimizers did in one step."""

    def __init__(self) -> None:
        self._done: dict[int, int] = {}
        """Identity of an optimizer -> how many calls there were when its step() returned."""
        self._times = 1
        self._name = ""

    def begins(self, optimizer: Any, calls: int) -> None:
        """An optimizer's step() is called after so many calls of modules, or of APIs where no modules are recorded."""
        before = self._done.get(id(optimizer))
        if before is not None and calls > before:
            self._times += 1
            self._name = type(optimizer).__name__

    def ends(self, optimizer: Any, calls: int) -> None:
        """It has returned."""
        self._done[id(optimizer)] = calls

    def said(self, step: int, hint: str | None) -> str:
        """The warning, which ends with `hint`, what to do; "" where nothing was forgotten, or with None for the hint."""
        if not self._name or hint is None:
            return ""
        return (
            f"step {step} holds {self._times} steps of {self._name}, with calls of the model in between: if these are iterations, {hint},"
            " or they are compared as one"
        )
