"""Rules that meet a value and cannot be applied to it. What the user wants compared in another way is not compared as it is: it is
`not compared`, with the reason, and a note says so.
"""

from __future__ import annotations

from pathlib import Path

from msprobe.comparison.alignment.places import RowPair
from msprobe.comparison.mapping.composed import Part, refused_row


class Unfit:
    """Collects them."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}

    def add(self, rule: str, name: str, why: str) -> None:
        """A value that has no partner without the rule. `rule`: its target in the mapping file; `name`: of the row."""
        self._found.setdefault(rule, []).append(f"{name}: {why}")

    def refused(self, both: RowPair, rule: str, why: str, directory: Path) -> RowPair:
        """The two values without a measurement; as they are where one of them is no value. `directory`: of the golden tensor files."""
        ours, theirs = both
        if any(row is not None and row.kind == "null" for row in both):
            return both
        known = ours or theirs
        self.add(rule, known.name if known is not None else "", why)
        if ours is None or theirs is None:
            return both
        return RowPair(ours, refused_row(Part(directory, theirs), f"the mapping file's rule for {rule} cannot be applied: {why}"))

    def notes(self) -> list[str]:
        """A sentence for each rule."""
        said: list[str] = []
        for rule, told in self._found.items():
            values = "1 value is" if len(told) == 1 else f"{len(told)} values are"
            said.append(f"the mapping file's rule for {rule} cannot be applied, and {values} not compared for that (first: {told[0]})")
        return said


__all__ = ["Unfit"]
