"""Task structure: names, parents and stacks; no record of any value."""

from __future__ import annotations

from typing import Any

from msprobe.writer.entry import Entry
from msprobe.writer.step_writer import StepWriter


class StructureWriter(StepWriter):
    """Writes stack.json and construct.json; in dump.json no entry."""

    def add(self, name: str, data: dict[str, Any], done: bool = False, ordinary: bool = False) -> Entry:
        """An entry that goes nowhere."""
        return Entry(name, data, done)

    def finish(self, entry: Entry) -> None:
        """It is final, and still goes nowhere."""
        entry.done = True
