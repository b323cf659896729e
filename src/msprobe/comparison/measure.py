"""What a measurement says, whatever it was made from. The fourth stage is `measure_statistics`, `measure_md5` and `measure_tensors`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple, Protocol

from msprobe.comparison.rows import Row
from msprobe.comparison.thresholds import ROUNDING, SCALAR_ROUNDING, SLIGHT

CONTRADICTION = "a record contradicts its tensor file: "
"""What the reason of a measure begins with whose values are not those that were recorded (contradiction.py)."""


class Agreement(IntEnum):
    """How well the two values of a pair agree, as far as they were recorded. Larger is worse."""

    UNKNOWN = 0
    """Nothing could be measured; the measure's `reason` says why."""
    SAME = 1
    """Equal in every recorded bit."""
    ROUNDING = 2
    """Different by no more than rounding (thresholds.ROUNDING)."""
    DIFFERENT = 3


class Measure(NamedTuple):
    """The measurement of one pair.

    Attributes:
        cells: the metric columns of the mode, in their order.
        agreement: see Agreement.
        size: relative size of the difference, 0 to inf.
        reason: why nothing was measured, "" where something was; beside a difference, that a record contradicts its tensor file.
        norm_relative: |Norm - Norm of golden| / |Norm of golden|, None where it has no value (statistics).
        cosine, thousandth: Cosine and One Thousandth Err Ratio, None where they have no value (tensors).
        max_abs: largest absolute difference of an element (tensors) or of Max, Min, Mean and Norm.
        lost: nothing was measured although at least one side recorded something to measure.
        expected: the relative size up to which rounding explains a difference, 0 where that was not asked (see judging).
        filled: masked positions hold another fill value on each side; `size` is that of the other elements where the files were read
            (`thousandth` has a value), else that of Max alone.
    """

    cells: Sequence[Any]
    agreement: Agreement
    size: float = 0.0
    reason: str = ""
    norm_relative: float | None = None
    cosine: float | None = None
    thousandth: float | None = None
    max_abs: float | None = None
    lost: bool = False
    expected: float = 0.0
    filled: bool = False


class Measurer(Protocol):
    """Measures one pair of rows that both exist."""

    columns: tuple[str, ...]

    def __call__(self, target: Row, golden: Row) -> Measure: ...


@cache
def rounding_of(target_dtype: str, golden_dtype: str) -> float:
    """Relative size up to which a difference between two tensors may be rounding: that of the coarser dtype, 0 for integers and bool."""
    return _bound(ROUNDING, target_dtype, golden_dtype)


@cache
def slight_of(target_dtype: str, golden_dtype: str) -> float:
    """Relative size up to which a difference between two tensors is slight; 0 for integers and bool."""
    return _bound(SLIGHT, target_dtype, golden_dtype)


def _bound(table: dict[str, float], *dtypes: str) -> float:
    return max([table.get(dtype.removeprefix("torch."), 0.0) for dtype in dtypes])


def compare_values(target: Any, golden: Any) -> tuple[Agreement, float]:
    """Agreement and relative size for two plain values (arguments that are no tensors)."""
    if type(target) is type(golden) and target == golden:
        return Agreement.SAME, 0.0
    numbers = (int, float)
    if isinstance(target, numbers) and isinstance(golden, numbers) and not isinstance(target, bool) and not isinstance(golden, bool):
        size = relative_difference(target, golden, 0.0)
        if size == 0.0:
            return Agreement.SAME, 0.0
        if isinstance(target, float) and isinstance(golden, float) and (size <= SCALAR_ROUNDING or (is_fill(target) and is_fill(golden))):
            return Agreement.ROUNDING, size
        return Agreement.DIFFERENT, size
    if type(target) is type(golden) and isinstance(target, list | dict) and repr(target) == repr(golden):  # NaN inside equals NaN
        return Agreement.SAME, 0.0
    return Agreement.DIFFERENT, math.inf


FILL_BELOW = -3.3e38
"""Numbers up to this one are fill values, minus infinity included."""
FILL_FLOAT16 = (-65504.0, -64000.0)
"""So are those between these two, float16's lowest ones."""


def is_fill(value: Any) -> bool:
    """Whether a number is what masks are filled with: minus infinity, or the lowest number of float16 or a wider dtype (to which a
    logit may have been added)."""
    return type(value) is float and (value <= FILL_BELOW or FILL_FLOAT16[0] <= value <= FILL_FLOAT16[1])


def relative_difference(target: int | float, golden: int | float, scale: float) -> float:
    """|target - golden| over the largest of |target|, |golden| and `scale`; inf where only one is NaN or an infinity of that sign."""
    if target == golden or (target != target and golden != golden):
        return 0.0
    if isinstance(target, int) and isinstance(golden, int):
        return abs(target - golden) / max(abs(target), abs(golden))
    a, b = (target, golden) if type(target) is type(golden) is float else (as_float(target), as_float(golden))
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    largest = max(abs(a), abs(b), scale)
    # Halved first, so that 1e308 and -1e308 do not overflow.
    return abs(a / 2 - b / 2) / (largest / 2) if largest > 1e-300 else abs(a - b) / largest


def as_float(value: int | float) -> float:
    """The nearest float; an infinity for an integer beyond float's range."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
