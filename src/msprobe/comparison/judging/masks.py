"""Fill values of attention masks: the lowest number of a dtype, or minus infinity, stands for "not allowed" and is no number of the model.

Two runs in two dtypes fill with two different numbers; the size of that difference says nothing. And beside numbers that large, the
other elements would have no weight in a norm: they are measured by themselves.
"""

from __future__ import annotations

import math

from msprobe.comparison.fill_values import scale_of
from msprobe.comparison.measure import Agreement, Measure, relative_difference
from msprobe.comparison.rows import Row

_SHARE = 1e-4


def without_fill(target: Row, golden: Row, measure: Measure) -> Measure:
    """The measure of a pair in which both sides hold a fill value as their Min: that of the other elements.

    Their size is taken relative to the larger Max, at least 1: such values are logits, and an exponential makes of their absolute
    error a relative one.
    """
    if measure.filled:  # by the elements: measure_masked.py
        return measure
    scale = scale_of(target, golden)
    largest = relative_difference(target.statistics[0], golden.statistics[0], scale)
    differ = target.statistics[1] != golden.statistics[1]
    if differ:
        shares = _masked_share(target), _masked_share(golden)
        if None not in shares and abs(shares[0] - shares[1]) > _SHARE:  # type: ignore[operator]
            return measure  # more positions are masked on one side
    else:
        largest = max(largest, measure.size)  # what masks otherwise is as large as the fill value
        if measure.cosine is not None and measure.max_abs is not None and math.isfinite(measure.size):
            largest = max(largest, measure.max_abs / scale)  # element by element; masked positions are equal
    agreement = Agreement.ROUNDING if math.isfinite(largest) else Agreement.DIFFERENT
    return measure._replace(size=largest, agreement=agreement, filled=differ)


def _masked_share(row: Row) -> float | None:
    """Share of the elements that hold the fill value, None where the Mean does not tell."""
    mean, lowest = row.statistics[2], row.statistics[1]
    if type(mean) is not float or not math.isfinite(mean) or not math.isfinite(lowest):
        return None
    return float(mean / lowest)
