"""What lies around the first difference, where its value goes, and whether the difference grows or dies out."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msprobe.comparison.calls import MeasuredCall, execution_order
from msprobe.comparison.compared import Compared
from msprobe.comparison.first_difference import FirstDifference
from msprobe.comparison.measure import Agreement
from msprobe.comparison.rows import Row
from msprobe.format.names import ModuleName, parse

_KEPT = 5
_GROWN = 10.0


class At(NamedTuple):
    """A call and the relative size of the difference there."""

    call: str
    size: float


@dataclass(frozen=True)
class Growth:
    """The relative size of the difference along the order of execution, of floating-point outputs.

    Attributes:
        start: where it begins; None where it has no size (checksums, other dtypes).
        tenfold: the first call with at least ten times that.
        largest: the largest finite one.
        last: that of the last call of the forward pass in which it begins (or of the backward pass).
        nonfinite: the first call at which NaN or an infinity stands on one side only.
        gone_after: the last call that differs, when calls after it were compared and agree; "" when the difference lasts to the end.
        agreeing: how many those are.
        absorbed_by: the first of them that takes in values that differ; "" when none does, so that nothing is known to have been absorbed.
    """

    start: float | None
    tenfold: At | None
    largest: At | None
    last: At | None
    nonfinite: str
    gone_after: str
    agreeing: int
    absorbed_by: str = ""


@dataclass(frozen=True)
class Propagation:
    """Around and after the first difference of a value.

    Attributes:
        call: the call where it starts.
        parents: the modules around it, the nearest first.
        consumers: the first calls of the target that take in the same value, by checksum or by identical statistics.
        consumer_count: how many there are.
        growth: what becomes of it.
    """

    call: str
    parents: tuple[str, ...]
    consumers: tuple[str, ...]
    consumer_count: int
    growth: Growth


def trace(compared: Compared, order: Sequence[MeasuredCall] | None = None) -> Propagation | None:
    """Follows the first difference of a value; None when there is none, or when the two calls of one name are not the same call.

    Args:
        order: the calls in execution order, where the caller has them.
    """
    findings = compared.findings
    difference = findings.first if findings.value is None else findings.value
    if difference is None or difference.kind in ("sequence", "requires_grad"):
        return None
    calls = execution_order(compared.calls) if order is None else order
    position = next((i for i, call in enumerate(calls) if call.name == difference.call.name), None)
    if position is None:
        return None
    consumers = list(_consumers(difference, calls[position + 1 :]))
    bound = Agreement.ROUNDING if findings.exact else Agreement.DIFFERENT
    return Propagation(
        difference.call.name,
        tuple(_ancestors(difference.call.name, compared.parents)),
        tuple(consumers[:_KEPT]),
        len(consumers),
        _growth(difference, calls[position:], bound, sized=compared.mode != "md5"),
    )


def _ancestors(name: str, parents: Mapping[str, str | None]) -> Iterator[str]:
    seen = {name}
    parent = parents.get(name)
    while isinstance(parent, str) and parent not in seen:
        seen.add(parent)
        yield parent
        parent = parents.get(parent)


def _consumers(difference: FirstDifference, later: Sequence[MeasuredCall]) -> Iterator[str]:
    wanted = {identity for row in difference.rows if row.pair.target is not None and (identity := _identity(row.pair.target)) is not None}
    if not wanted:
        return
    for call in later:
        target = call.pair.target
        if target is not None and any(row.role == "input" and row.kind == "tensor" and _identity(row) in wanted for row in target.rows):
            yield call.name


def _identity(row: Row) -> Hashable | None:
    """What two records of one value share; None for a value so plain that others may share it by chance."""
    if row.kind != "tensor" or not row.value:
        return None
    highest, lowest, _, norm = row.statistics
    if row.md5 is not None:
        return row.dtype, row.value, str(row.md5)
    if None in row.statistics or norm == 0 or (highest == lowest and row.value > 1):
        return None
    return row.dtype, row.value, row.statistics


def _growth(difference: FirstDifference, calls: Sequence[MeasuredCall], bound: Agreement, sized: bool) -> Growth:
    start = max((row.measure.size for row in difference.rows if row.measure is not None), default=0.0)
    begins = start if sized and difference.of_values and 0.0 < start < math.inf else None
    tenfold = largest = last = None
    nonfinite, gone_after, agreeing, absorbed_by = "", difference.call.name, 0, ""
    one_pass = True
    for index, call in enumerate(calls):
        one_pass = one_pass and _is_backward(call) == _is_backward(difference.call)
        if not call.matched:
            continue
        if call.outputs is not Agreement.UNKNOWN:
            if call.outputs >= bound:
                gone_after, agreeing, absorbed_by = call.name, 0, ""
            elif index:
                agreeing += 1
                if call.inputs >= bound:
                    absorbed_by = absorbed_by or call.name
        size = _size(call) if sized else None
        if size is None:
            continue
        if size == math.inf:
            nonfinite = nonfinite or call.name
            continue
        here = At(call.name, size)
        last = here if one_pass else last
        if largest is None or size > largest.size:
            largest = here
        if tenfold is None and begins is not None and size >= _GROWN * begins:
            tenfold = here
    return Growth(begins, tenfold, largest, last, nonfinite, gone_after if agreeing else "", agreeing, absorbed_by)


def _is_backward(call: MeasuredCall) -> bool:
    return call.parts.direction in ("backward", "parameters_grad")


def _size(call: MeasuredCall) -> float | None:
    """The largest relative size of a floating-point output; None where none was measured."""
    if call.outputs is Agreement.UNKNOWN:
        return None
    if call.outputs is Agreement.SAME:
        return 0.0
    sizes = [
        row.measure.size
        for row in call.rows
        if row.measure is not None
        and row.measure.agreement is not Agreement.UNKNOWN
        and (ours := row.pair.target) is not None
        and ours.role in ("output", "parameters_grad")
        and ours.kind == "tensor"
        and (theirs := row.pair.golden) is not None
        and theirs.kind == "tensor"  # a tensor and a None differ without an infinity anywhere
        and ours.shape == theirs.shape  # and so do two shapes
        and ("float" in ours.dtype or "complex" in ours.dtype)
    ]
    return max(sizes, default=None)


def sentences(propagation: Propagation) -> Iterator[str]:
    """In words, each a line."""
    if len(propagation.parents) > 1:  # the nearest one stands in the headline
        yield f"inside {', in '.join(map(_path, propagation.parents))}"
    if propagation.consumers:
        more = propagation.consumer_count - len(propagation.consumers)
        yield f"taken in by {', '.join(propagation.consumers)}{f' and {more} more' if more else ''}"
    yield from _growth_sentences(propagation.growth)


def _path(name: str) -> str:
    """`layers.3.mlp` of a module's entry."""
    parts = parse(name)
    return parts.path or parts.class_name if isinstance(parts, ModuleName) else name


