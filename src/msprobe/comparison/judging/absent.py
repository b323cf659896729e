"""Values that only one side passes or returns: a mask that one attention needs and another does not, weights that one returns.

Where everything else that the call returns agrees, the value made no difference; it is told, and is no place where two runs part.
"""

from __future__ import annotations

from collections.abc import Sequence

from msprobe.comparison.calls import Measured
from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.names import EntryName

REASON = "one side has None here and the other a tensor; what the call returns besides agrees."


def excuse(parts: EntryName, rows: Sequence[Measured], measures: Sequence[Measure | None]) -> list[Measure | None]:
    """The measures of a call, with those of values that only one side has replaced where they made no difference."""
    found = list(measures)
    absent = [index for index, row in enumerate(rows) if _is_absent(row)]
    if not absent or parts.direction != "forward":
        return found
    others = [
        measure.agreement
        for row, measure in zip(rows, found, strict=True)
        if measure is not None and row.pair.target is not None and row.pair.target.role == "output" and not _is_absent(row)
    ]
    if max(others, default=Agreement.UNKNOWN) not in (Agreement.SAME, Agreement.ROUNDING):
        return found
    for index in absent:
        measure = found[index]
        assert measure is not None
        found[index] = measure._replace(agreement=Agreement.UNKNOWN, size=0.0, reason=REASON)
    return found


def _is_absent(row: Measured) -> bool:
    ours, theirs = row.pair
    if ours is None or theirs is None or row.measure is None or ours.role not in ("input", "output"):
        return False
    return {_kind(ours.kind, ours.value), _kind(theirs.kind, theirs.value)} == {"null", "tensor"}


def _kind(kind: str, value: object) -> str:
    return "null" if value is None and kind in ("null", "scalar") else kind
