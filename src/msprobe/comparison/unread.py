"""Values that neither side recorded: null on both, and at least one of the two nulls stands for a value that nobody looked at.

The recorder lists such nulls in meta.json. A dump that has none, of the existing tool or of an earlier msprobe, lists nothing: then null
is None, as it always was. Of a meta.json that cannot be read nobody knows what it listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msprobe.comparison.calls import Measured, MeasuredCall, summarise
from msprobe.comparison.measure import Agreement, Measure
from msprobe.errors import DumpFormatError
from msprobe.format import layout
from msprobe.format.reader import read_meta
from msprobe.format.unread import KEY, Unread


class NotRecorded(NamedTuple):
    """How many values neither side recorded, and the first of them with the reason."""

    rows: int = 0
    example: str = ""


NOTHING = NotRecorded()
_CONSEQUENCE = "nulls that may stand for values are not compared"


def unread_of(dump: Path, notes: list[str]) -> Unread:
    """The places of a dump.json or debug.json; none where there is no meta.json. One that cannot be read is told in `notes`."""
    try:
        unread = Unread(read_meta(dump.parent))
    except DumpFormatError as error:
        notes.append(f"{error}: {_CONSEQUENCE}")
        return Unread(None)
    if unread.damaged:
        notes.append(f'{dump.parent / layout.META}: its "{KEY}" is not what msprobe writes: {_CONSEQUENCE}')
    return unread


def without_unread(
    calls: list[MeasuredCall], target: Unread, golden: Unread, columns: Sequence[str], text: str
) -> tuple[list[MeasuredCall], NotRecorded]:
    """The measured calls, with a measure that says nothing for each value that neither side recorded.

    Args:
        calls: all of two dumps.
        target, golden: which nulls stand for values.
        columns, text: the metric columns of the mode, and what their cells say of what was not measured.
    """
    if not target and not golden:
        return calls, NOTHING
    cells = (text,) * len(columns)
    count, example = 0, ""
    result = list(calls)
    for index, call in enumerate(calls):
        measures: list[Measure | None] | None = None
        for position, row in enumerate(call.rows):
            reason = _reason(row, target, golden)
            if not reason:
                continue
            if measures is None:
                measures = [other.measure for other in call.rows]
            measures[position] = Measure(cells, Agreement.UNKNOWN, reason=reason)
            count += 1
            example = example or f"{row.pair.target.name if row.pair.target is not None else call.name}: {reason}"
        if measures is not None:
            result[index] = summarise(call.pair, measures)
    return result, NotRecorded(count, example)


def _reason(row: Measured, target: Unread, golden: Unread) -> str:
    """Why a pair of nulls was not compared; "" for every other pair."""
    ours, theirs = row.pair
    if ours is None or theirs is None or ours.kind != "null" or theirs.kind != "null" or row.measure is None or row.measure.reason:
        return ""
    here, there = target.what(ours.name), golden.what(theirs.name)
    if here is None and there is None:
        return ""
    if here is None or there is None:
        sides = ("golden dump", "target") if here is None else ("target", "golden dump")
        return f"{here or there} is not recorded ({sides[0]}; the {sides[1]} has null, too)"
    return f"{here} is not recorded" if here == there else f"{here} (target) and {there} (golden dump) are not recorded"
