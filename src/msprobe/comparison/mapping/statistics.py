"""What Max, Min, Mean and Norm of a whole follow from those of its parts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msprobe.comparison.mapping.rules import How
from msprobe.comparison.rows import Row, Statistics

NOTHING: Statistics = (None, None, None, None)


def combined(parts: Sequence[Row], how: How) -> tuple[Statistics, str]:
    """Statistics of the whole, and, where nothing follows from the parts, why.

    Of tensors that are joined: Max and Min the extremes, Mean weighted by the number of elements, Norm the root of the sum of squares.
    """
    if how.sum:
        return NOTHING, "statistics of a sum do not follow from those of its terms"
    if how.select is not None:
        return NOTHING, "statistics of a part do not follow from those of the whole"
    if how.mask is not None:
        return NOTHING, "statistics under a mask do not follow from those of the whole tensor"
    if len(parts) == 1:
        return parts[0].statistics, ""
    filled = [row for row in parts if row.value != 0]
    if not filled:
        return NOTHING, ""
    if any(None in row.statistics or not isinstance(row.value, int) for row in filled):
        return NOTHING, "a part has no statistics"
    maxima, minima, means, norms = zip(*(row.statistics for row in filled), strict=True)
    count = sum(row.value for row in filled)
    mean = math.fsum(value * row.value for value, row in zip(means, filled, strict=True)) / count if _finite(means) else sum(means)
    return (_extreme(maxima, max), _extreme(minima, min), mean, math.hypot(*norms)), ""


def _finite(values: Sequence[float]) -> bool:
    return all(math.isfinite(value) for value in values)


def _extreme(values: Sequence[float], which: object) -> float:
    """NaN where one of them is."""
    odd = next((value for value in values if value != value), None)
    if odd is not None:
        return odd
    return max(values) if which is max else min(values)
