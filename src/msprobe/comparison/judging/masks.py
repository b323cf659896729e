"""Fill values of attention masks: the lowest number of a dtype, or minus infinity, stands for "not allowed" and is no number of the model.

Two runs in two dtypes fill with two different numbers; the size of that difference says nothing. And beside numbers that large, the
other elements would have no weight in a norm: they are measured by themselves.
"""

from __future__ import annotations

import math
from typing import Any

from msprobe.comparison.measure import Agreement, Measure, is_fill, relative_difference
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


def scale_of(target: Row, golden: Row) -> float:
    """What sizes are relative to, of two tensors whose Max is no fill value."""
    return float(max(1.0, abs(target.statistics[0]), abs(golden.statistics[0])))


def _masked_share(row: Row) -> float | None:
    """Share of the elements that hold the fill value, None where the Mean does not tell."""
    mean, lowest = row.statistics[2], row.statistics[1]
    if type(mean) is not float or not math.isfinite(mean) or not math.isfinite(lowest):
        return None
    return float(mean / lowest)


def both_filled(target: Row, golden: Row) -> bool:
    """Whether the Min of both is a fill value, and the Max of both is none."""
    return has_fill(target) and has_fill(golden)


def has_fill(row: Row) -> bool:
    """Whether the Min of a floating-point tensor is a fill value and its Max is none."""
    highest, lowest = row.statistics[:2]
    return is_fill(lowest) and _is_ordinary(highest)


def _is_ordinary(value: Any) -> bool:
    return type(value) is float and math.isfinite(value) and not is_fill(value)
