"""Pairs whose checksum or tensor file is missing: what dump.json holds beside it can still show a difference."""

from __future__ import annotations

from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.measure_statistics import compare_statistics
from msprobe.comparison.rows import Row

NO_EXACT = "Max, Min, Mean and Norm are all that was recorded of it"
"""What the reason of a measure begins with that was made from them instead."""


def by_statistics(target: Row, golden: Row, unknown: Measure) -> Measure:
    """`unknown`, or a difference where the statistics of the two tensors differ by more than rounding.

    That they agree makes no `pass` of it: a comparison by checksums or elements promises more than four numbers tell.
    """
    if target.statistics.count(None) == 4 or golden.statistics.count(None) == 4 or target.shape != golden.shape:
        return unknown
    agreement, size, _ = compare_statistics(target, golden)
    if agreement is Agreement.DIFFERENT:
        return Measure(unknown.cells, agreement, size, f"{NO_EXACT}, and they differ")
    if agreement is Agreement.UNKNOWN:
        return unknown
    return unknown._replace(reason=f"{unknown.reason}; Max, Min, Mean and Norm agree")
