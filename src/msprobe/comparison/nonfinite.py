"""Where a NaN or an infinity is born that only one side has: it may be in a call that only that side has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msprobe.comparison.calls import MeasuredCall
from msprobe.comparison.rows import Row


def born_in(calls: Sequence[MeasuredCall], before: str) -> str:
    """Name of the first call without partner that makes NaN or an infinity of what holds none; "" where there is none.

    Args:
        calls: in execution order.
        before: name of the first call with a partner at which one side has such a value and the other has none.
    """
    for call in calls:
        if call.name == before:
            break
        if not call.matched and call.parts.direction != "debug" and _makes(call):
            return call.name
    return ""


def _makes(call: MeasuredCall) -> bool:
    """A mask that is filled with minus infinity was given it as an argument."""
    rows = list(_rows(call))
    return any(_has(row) for row in rows if row.role == "output") and not any(_has(row) for row in rows if row.role != "output")


def _rows(call: MeasuredCall) -> Iterator[Row]:
    for row in call.rows:
        known = row.pair.target or row.pair.golden
        if known is not None:
            yield known


def _has(row: Row) -> bool:
    return any(type(value) is float and not math.isfinite(value) for value in row.statistics)
