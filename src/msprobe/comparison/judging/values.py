"""The numbers of one recorded value that an expectation is made from."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

from msprobe.comparison.calls import Measured
from msprobe.comparison.fill_values import has_fill
from msprobe.comparison.measure import Agreement
from msprobe.comparison.rows import Statistics

UNIT_ROUNDOFF: dict[str, float] = {
    "float64": 2.0**-53,
    "complex128": 2.0**-53,
    "float32": 2.0**-24,
    "complex64": 2.0**-24,
    "float16": 2.0**-11,
    "complex32": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e4m3fnuz": 2.0**-4,
    "float8_e5m2": 2.0**-3,
    "float8_e5m2fnuz": 2.0**-3,
}
"""Half the distance from 1 to the next number: the largest relative error of one rounding to nearest (IEEE 754; OCP 8-bit formats)."""

_WRITTEN = {f"torch.{dtype}": unit for dtype, unit in UNIT_ROUNDOFF.items()}

SINGLE = UNIT_ROUNDOFF["float32"]


class Value(NamedTuple):
    """One tensor of a call.

    Attributes:
        key: where it lies in its call.
        error: relative size of its difference, 0 where both sides are equal or where the difference is more than rounding explains.
        norm: L2 norm, in the golden dump where it stands there; NaN where it is not known.
        largest: largest magnitude, NaN where it is not known or not finite.
        mean: arithmetic mean, NaN where it is not known.
        shape: sizes.
        numel: number of elements.
        unit: unit roundoff of the coarser of the two dtypes, 0 for integers and bool.
    """

    key: str
    error: float
    norm: float
    largest: float
    mean: float
    shape: tuple[int, ...]
    numel: int
    unit: float


def value_of(measured: Measured) -> Value | None:
    """None for what is no floating-point tensor with a number of elements, or has no partner."""
    (ours, theirs), measure = measured
    if ours is None or theirs is None or measure is None or ours.kind != "tensor" or theirs.kind != "tensor" or not theirs.value:
        return None
    unit = max(unit_of(ours.dtype), unit_of(theirs.dtype))
    if unit == 0.0:
        return None
    error = measure.size if measure.agreement is Agreement.ROUNDING else 0.0
    statistics = theirs.statistics
    if not _are_finite_floats(statistics):
        statistics = tuple(map(_number, statistics))  # type: ignore[assignment]
    maximum, minimum, mean, norm = statistics
    if minimum < -6e4 and has_fill(theirs):  # masked positions decide all but the Max
        minimum, mean, norm = maximum, math.nan, math.nan
    return Value(ours.key, error, abs(norm), max(abs(maximum), abs(minimum)), mean, sizes_of(theirs.shape), theirs.value, unit)


def unit_of(dtype: str) -> float:
    """Unit roundoff of a dtype as dump.json writes it, 0 for integers, bool and unknown ones."""
    return _WRITTEN.get(dtype, 0.0)


def accumulator(unit: float) -> float:
    """Unit roundoff in which sums of that dtype are accumulated: kernels use float32 for everything narrower."""
    return min(unit, SINGLE)


_FLOATS = [float] * 4


def _are_finite_floats(statistics: Statistics) -> bool:
    return [*map(type, statistics)] == _FLOATS and math.isfinite(sum(statistics))


def _number(value: Any) -> float:
    if type(value) is float or type(value) is int:
        number = float(value) if abs(value) < 1e300 else math.nan
        return number if math.isfinite(number) else math.nan
    return math.nan


@cache
def sizes_of(shape: str) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in shape.strip("[]()").split(",") if size.strip())
    except ValueError:
        return ()


def combined(errors: list[float]) -> float:
    """Independent relative errors together: the root of the sum of their squares."""
    return math.hypot(*errors)


def quotient(above: float, below: float) -> float:
    """How much larger `above` is, at least 1: an error keeps its absolute size where the value shrinks. 1 where one is not known."""
    if not (above > 0.0 and below >= 0.0):
        return 1.0
    return max(1.0, above / below) if below > 0.0 else math.inf
