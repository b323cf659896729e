"""Values that only one side passes or returns: a mask that one attention needs and another does not, weights that one returns.

Where everything else that the call returns agrees, the value made no difference; it is told, and is no place where two runs part. A
tensor that is trained is none of these: it gets a gradient, whatever the call returns.
"""

from __future__ import annotations

from collections.abc import Sequence

from msprobe.comparison.calls import Measured, MeasuredCall
from msprobe.comparison.match import RowPair
from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.names import EntryName

_NONE = "one side has None here and the other a tensor"
RETURNED = f"{_NONE}; what the call returns besides agrees."
TAKEN = f"{_NONE}; what the call returns agrees."
DIFFERS = f"{_NONE}."


def is_absent(parts: EntryName, pair: RowPair) -> bool:
    """Whether one side alone has the value: what a forward call takes and needs no gradient of, or what it returns."""
    ours, theirs = pair
    if ours is None or theirs is None or parts.direction != "forward" or ours.role not in ("input", "output"):
        return False
    if {_kind(ours.kind, ours.value), _kind(theirs.kind, theirs.value)} != {"null", "tensor"}:
        return False
    return ours.role == "output" or "True" not in (ours.requires_grad, theirs.requires_grad)


def stands_alone(call: MeasuredCall, pair: RowPair) -> bool:
    """Whether the value is told as one that one side alone has; all that a call returns is no such value."""
    if not is_absent(call.parts, pair) or pair.target is None:
        return False
    if pair.target.role == "input":
        return True
    return any(other.target is not None and other.target.role == "output" and not is_absent(call.parts, other) for other, _ in call.rows)


def excuse(parts: EntryName, rows: Sequence[Measured], measures: Sequence[Measure | None]) -> list[Measure | None]:
    """The measures of a call, with those of values that only one side has replaced where they made no difference."""
    found = list(measures)
    absent = [index for index, row in enumerate(rows) if row.measure is not None and is_absent(parts, row.pair)]
    if not absent:
        return found
    others = [
        measure.agreement
        for index, (row, measure) in enumerate(zip(rows, found, strict=True))
        if measure is not None and row.pair.target is not None and row.pair.target.role == "output" and index not in absent
    ]
    if max(others, default=Agreement.UNKNOWN) not in (Agreement.SAME, Agreement.ROUNDING):
        return found
    for index in absent:
        measure, ours = found[index], rows[index].pair.target
        assert measure is not None and ours is not None
        found[index] = measure._replace(agreement=Agreement.UNKNOWN, size=0.0, reason=RETURNED if ours.role == "output" else TAKEN)
    return found


def said(measure: Measure) -> str:
    """What a row says of a value that only one side has."""
    return measure.reason if measure.reason in (RETURNED, TAKEN) else DIFFERS


def _kind(kind: str, value: object) -> str:
    return "null" if value is None and kind in ("null", "scalar") else kind