def _growth_sentences(growth: Growth) -> Iterator[str]:
    parts: list[str] = []
    if growth.start is not None and growth.largest is not None and growth.last is not None:
        if growth.tenfold is not None:
            by = f"10 times by {growth.tenfold.call}, " if growth.tenfold != growth.largest else ""
            parts.append(f"it grows: relative size {growth.start:.2g} here, {by}largest {growth.largest.size:.2g} at {growth.largest.call}")
        else:
            most = f"at most {growth.largest.size:.2g} later, at {growth.largest.call}"
            parts.append(f"it does not grow tenfold: relative size {growth.start:.2g} here, {most}")
    if growth.nonfinite:
        parts.append(f"NaN or Inf on one side from {growth.nonfinite} on")
    calls = f"{growth.agreeing} later {'call agrees' if growth.agreeing == 1 else 'calls agree'}"
    if growth.absorbed_by:
        parts.append(f"it dies out in {growth.absorbed_by}: that takes in what differs and gives what agrees; nothing differs later")
    elif growth.gone_after:
        parts.append(f"nothing differs after {growth.gone_after} ({calls})")
    elif growth.start is not None and growth.last is not None and growth.last != growth.largest:
        parts.append(f"{growth.last.size:.2g} at the last call of this pass, {growth.last.call}")
    if parts:
        yield "; ".join(parts)
