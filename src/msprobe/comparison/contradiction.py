"""Whether a tensor file holds what dump.json says of it. A file changed or mixed up after recording is told, never a silent `pass`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from msprobe import numerics
from msprobe.comparison.measure import CONTRADICTION, Agreement, Measure, rounding_of
from msprobe.comparison.measure_statistics import compare_statistics
from msprobe.comparison.rows import Row

if TYPE_CHECKING:
    from msprobe.numerics import PairMetrics

_TOLERANCE = 1e-2
"""Relative; tools that add up in float32 or float16 are that far from each other at most. At least the dtype's own rounding."""

_SMALLEST = 1e-15
"""Squares of what is smaller are no numbers of float32: a Norm added up there is 0."""

_NOT_IN_NUMPY = frozenset(name for name in numerics.ITEMSIZE if name == "bfloat16" or name.startswith("float8"))
"""Dtypes that a .npy holds as float32, which has all of their numbers."""

_NAMES = ("Max", "Min", "Mean", "Norm")


class Facts(NamedTuple):
    """What two files hold, target and golden. `metrics`: None where nothing was measured (other shapes, empty)."""

    dtypes: tuple[str, str]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    metrics: PairMetrics | None


def checked(measure: Measure, target: Row, golden: Row, facts: Facts) -> Measure:
    """The measure of two files, held against what both dumps recorded of them.

    Where a record says otherwise, what would count as equal is not compared; what differs stays different, with the reason beside it.
    Of finite floating-point tensors the largest magnitude and the Norm are looked at, which measuring gives anyway; where the files
    are equal, the four recorded statistics of both sides as well.
    """
    found = _of_files(target, golden, facts)
    if not found and measure.agreement is Agreement.SAME and target.statistics != golden.statistics:
        agreement, _, _ = compare_statistics(target, golden)
        if agreement is Agreement.DIFFERENT:
            names = [name for name, a, b in zip(_NAMES, target.statistics, golden.statistics, strict=True) if a != b and (a == a or b == b)]
            found = f"the files are equal, {' and '.join(names)} as recorded {'are' if len(names) > 1 else 'is'} not"
    if not found:
        return measure
    reason = f"{CONTRADICTION}{found}; it was changed or mixed up after recording"
    if measure.agreement is Agreement.DIFFERENT:
        return measure._replace(reason=reason)
    return measure._replace(agreement=Agreement.UNKNOWN, size=0.0, reason=reason, lost=True)


def _of_files(target: Row, golden: Row, facts: Facts) -> str:
    """What is wrong with one of the two files, "" for nothing."""
    metrics = facts.metrics
    known = metrics is not None and metrics.compared == metrics.numel
    sizes = ((metrics.max_abs_a, metrics.norm_a), (metrics.max_abs_b, metrics.norm_b)) if metrics is not None else ((0.0, 0.0),) * 2
    for side, row, dtype, shape, size in zip(("target", "golden"), (target, golden), facts.dtypes, facts.shapes, sizes, strict=True):
        recorded = row.dtype.removeprefix("torch.")
        widened = dtype == "float32" and str(row.data_name).endswith(".npy") and recorded in _NOT_IN_NUMPY
        if recorded != dtype and recorded in numerics.ITEMSIZE and row.dtype != recorded and not widened:
            return f"dtype {recorded} in the {side} dump, {dtype} in {row.data_name}"
        if row.shape != str(list(shape)):
            return f"shape {row.shape} in the {side} dump, {list(shape)} in {row.data_name}"
        if known and "float" in dtype:
            found = _of_numbers(row, dtype, *size)
            if found:
                return f"{found[0]} {found[1]:.6g} in the {side} dump, {found[2]:.6g} in {row.data_name}"
    return ""


def _of_numbers(row: Row, dtype: str, largest: float, norm: float) -> tuple[str, float, float] | None:
    highest, lowest, _, recorded_norm = row.statistics
    tolerance = max(_TOLERANCE, rounding_of(dtype, dtype))
    if type(highest) is float and type(lowest) is float:
        recorded = max(abs(highest), abs(lowest))
        if math.isfinite(recorded) and _apart(recorded, largest, tolerance):
            return "largest magnitude", recorded, largest
    if type(recorded_norm) is float and math.isfinite(recorded_norm) and math.isfinite(norm):
        recorded = abs(recorded_norm)
        if _apart(recorded, norm, tolerance):
            return "Norm", recorded, norm
    return None


def _apart(a: float, b: float, tolerance: float) -> bool:
    return abs(a - b) > tolerance * max(a, b) and max(a, b) > _SMALLEST
