"""Parameters and inputs of the model in two dtypes: a cast alone moves Max, Min, Mean and Norm by so much and no more.

What was computed may carry the error of everything before it; a weight and the data are read and carry none. A cast of x to a dtype of
unit roundoff u and smallest step e near zero gives x(1 + d) with |d| <= u, or an absolute error of e/2. So Max and Min move by at most
u times their size, Norm by u times itself, and Mean by u times the mean magnitude, which is at most Norm/sqrt(n) (Cauchy-Schwarz).

Weights that one of the two runs has trained in its own dtype have moved apart: parameters are held to this only where three quarters
of them are casts of each other to the bit, as far as Max and Min tell (rounding keeps the order of numbers, so that it takes Max to Max).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msprobe.comparison.arguments import argument_name
from msprobe.comparison.calls import Measured, MeasuredCall, execution_order, measured_anew
from msprobe.comparison.judging.accepted import is_acceptable
from msprobe.comparison.judging.masks import has_fill
from msprobe.comparison.judging.values import unit_of
from msprobe.comparison.measure import Agreement
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
_Identity = tuple[object, ...]


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


def hold_to_casts(calls: Sequence[MeasuredCall], parents: Mapping[str, str | None]) -> list[MeasuredCall]:
    """The calls with parameters and inputs of the model that a cast does not explain as different.

    Args:
        calls: weighed, in the order of dump.json.
        parents: construct.json of the target.
    """
    if not any(call.dtype_differs for call in calls):
        return [*calls]
    order = execution_order(calls)
    others = {*_other_weights(order), *_other_data(order, parents)}
    return [_marked(call, others) for call in calls] if others else [*calls]


def _marked(call: MeasuredCall, others: set[_Identity]) -> MeasuredCall:
    rows = list(call.rows)
    for index, row in enumerate(rows):
        measure = row.measure
        if measure is not None and measure.agreement is Agreement.ROUNDING and _comes_in(row) and _identity(row) in others:
            rows[index] = Measured(row.pair, measure._replace(agreement=Agreement.DIFFERENT, expected=0.0))
    return measured_anew(call, rows)


def trained_apart(calls: Sequence[MeasuredCall]) -> bool:
    """Whether many of the parameters that have another dtype on each side are no casts of each other."""
    seen = _weights(execution_order(calls))
    return not _are_casts(seen)


def _other_weights(order: Sequence[MeasuredCall]) -> Iterator[_Identity]:
    """Identities of the parameters that a cast does not explain, none where many are no casts of each other."""
    seen = _weights(order)
    if _are_casts(seen):
        yield from (identity for identity, (_, is_beyond) in seen.items() if is_beyond)


def _are_casts(seen: Mapping[_Identity, tuple[bool, bool]]) -> bool:
    """Whether so many are casts that they were not trained apart: by chance, Max and Min of a coarse dtype agree for half of them."""
    return 4 * sum(is_rounded for is_rounded, _ in seen.values()) >= 3 * len(seen)


def _weights(order: Sequence[MeasuredCall]) -> dict[_Identity, tuple[bool, bool]]:
    """Of each parameter that has another dtype on each side whether it is a cast as far as can be told, and whether it can be none."""
    seen: dict[_Identity, tuple[bool, bool]] = {}
    put_out: set[_Identity] = set()
    for call in order:
        if call.parts.direction != "forward":
            continue
        for row in call.rows:
            ours, theirs = row.pair
            if ours is None or theirs is None or not is_acceptable(ours.dtype, theirs.dtype):
                continue
            if not _comes_in(row):
                put_out.add(_identity(row))
            elif _is_weight(call, ours) and (ours.role == "parameters" or _identity(row) not in put_out):
                seen.setdefault(_identity(row), (_is_rounded(ours, theirs), moved(ours, theirs) is not None))
    return seen


def _is_rounded(target: Row, golden: Row) -> bool:
    """Whether Max and Min of the coarser side are those of the finer one, rounded; where that cannot be told, whether they could be."""
    coarse, fine = (target, golden) if unit_of(target.dtype) > unit_of(golden.dtype) else (golden, target)
    if coarse.dtype not in _ROUNDED or fine.dtype not in _REFINES:
        return moved(target, golden) is None
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


def _other_data(order: Sequence[MeasuredCall], parents: Mapping[str, str | None]) -> Iterator[_Identity]:
    """The same of what goes into the first call of the model, or the first call of all where no module was recorded, and that no recorded
    call put out."""
    forward = [call for call in order if call.parts.direction == "forward"]
    root = next((call for call in forward if call.parts.is_module and call.matched and parents.get(call.name, "") is None), None)
    if root is None and any(call.parts.is_module for call in forward):
        return
    first = root or next((call for call in forward if call.matched), None)
    if first is None:
        return
    put_out: set[_Identity] = set()
    for call in forward:
        if call is first:
            break
        put_out.update(_identity(row) for row in call.rows if not _comes_in(row))
    for row in first.rows:
        ours, theirs = row.pair
        if ours is None or theirs is None or ours.role != "input" or _identity(row) in put_out or _is_weight(first, ours):
            continue
        if moved(ours, theirs) is not None:
            yield _identity(row)


def _is_weight(call: MeasuredCall, row: Row) -> bool:
    if row.role == "parameters":
        return True
    return row.role == "input" and not call.parts.is_module and (argument_name(call.parts.base, row.key) or "") in ("weight", "bias")


def _comes_in(row: Measured) -> bool:
    return row.pair.target is not None and row.pair.target.role in ("input", "parameters")


def _identity(row: Measured) -> _Identity:
    """The same on both sides for the same value under another name; a view of it has the same statistics."""
    ours, theirs = row.pair
    if ours is None or theirs is None or {*map(type, (*ours.statistics, *theirs.statistics))} != {float}:
        return (id(row),)
    return (ours.dtype, theirs.dtype, ours.statistics, theirs.statistics, ours.value)
