"""Parameters and inputs of the model in two dtypes: a cast alone moves Max, Min, Mean and Norm by so much and no more.

What was computed may carry the error of everything before it; a weight and the data are read and carry none. A cast of x to a dtype of
unit roundoff u and smallest step e near zero gives x(1 + d) with |d| <= u, or an absolute error of e/2. So Max and Min move by at most
u times their size, Norm by u times itself, and Mean by u times the mean magnitude, which is at most Norm/sqrt(n) (Cauchy-Schwarz).

Rounding keeps the order of numbers, so that it takes Max to Max and Min to Min: where one side is wide, these two tell a cast to the bit.
Which weights are held to all this, and which the two runs may have trained apart, says weights.py.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

from msprobe.comparison.fill_values import has_fill
from msprobe.comparison.judging.accepted import is_acceptable
from msprobe.comparison.judging.values import unit_of
from msprobe.comparison.rows import Row

_LEAST_STEP: dict[str, float] = {
    "torch.float16": 2.0**-24,
    "torch.complex32": 2.0**-24,
    "torch.float8_e4m3fn": 2.0**-9,
    "torch.float8_e4m3fnuz": 2.0**-10,
    "torch.float8_e5m2": 2.0**-16,
    "torch.float8_e5m2fnuz": 2.0**-17,
}
"""Distance of the numbers next to zero; of wider dtypes it is too small to matter."""

_ADDED_UP = 2.0**-20
"""Relative error of a Mean or a Norm that a tool has added up in float32."""

_NAMES = ("Max", "Min", "Mean", "Norm")


class Moved(NamedTuple):
    """A statistic that moved by more than a cast explains: its name, by how much, and by how much at most."""

    name: str
    by: float
    most: float


def moved(target: Row, golden: Row) -> Moved | None:
    """The statistic that is farthest beyond what a cast explains; None where all are within it, or where nothing can be said."""
    ours, theirs, numel = target.statistics, golden.statistics, golden.value
    if not numel or target.value != numel or not is_acceptable(target.dtype, golden.dtype):
        return None
    if any(type(value) is not float or not math.isfinite(value) for value in (*ours, *theirs)) or has_fill(target) or has_fill(golden):
        return None
    unit = unit_of(target.dtype) + unit_of(golden.dtype)
    unit *= 1.0 + unit  # relative to the unrounded value, of which neither side need hold the digits
    step = (_LEAST_STEP.get(target.dtype, 0.0) + _LEAST_STEP.get(golden.dtype, 0.0)) / 2
    sums = max(unit, _ADDED_UP)
    norm = max(abs(ours[3]), abs(theirs[3]))
    most = (
        unit * max(abs(ours[0]), abs(theirs[0])) + step,
        unit * max(abs(ours[1]), abs(theirs[1])) + step,
        sums * norm / math.sqrt(numel) + step,
        sums * norm + step * math.sqrt(numel),
    )
    by = (*(abs(a - b) for a, b in zip(ours[:3], theirs[:3], strict=True)), abs(abs(ours[3]) - abs(theirs[3])))
    beyond = [one for one in map(Moved, _NAMES, by, most) if one.by > one.most]
    return max(beyond, key=lambda one: one.by / one.most if one.most else math.inf) if beyond else None


def said(target: Row, golden: Row) -> str:
    """`more than rounding to the other dtype: ...`; "" where a cast explains all."""
    found = moved(target, golden)
    if found is None:
        return ""
    return (
        f"cast: more than rounding from one dtype to the other: its {found.name} differs by {found.by:.2g}, and rounding explains "
        f"{found.most:.2g} at most"
    )


def is_rounded(target: Row, golden: Row) -> bool | None:
    """Whether Max and Min of the coarser side are those of the finer one, rounded; None where the two dtypes do not tell."""
    coarse, fine = (target, golden) if unit_of(target.dtype) > unit_of(golden.dtype) else (golden, target)
    if coarse.dtype not in _ROUNDED or fine.dtype not in _REFINES:
        return None
    pairs = zip(coarse.statistics[:2], fine.statistics[:2], strict=True)
    return all(type(b) is float and _ROUNDED[coarse.dtype](b) == a for a, b in pairs)


def _to_bfloat16(value: float) -> float:
    """The nearest number of bfloat16, ties to even."""
    if not math.isfinite(value) or value == 0.0:
        return value
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(fraction * 256.0), exponent - 8)


def _to_float16(value: float) -> float:
    return float(struct.unpack("e", struct.pack("e", value))[0]) if abs(value) < 65520.0 else math.copysign(math.inf, value)


def _to_float32(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0]) if abs(value) < 3.4e38 else value


_ROUNDED = {"torch.bfloat16": _to_bfloat16, "torch.float16": _to_float16, "torch.float32": _to_float32}
_REFINES = frozenset({"torch.float32", "torch.float64"})
