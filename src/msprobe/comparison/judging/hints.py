"""What a difference looks like: the other sign, another scale, another order. Said beside the verdict, where the numbers show it."""

from __future__ import annotations

import math

from msprobe.comparison.judging.reordered import is_reordered
from msprobe.comparison.measure import Measure
from msprobe.comparison.rows import Row

_CLOSE = 1e-4
_PARALLEL = 1e-6  # 1 - |cosine| of values that differ by a factor, rounding included
_FAR_FROM_ONE = 1e-2


def hint(target: Row, golden: Row, measure: Measure) -> str:
    """`hint: the target is -1 times the golden value.`, "" where no factor fits.

    Statistics: a factor must fit Max, Min, Mean and Norm, with Max and Min exchanged where it is negative. Tensors: the cosine is 1 or -1,
    and the factor is that of the norms.
    """
    if measure.cosine is None and is_reordered(target, golden, measure.size):
        return "hint: Max and Min agree, Mean and Norm but for their last digits: the same values in another order."
    factor = _factor(target, golden, measure)
    if factor is None or abs(factor - 1.0) < _FAR_FROM_ONE:
        return ""
    return f"hint: The target is {factor:.4g} times the golden value."


def _factor(target: Row, golden: Row, measure: Measure) -> float | None:
    ours, theirs = _numbers(target), _numbers(golden)
    if ours is None or theirs is None or not theirs[3] > 0 or not ours[3] > 0 or (golden.value or 0) < 2:
        return None
    ratio = ours[3] / theirs[3]
    if measure.cosine is not None:
        return math.copysign(ratio, measure.cosine) if 1.0 - abs(measure.cosine) < _PARALLEL else None
    scale = ratio * max(abs(theirs[0]), abs(theirs[1]))
    same = (theirs[0], theirs[1], theirs[2])
    turned = (-theirs[1], -theirs[0], -theirs[2])
    for sign, expected in ((1.0, same), (-1.0, turned)):
        if all(abs(a - ratio * b) <= _CLOSE * scale for a, b in zip(ours, expected, strict=False)):
            return sign * ratio
    return None


def _numbers(row: Row) -> tuple[float, float, float, float] | None:
    values = row.statistics
    if any(type(value) is not float or not math.isfinite(value) for value in values):
        return None
    return values
