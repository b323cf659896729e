"""Parameters that hold the same values in another order: a transposed weight, two experts exchanged.

Of a permutation Max and Min are the same, and Mean and Norm are but for their last digits, since they are added up in another order in
float64. A change of one value by the last digit of its own dtype moves the sum by more than that, unless the value is some hundred million
times smaller than all of them together. On another machine the last digits differ anyway; so this is looked for only where most parameters
agree in every digit.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

from msprobe.comparison.calls import Measured, MeasuredCall
from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.rows import Row

LAST_DIGITS = 1e-13
"""Below this size a difference may come from another order of the same values."""

_ADDED_UP = sys.float_info.epsilon / 4
"""How far two sums of the same n values lie apart in float64 at most, relative to sqrt(n) * Norm, which is at least the sum of their
magnitudes. Measured on up to 3 million values, transposed and shuffled: 0 where they are drawn as weights are, 0.09 epsilon where they
spread over ten orders of magnitude."""

_DTYPES = frozenset({"torch.float32", "torch.float16", "torch.bfloat16"})


def digits_count(calls: Sequence[MeasuredCall]) -> bool:
    """Whether more than half of the parameters agree in every digit."""
    found = [row.measure.agreement for call in calls for row in call.rows if row.measure is not None and _is_parameter(row)]
    return 2 * found.count(Agreement.SAME) > len(found)


def is_reordered(target: Row, golden: Row, size: float) -> bool:
    """Whether two tensors look like the same values in another order."""
    if not 0.0 < size < LAST_DIGITS or target.dtype != golden.dtype or target.dtype not in _DTYPES:
        return False
    ours, theirs = target.statistics, golden.statistics
    if ours[:2] != theirs[:2] or ours == theirs or type(target.value) is not int:
        return False
    numel = target.value
    return bool(abs(ours[2] - theirs[2]) * numel <= _ADDED_UP * math.sqrt(numel) * theirs[3])


def looks_reordered(target: Row, golden: Row, measure: Measure) -> bool:
    """`is_reordered` of a pair that was judged to differ, by statistics."""
    return measure.agreement is Agreement.DIFFERENT and measure.cosine is None and is_reordered(target, golden, measure.size)


def _is_parameter(row: Measured) -> bool:
    return row.pair.target is not None and row.pair.target.role == "parameters"
