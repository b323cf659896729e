"""Masks of a tensor dump that hold another fill value on each side: which positions are masked, and all other elements, by the files."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from msprobe import numerics
from msprobe.comparison.fill_values import both_filled, scale_of
from msprobe.comparison.measure import FILL_BELOW, FILL_FLOAT16, Agreement, Measure, rounding_of
from msprobe.comparison.rows import Row

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from msprobe.numerics.pairs import TensorLike

_PIECE = 1 << 18
"""Elements that are numbers of float64 at a time."""


def have_other_fill(target: Row, golden: Row) -> bool:
    """Whether both are floating-point, their Mins are fill values, and not the same one."""
    if target.statistics[1] == golden.statistics[1] or not both_filled(target, golden):
        return False
    return min(rounding_of(row.dtype, row.dtype) for row in (target, golden)) > 0


def measure_masked(rows: tuple[Row, Row], target: TensorLike, golden: TensorLike, measure: Measure) -> Measure:
    """The measure of a pair that `have_other_fill`: `filled`, and of the elements that neither side masks.

    Args:
        rows: that recorded the two.
        target, golden: one shape.
        measure: of all elements; its cells stay.

    Returns:
        A difference of size inf where one side masks a position and the other does not.
    """
    largest, close, numel = 0.0, 0, math.prod(target.shape)
    units = numerics.ITEMSIZE[target.dtype], numerics.ITEMSIZE[golden.dtype]
    for start in range(0, numel, _PIECE):
        stop = min(start + _PIECE, numel)
        ours, theirs = (
            numerics.to_float64(memoryview(side.data).cast("B")[start * unit : stop * unit], side.dtype)
            for side, unit in zip((target, golden), units, strict=True)
        )
        masked = _is_fill(ours)
        if (masked != _is_fill(theirs)).any():
            return measure._replace(agreement=Agreement.DIFFERENT, size=math.inf, filled=True)
        metrics = numerics.compare_arrays(_without(ours, masked), _without(theirs, masked))
        if metrics.nan_differ or metrics.inf_differ:
            return measure._replace(agreement=Agreement.DIFFERENT, size=math.inf, filled=True)
        largest = max(largest, metrics.max_abs_diff)
        close += metrics.within_1e3 + metrics.nonfinite_equal
    size = largest / scale_of(*rows)
    return measure._replace(agreement=Agreement.ROUNDING, size=size, filled=True, thousandth=close / numel, max_abs=largest)


def _is_fill(values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """measure.is_fill, of each element."""
    return (values <= FILL_BELOW) | ((values >= FILL_FLOAT16[0]) & (values <= FILL_FLOAT16[1]))


def _without(values: npt.NDArray[np.float64], masked: npt.NDArray[np.bool_]) -> Any:
    rest = values.copy()
    rest[masked] = 0.0
    return SimpleNamespace(dtype="float64", shape=rest.shape, data=rest.data)
