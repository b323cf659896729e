"""Parameters that hold the same values in another order: a transposed weight, two experts exchanged.

Of a permutation Max and Min are the same, and Mean and Norm are but for their last digits, since they are added up in another order in
float64: a change of one value that such a dtype can hold would show long before. On another machine the last digits differ anyway; so
this is looked for only where most parameters agree in every digit.
"""

from __future__ import annotations

from collections.abc import Sequence

from msprobe.comparison.calls import Measured, MeasuredCall
from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.rows import Row

LAST_DIGITS = 1e-13
"""Below this size a difference may come from another order of the same values."""

_DTYPES = frozenset({"torch.float32", "torch.float16", "torch.bfloat16"})


def digits_count(calls: Sequence[MeasuredCall]) -> bool:
    """Whether more than half of the parameters agree in every digit."""
    found = [row.measure.agreement for call in calls for row in call.rows if row.measure is not None and _is_parameter(row)]
    return 2 * found.count(Agreement.SAME) > len(found)


def is_reordered(target: Row, golden: Row, size: float) -> bool:
    """Whether two tensors look like the same values in another order."""
    if not 0.0 < size < LAST_DIGITS or target.dtype != golden.dtype or target.dtype not in _DTYPES:
        return False
    return target.statistics[:2] == golden.statistics[:2] and target.statistics != golden.statistics


def looks_reordered(target: Row, golden: Row, measure: Measure) -> bool:
    """`is_reordered` of a pair that was judged to differ, by statistics."""
    return measure.agreement is Agreement.DIFFERENT and measure.cosine is None and is_reordered(target, golden, measure.size)


def _is_parameter(row: Measured) -> bool:
    return row.pair.target is not None and row.pair.target.role == "parameters"
