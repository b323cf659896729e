"""What lies around the first difference, where its value goes, and whether the difference grows or dies out."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from msprobe.comparison.calls import Measured, MeasuredCall, execution_order, overwritten_input
from msprobe.comparison.compared import Compared
from msprobe.comparison.first_difference import FirstDifference
from msprobe.comparison.measure import Agreement
from msprobe.comparison.nonfinite import born_in
from msprobe.comparison.rows import Row
from msprobe.comparison.step_parts import Part, part_of
from msprobe.format.names import ModuleName, parse

_KEPT = 5
_SHOWN = 3
_GROWN = 10.0
_IN_PLACE = ("_foreach_", "_fused_", "_amp_foreach_", "__i", "__setitem__")


class At(NamedTuple):
    """A call and the relative size of the difference there."""

    call: str
    size: float


@dataclass(frozen=True)
class Growth:
    """The relative size of the difference along the order of execution, of floating-point outputs.

    Attributes:
        call: the call where it begins.
        start: its size there; None where it has no size (checksums, other dtypes).
        tenfold: the first call with at least ten times that.
        largest: the largest finite one.
        last: that of the last call of the forward pass in which it begins (or of the backward pass, or of the optimizer's step).
        nonfinite: the first call at which NaN or an infinity stands on one side only, or the one without partner that made it.
        gone_after: the last call that differs, when calls after it were compared and agree; "" when the difference lasts to the end.
        agreeing: how many those are.
        absorbed_by: the first of them that takes in tensors that differ and gives tensors that agree; "" when none does, so that nothing is
            known to have been absorbed, and where the difference went into a call whose effect was not recorded as its output.
        part, next_part: the part of the step in which it begins, and the one that follows; None where none does.
    """

    call: str
    start: float | None
    tenfold: At | None
    largest: At | None
    last: At | None
    nonfinite: str
    gone_after: str
    agreeing: int
    absorbed_by: str = ""
    part: Part = "forward"
    next_part: Part | None = None


@dataclass(frozen=True)
class Propagation:
    """Around and after the first difference of a value.

    Attributes:
        call: the call where it starts.
        parents: the modules around it, the nearest first.
        consumers: the first later calls of the target that take in the same value, by checksum or by identical statistics; of a module
            and a call in it the call.
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
    position = next((i for i, call in enumerate(calls) if call.name == difference.shows_at), None)
    if position is None:
        return None
    parents = tuple(_ancestors(difference.call.name, compared.parents))
    consumers = [
        name
        for name in _outside(list(_consumers(difference, calls[position + 1 :])), (difference.call.name, *parents), compared.parents)
        if difference.call.name not in _ancestors(name, compared.parents)  # calls inside it may stand before it
    ]
    bound = Agreement.ROUNDING if findings.exact else Agreement.DIFFERENT
    growth = _growth(
        difference,
        calls[position:],
        bound,
        lambda call: part_of(call, compared.parents, compared.frames),
        sized=compared.mode != "md5",
    )
    if growth.nonfinite:
        growth = replace(growth, nonfinite=born_in(calls, growth.nonfinite) or growth.nonfinite)
    return Propagation(difference.call.name, parents, tuple(consumers[:_KEPT]), len(consumers), growth)


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


def _outside(names: Sequence[str], around: Sequence[str], parents: Mapping[str, str | None]) -> list[str]:
    """Without the modules around the call, which hold it and do not use it, and those that only hand the value to a call in them."""
    holders = set(around).union(*(_ancestors(name, parents) for name in names))
    return [name for name in names if name not in holders]


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


def _growth(
    difference: FirstDifference, calls: Sequence[MeasuredCall], bound: Agreement, part: Callable[[MeasuredCall], Part], sized: bool
) -> Growth:
    # A number given as an argument is not of one kind with the values that follow from it.
    start = max((row.measure.size for row in difference.rows if row.measure is not None and _of_tensors(row)), default=0.0)
    begins = start if sized and difference.of_values and 0.0 < start < math.inf else None
    tenfold = largest = last = None
    nonfinite, gone_after, agreeing, absorbed_by = "", difference.call.name, 0, ""
    begins_in, hidden = part(difference.call), False
    next_part: Part | None = None
    for index, call in enumerate(calls):
        if next_part is None and call.pair.target is not None and (now := part(call)) != begins_in:
            next_part = now
        if not call.matched:
            continue
        takes_in = index > 0 and any(_of_tensors(row) and _differs(row, "input", bound) for row in call.rows)
        elsewhere = takes_in and _acts_elsewhere(call, part)
        hidden = hidden or elsewhere or (takes_in and call.outputs is Agreement.UNKNOWN)
        if call.outputs is not Agreement.UNKNOWN:
            if call.outputs >= bound:
                gone_after, agreeing, absorbed_by = call.name, 0, ""
            elif index:
                agreeing += 1
                if takes_in and not elsewhere and _gives_tensors(call):
                    absorbed_by = absorbed_by or call.name
        size = _size(call) if sized else None
        if size is None:
            continue
        if size == math.inf:
            nonfinite = nonfinite or call.name
            continue
        here = At(call.name, size)
        last = here if next_part is None else last
        if largest is None or size > largest.size:
            largest = here
        if tenfold is None and begins is not None and size >= _GROWN * begins:
            tenfold = here
    gone = gone_after if agreeing else ""
    absorbed_by = "" if hidden else absorbed_by
    return Growth(difference.call.name, begins, tenfold, largest, last, nonfinite, gone, agreeing, absorbed_by, begins_in, next_part)


def _of_tensors(row: Measured) -> bool:
    ours, theirs = row.pair
    return ours is not None and theirs is not None and ours.kind == theirs.kind == "tensor"


def _differs(row: Measured, role: str, bound: Agreement) -> bool:
    return row.pair.target is not None and row.pair.target.role == role and row.measure is not None and row.measure.agreement >= bound


def _acts_elsewhere(call: MeasuredCall, part: Callable[[MeasuredCall], Part]) -> bool:
    """Whether what a call does may lie outside of its recorded output: it writes into its inputs, or belongs to an optimizer."""
    api = call.parts.api or ""
    is_dunder = api.startswith("__") and api.endswith("__")
    if (api.endswith("_") and not is_dunder) or api.startswith(_IN_PLACE) or overwritten_input(call.parts) is not None:
        return True
    return part(call) == "optimizer"


def _gives_tensors(call: MeasuredCall) -> bool:
    """Whether a tensor that it puts out was compared."""
    return any(
        _of_tensors(row)
        and row.pair.target is not None
        and row.pair.target.role in ("output", "parameters_grad")
        and row.measure is not None
        and row.measure.agreement is not Agreement.UNKNOWN
        for row in call.rows
    )


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


def sentences(propagation: Propagation, differs_later: bool = False) -> Iterator[str]:
    """In words, each a line; only what the headline and the names in it do not say already.

    Args:
        propagation: of one step.
        differs_later: a later step differs, too: then nothing has died out.
    """
    around = list(_unlike(map(_path, propagation.parents)))
    if len(around) > 1:  # the nearest one stands in the headline
        yield f"inside {', in '.join(around)}"
    if propagation.consumers:
        shown = propagation.consumers[:_SHOWN]
        more = propagation.consumer_count - len(shown)
        yield f"used by {', '.join(shown)}{f' and {more} more' if more else ''}"
    growth = "; ".join(_growth_words(propagation.growth, differs_later))
    if growth:
        yield growth


def _path(name: str) -> str:
    """`layers.3.mlp` of a module's entry."""
    parts = parse(name)
    return parts.path or parts.class_name if isinstance(parts, ModuleName) else name


def _unlike(paths: Iterable[str]) -> Iterator[str]:
    """Those that are no begin of the path before: `layers.3.mlp` lies in `layers.3`, nobody needs to be told."""
    before = ""
    for path in paths:
        if not f"{before}.".startswith(f"{path}."):
            yield path
        before = path


def _growth_words(growth: Growth, differs_later: bool) -> Iterator[str]:
    here, largest, last = growth.start, growth.largest, growth.last
    sized = here is not None and largest is not None and last is not None and last.call != growth.call
    if sized and here is not None and largest is not None and last is not None:
        steps = [f"relative size {here:.2g} here"]
        if growth.tenfold is not None:
            steps.append(f"{largest.size:.2g} in {largest.call}")
        if last != largest and not growth.gone_after and not _is_gradient(last.call):
            steps.append(f"{last.size:.2g} in {last.call}, {_last_of(growth)}")
        if growth.tenfold is not None or len(steps) > 1:
            yield f"{'it grows' if growth.tenfold is not None else 'it does not grow'}: {', '.join(steps)}"
    if growth.nonfinite:
        yield f"NaN or Inf on one side from {growth.nonfinite} on"
    if differs_later:
        return
    if growth.absorbed_by:
        yield f"it dies out in {growth.absorbed_by}, which takes in what differs and gives what agrees"
    elif growth.gone_after:
        calls = f"{growth.agreeing} later {'call agrees' if growth.agreeing == 1 else 'calls agree'}"
        yield f"no difference is recorded after {'it' if growth.gone_after == growth.call else growth.gone_after} ({calls})"


def _last_of(growth: Growth) -> str:
    """What the last call of the part is the last of. What a script does to gradients stands between backward pass and optimizer."""
    if growth.part == "optimizer":
        return "the last of the optimizer's step"
    return "the last before the optimizer's step" if growth.next_part == "optimizer" else "the last of the forward pass"


def _is_gradient(name: str) -> bool:
    return ".backward" in name or ".parameters_grad" in name
