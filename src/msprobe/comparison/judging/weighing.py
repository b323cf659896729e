"""The stage between measuring and judging: every difference is weighed against what rounding explains.

A difference no larger than the allowance is rounding, whatever its size; a larger one is not. The error of the inputs counts as far as it
is itself explained: what follows from a real difference stays a difference. One value has one verdict: what a call takes in was
put out by another call, and has been weighed there. Calls that agree in every bit are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from msprobe.comparison.calls import Measured, MeasuredCall, execution_order, summarise
from msprobe.comparison.judging.absent import excuse
from msprobe.comparison.judging.backward import expected_gradient
from msprobe.comparison.judging.expected import expected_output
from msprobe.comparison.judging.masks import both_filled, without_fill
from msprobe.comparison.judging.operations import Kind, kind_of
from msprobe.comparison.judging.reordered import digits_count, is_reordered
from msprobe.comparison.judging.values import Value, unit_of, value_of
from msprobe.comparison.measure import Agreement, Measure, rounding_of
from msprobe.comparison.names import forward_of
from msprobe.comparison.rows import Row
from msprobe.comparison.thresholds import AMBIENT_DECAY, AMBIENT_LIMIT, GROWTH, GROWTH_SAMPLED

_Seen = tuple[object, ...]


def weigh(calls: Sequence[MeasuredCall], sampled: bool) -> list[MeasuredCall]:
    """The calls with every agreement decided anew where a difference was found; `Measure.expected` holds the allowance.

    Args:
        calls: in the order of dump.json.
        sampled: sizes come from statistics: four numbers show less of an error than there is, so that the inputs' errors are taken to be
            at least what was usual before.
    """
    weighed = _Weighing(calls, sampled)
    done = {id(call): weighed.call(call) for call in execution_order(calls)}
    return [done[id(call)] for call in calls]


class _Weighing:
    def __init__(self, calls: Sequence[MeasuredCall], sampled: bool) -> None:
        self._calls = calls
        self._sampled = sampled
        self._digits: bool | None = None
        self._growth = GROWTH_SAMPLED if sampled else GROWTH
        self._names = {call.name: call for call in calls}
        self._module_calls: dict[str, MeasuredCall] = {}
        self._seen: dict[_Seen, Measure] = {}
        self._ambient = 0.0
        self._parted = False  # from here on small differences may follow from a real one, and excuse nothing

    def call(self, call: MeasuredCall) -> MeasuredCall:
        if call.matched and any(row.measure is not None and row.measure.agreement > Agreement.SAME for row in call.rows):
            call = self._weighed(call)
            self._names[call.name] = call
        if call.parts.is_module and call.parts.direction != "parameters_grad":
            self._module_calls[f"{call.parts.base}.{call.parts.direction}"] = call
        return call

    def _weighed(self, call: MeasuredCall) -> MeasuredCall:
        rows = [_without_fill(row) for row in call.rows]
        measures = [row.measure for row in rows]
        for index, row in enumerate(rows):  # what came in first: it explains what goes out
            target = row.pair.target
            if target is not None and target.role in ("input", "parameters") and _is_open(row):
                measures[index] = self._came_in(row)
                rows[index] = Measured(row.pair, measures[index])
        kind = kind_of(call.parts)
        sources: _Sources | None = None
        for index, row in enumerate(rows):
            target = row.pair.target
            if target is None or target.role not in ("output", "parameters_grad") or not _is_open(row):
                continue
            measures[index] = self._at_once(call, row, kind)
            if measures[index] is None:
                sources = sources or self._sources(call, rows, kind)
                measures[index] = self._went_out(row, sources)
        return summarise(call.pair, excuse(call.parts, rows, measures))

    def _came_in(self, row: Measured) -> Measure:
        ours, theirs = row.pair
        measure = row.measure
        assert ours is not None and theirs is not None and measure is not None
        known = self._seen.get(_identity(ours, theirs))
        if known is not None and known.size >= measure.size:
            return measure._replace(agreement=known.agreement, expected=known.expected)
        if self._sampled and is_reordered(ours, theirs, measure.size) and self._digits_count():
            return self._decided(ours, theirs, measure, 0.0)
        allowance = self._unrecorded(ours, theirs) if ours.role == "input" else rounding_of(ours.dtype, theirs.dtype)
        return self._decided(ours, theirs, measure, allowance)

    def _at_once(self, call: MeasuredCall, row: Measured, kind: Kind | None) -> Measure | None:
        """The weighed measure where no expectation is needed to tell: it is known already, or smaller than any expectation."""
        ours, theirs = row.pair
        measure = row.measure
        assert ours is not None and theirs is not None and measure is not None
        if call.parts.is_module:
            known = self._seen.get(_identity(ours, theirs))
            if known is not None and known.size >= measure.size:
                return measure._replace(agreement=known.agreement, expected=known.expected)
        least = rounding_of(ours.dtype, theirs.dtype)
        if kind is not None:  # at least one rounding of the coarser dtype
            least = min(least, self._growth * max(unit_of(ours.dtype), unit_of(theirs.dtype)))
        return self._result(ours, theirs, measure, least) if measure.size <= least else None

    def _result(self, ours: Row, theirs: Row, measure: Measure, allowance: float) -> Measure:
        """Decides an output; one that is explained shows which errors are usual by now."""
        weighed = self._decided(ours, theirs, measure, allowance)
        if weighed.agreement is Agreement.ROUNDING and not self._parted:
            self._ambient = max(self._ambient * AMBIENT_DECAY, min(weighed.size, AMBIENT_LIMIT * rounding_of(ours.dtype, theirs.dtype)))
        return weighed

    def _went_out(self, row: Measured, sources: _Sources) -> Measure:
        ours, theirs = row.pair
        measure = row.measure
        assert ours is not None and theirs is not None and measure is not None
        value = value_of(row)
        if value is None:
            return measure
        if sources.backward:
            expected = expected_gradient(sources.kind, sources.inputs, sources.came, sources.results, value)
        else:
            expected = expected_output(sources.kind, sources.inputs, sources.came, value)
        allowance = self._growth * expected
        if sources.kind is None or sources.incomplete:
            allowance = max(allowance, self._unrecorded(ours, theirs))
        return self._result(ours, theirs, measure, allowance)

    def _digits_count(self) -> bool:
        if self._digits is None:
            self._digits = digits_count(self._calls)
        return self._digits

    def _unrecorded(self, ours: Row, theirs: Row) -> float:
        """What may be rounding in a value of which not all is known that it was made from."""
        allowance = max(rounding_of(ours.dtype, theirs.dtype), self._growth * self._ambient)
        if ours.dtype != theirs.dtype:  # the coarser side rounds in every operation in between
            allowance = max(allowance, self._growth * max(unit_of(ours.dtype), unit_of(theirs.dtype)))
        return allowance

    def _decided(self, ours: Row, theirs: Row, measure: Measure, allowance: float) -> Measure:
        agreement = Agreement.ROUNDING if measure.size <= allowance else Agreement.DIFFERENT
        self._parted = self._parted or agreement is Agreement.DIFFERENT
        decided = measure._replace(agreement=agreement, expected=allowance)
        self._seen[_identity(ours, theirs)] = decided
        return decided

    def _sources(self, call: MeasuredCall, rows: Sequence[Measured], kind: Kind | None) -> _Sources:
        """What the outputs of a call are made from."""
        if call.parts.direction not in ("backward", "parameters_grad"):
            inputs = self._values(rows, "input")
            return _Sources(kind, False, inputs, self._values(rows, "parameters"), [], not inputs)
        if call.parts.direction == "parameters_grad":
            forward = self._module_calls.get(f"{call.parts.base}.forward")
            backward = self._module_calls.get(f"{call.parts.base}.backward")
            gradients = self._values(backward.rows, "input") if backward is not None else []
        else:
            forward = self._names.get(forward_of(call.name) or "")
            gradients = self._values(rows, "input")
        if forward is None:
            return _Sources(kind, True, gradients, [], [], True)
        came = [*self._values(forward.rows, "input"), *self._values(forward.rows, "parameters")]
        # The gradient of a parameter adds up over all uses, and what a module computes between its calls is not recorded.
        incomplete = call.parts.direction == "parameters_grad" or not gradients or not came
        return _Sources(kind, True, gradients, came, self._values(forward.rows, "output"), incomplete)

    def _values(self, rows: Sequence[Measured], role: str) -> list[Value]:
        found = [value_of(row) for row in rows if row.pair.target is not None and row.pair.target.role == role]
        values = [value for value in found if value is not None]
        if not self._sampled:
            return values
        return [v._replace(error=max(v.error, v.unit, self._ambient)) if v.error > 0 else v for v in values]


class _Sources(NamedTuple):
    """What the outputs of a call are made from.

    Attributes:
        kind: of the operation.
        backward: it is a backward entry, or gradients of parameters.
        inputs: what came into this entry; for a backward entry, gradients.
        came: parameters; for a backward entry inputs and parameters of its forward.
        results: for a backward entry the outputs of its forward.
        incomplete: not all of it was recorded.
    """

    kind: Kind | None
    backward: bool
    inputs: list[Value]
    came: list[Value]
    results: list[Value]
    incomplete: bool


def _without_fill(row: Measured) -> Measured:
    (ours, theirs), measure = row
    if ours is None or theirs is None or measure is None or measure.agreement < Agreement.ROUNDING or ours.shape != theirs.shape:
        return row
    lowest = ours.statistics[1]
    if type(lowest) is float and lowest > -6e4:  # no fill value
        return row
    if not (unit_of(ours.dtype) and unit_of(theirs.dtype) and both_filled(ours, theirs)):
        return row
    return Measured(row.pair, without_fill(ours, theirs, measure))


def _is_open(row: Measured) -> bool:
    """Whether it is a question of size: two floating-point tensors of one shape that differ by something finite."""
    (ours, theirs), measure = row
    if ours is None or theirs is None or measure is None or measure.agreement < Agreement.ROUNDING:
        return False
    if ours.kind != "tensor" or theirs.kind != "tensor" or ours.shape != theirs.shape or not math.isfinite(measure.size):
        return False
    return unit_of(ours.dtype) > 0 and unit_of(theirs.dtype) > 0


def _identity(ours: Row, theirs: Row) -> _Seen:
    """The same on both sides for the same value under another name; a view has the extremes of what it views, and nearly its norm."""
    return (*ours.statistics[:2], *theirs.statistics[:2], ours.value)
