"""What stands for a step when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msprobe.pytorch.dump.step_record import StepRecord


class EndedStep:
    """The sink of observers that stay in a graph, or that a call which is still running puts there: it takes nothing.

    It does not hold the step. A step and its observers that held each other would be garbage of every step, which Python's collector looks
    at again and again, and frees only when there is as much of it as a quarter of everything else.
    """

    def __init__(self, step: StepRecord) -> None:
        self.report, self.unrecorded = step.report, step.unrecorded
        self.writer, self.tally, self.keeps_construct = step.writer, step.tally, step.keeps_construct

    def wants(self, name: str, parent: str | None = None) -> bool:
        """No entry."""
        return False

    def saves(self, name: str) -> bool:
        """No values."""
        return False

    def count(self, tensors: int) -> None:
        """Nothing is counted any more."""

    def add(self, name: str, parent: str | None, data: dict[str, Any], tensors: int, done: bool) -> Any:
        """An entry that goes nowhere: the writer is closed."""
        return self.writer.add(name, data, done)

    def finish(self, entry: Any) -> None:
        """It is final, and still goes nowhere."""
        entry.done = True
