"""What Max, Min, Mean and Norm of a whole follow from those of its parts, and between what they must lie where they do not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from msprobe.comparison.mapping.rules import How
from msprobe.comparison.measure import as_float
from msprobe.comparison.rows import Row, Statistics

NOTHING: Statistics = (None, None, None, None)
_NAMES = ("Max", "Min", "Mean", "Norm")
_ADVICE = "record both runs with task tensor to compare it"


class Bounds(NamedTuple):
    """Between what a statistic must lie. `scale`: the magnitude that its rounding errors are relative to."""

    low: float
    high: float
    scale: float


class Derived(NamedTuple):
    """What four statistics of the parts say of the whole.

    Attributes:
        statistics: those that follow; None for the others.
        missing: why some do not follow, "" where all do.
        bounds: for each statistic between what it lies, None where that is not known; () where all follow.
    """

    statistics: Statistics
    missing: str = ""
    bounds: tuple[Bounds | None, ...] = ()


def derived(parts: Sequence[Row], how: How) -> Derived:
    """Statistics of the whole.

    Of tensors that are joined: Max and Min the extremes, Mean weighted by the number of elements, Norm the root of the sum of squares.
    Of a sum: Mean the sum of the means; the others lie within bounds (each element of a sum lies between the sums of the extremes, and
    by the triangle inequality the Norm between the largest less the others and the sum of all). Of a part: within those of the whole.
    """
    if how.mask is not None:
        return Derived(NOTHING, f"statistics under a mask do not follow from those of the whole tensor; {_ADVICE}")
    known = [_numbers(row) for row in parts]
    if how.sum:
        missing = f"statistics of a sum do not follow from those of its terms, but the Mean; {_ADVICE}"
        if how.select is not None or not all(known):
            return Derived(NOTHING, missing)
        return _of_sum([numbers for numbers in known if numbers is not None], missing)
    if how.select is not None:
        missing = f"statistics of a part do not follow from those of the whole; {_ADVICE}"
        return Derived(NOTHING, missing, _of_part(known[0]) if known[0] is not None and how.concat is None else ())
    if len(parts) == 1:
        return Derived(parts[0].statistics)
    return _joined(parts)


def _joined(parts: Sequence[Row]) -> Derived:
    filled = [row for row in parts if row.value != 0]
    if not filled:
        return Derived(NOTHING)
    columns = list(zip(*(row.statistics for row in filled), strict=True))
    maxima, minima, means, norms = [None if None in column else column for column in columns]
    counts = [row.value for row in filled]
    if not all(isinstance(count, int) for count in counts):
        means = None
    statistics = (
        _extreme(maxima, max) if maxima is not None else None,
        _extreme(minima, min) if minima is not None else None,
        _mean(means, counts) if means is not None else None,
        math.hypot(*norms) if norms is not None else None,
    )
    return Derived(statistics, "a part has no statistics" if statistics == NOTHING else "")


def _mean(means: Sequence[float], counts: Sequence[int]) -> float:
    if not all(math.isfinite(value) for value in means):
        return sum(means)
    return math.fsum(value * count for value, count in zip(means, counts, strict=True)) / sum(counts)


def _extreme(values: Sequence[Any], which: Any) -> Any:
    """NaN where one of them is."""
    odd = next((value for value in values if value != value), None)
    return odd if odd is not None else which(values)


def _numbers(row: Row) -> tuple[float, float, float, float] | None:
    """The four as finite floats; None where they are not."""
    if not all(type(value) in (float, int) for value in row.statistics):
        return None
    try:
        highest, lowest, mean, norm = (float(value) for value in row.statistics)
    except OverflowError:
        return None
    return (highest, lowest, mean, abs(norm)) if math.isfinite(highest + lowest + mean + norm) else None


def _of_sum(parts: Sequence[tuple[float, float, float, float]], missing: str) -> Derived:
    maxima, minima, means, norms = (math.fsum(column) for column in zip(*parts, strict=True))
    scale = math.fsum(max(abs(highest), abs(lowest)) for highest, lowest, _, _ in parts)
    bounds = (
        # The element that is the largest of one term is at least that, and the least of each of the others.
        Bounds(max(minima - lowest + highest for highest, lowest, _, _ in parts), maxima, scale),
        Bounds(minima, min(maxima - highest + lowest for highest, lowest, _, _ in parts), scale),
        Bounds(means, means, scale),
        Bounds(max(0.0, max(2 * norm - norms for _, _, _, norm in parts)), norms, norms),
    )
    return Derived((None, None, means, None), missing, bounds)


def _of_part(whole: tuple[float, float, float, float]) -> tuple[Bounds, ...]:
    highest, lowest, _, norm = whole
    scale = max(abs(highest), abs(lowest))
    return (*(Bounds(lowest, highest, scale) for _ in range(3)), Bounds(0.0, norm, norm))


def contradiction(row: Row, bounds: Sequence[Bounds | None], rounding: float) -> tuple[float, str]:
    """By how much the recorded statistics of a value lie outside, relative to the magnitude; and in words. (0.0, "") where none does.

    Args:
        row: the value of the other side, as it was recorded.
        bounds: see Derived.
        rounding: relative size of what may be rounding.
    """
    size, said = 0.0, ""
    for name, value, bound in zip(_NAMES, row.statistics, bounds, strict=False):
        if bound is None or type(value) not in (float, int):
            continue
        number = as_float(value)
        outside = math.inf if number != number else max(bound.low - number, number - bound.high, 0.0)
        found = outside / bound.scale if bound.scale > 0 else math.inf if outside > 0 else 0.0
        if found > max(size, rounding):
            should = f"{bound.low!r}" if bound.low == bound.high else f"between {bound.low!r} and {bound.high!r}"
            size, said = found, f"its {name} must be {should} and is {number!r}"
    return size, said


__all__ = ["NOTHING", "Bounds", "Derived", "contradiction", "derived"]
