"""The stage between measuring and judging: every difference is weighed against what rounding explains.

A difference no larger than the allowance is rounding, whatever its size; a larger one is not. The error of the inputs counts as far as it
is itself explained: what follows from a real difference stays a difference. One value has one verdict: what a call takes in was
put out by another call, and has been weighed there. Calls that agree in every bit are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from msprobe.comparison.calls import OVERWRITTEN, UNINITIALISED, Measured, MeasuredCall, execution_order, measured_anew
from msprobe.comparison.fill_values import both_filled
from msprobe.comparison.judging.absent import excuse
from msprobe.comparison.judging.backward import expected_gradient, passed_or_not
from msprobe.comparison.judging.expected import expected_output
from msprobe.comparison.judging.masks import without_fill
from msprobe.comparison.judging.operations import Kind, kind_of
from msprobe.comparison.judging.reordered import LAST_DIGITS, digits_count, is_reordered
from msprobe.comparison.judging.steps import APIS as STEPS
from msprobe.comparison.judging.steps import expected_step
from msprobe.comparison.judging.values import UNIT_ROUNDOFF, Value, unit_of, value_of
from msprobe.comparison.judging.weights import identity_of, weights_of
from msprobe.comparison.measure import Agreement, Measure, rounding_of
from msprobe.comparison.names import forward_of
from msprobe.comparison.rows import Row
from msprobe.comparison.thresholds import AMBIENT_DECAY, AMBIENT_LIMIT, GROWTH, GROWTH_SAMPLED

_Seen = tuple[object, ...]
_NARROW = UNIT_ROUNDOFF["float16"]
_SAME, _ROUNDING = Agreement.SAME, Agreement.ROUNDING
_AGREEMENTS = (Agreement.UNKNOWN, Agreement.ROUNDING)
_weigh: Callable[..., tuple[Any, ...] | None] | None
try:
    from msprobe.comparison.judging._weighing import weigh as _weigh
except ImportError:  # installed without a compiler
    _weigh = None
_new = tuple.__new__  # what makes a NamedTuple, without the call in between that Python writes for it


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
        self._weights: set[_Seen] | None = None
        self._unjudged: frozenset[_Seen] | None = None
        self._growth = GROWTH_SAMPLED if sampled else GROWTH
        self._names = {call.name: call for call in calls}
        self._module_calls: dict[str, MeasuredCall] = {}
        self._seen: dict[_Seen, Measure] = {}
        self._coarsest = max((_coarsest(call) for call in calls if call.dtype_differs), default=0.0)
        self._ambient = 0.0
        self._parted = False  # from here on small differences may follow from a real one, and excuse nothing

    def call(self, call: MeasuredCall) -> MeasuredCall:
        parts = call.parts
        if call.matched and (
            max(call.inputs, call.parameters, call.outputs) > _SAME
            or any(row.measure is not None and row.measure.agreement > _SAME for row in call.rows)
        ):
            call = self._weighed(call)
            self._names[call.name] = call
        if parts.is_module and parts.direction != "parameters_grad":
            self._module_calls[f"{parts.base}.{parts.direction}"] = call
        return call

    def _weighed(self, call: MeasuredCall) -> MeasuredCall:
        return self._at_a_glance(call) or self._looked_at(call)

    def _at_a_glance(self, call: MeasuredCall) -> MeasuredCall | None:
        """`_looked_at` of a call in which every difference is rounding whatever the inputs brought; None for any other."""
        pair, parts, rows, _, _, _, grad_differs, dtype_differs = call
        if _weigh is None or parts.api in OVERWRITTEN or parts.api in UNINITIALISED:
            return None
        numbers = (self._growth, self._ambient, AMBIENT_DECAY, AMBIENT_LIMIT, LAST_DIGITS if self._sampled else 0.0)
        listed = kind_of(parts) is not None
        found = _weigh(rows, self._seen, _bounds, _AGREEMENTS, numbers, parts.is_module, listed, self._parted)
        if found is None:
            return None
        rows, inputs, parameters, outputs, self._ambient = found
        return _new(MeasuredCall, (pair, parts, rows, inputs, parameters, outputs, grad_differs, dtype_differs))

    def _looked_at(self, call: MeasuredCall) -> MeasuredCall:
        rows = list(call.rows)
        outputs: list[int] = []
        kinds_differ = False
        is_backward = call.parts.direction == "backward"
        for index, row in enumerate(rows):  # what came in first: it explains what goes out
            pair, measure = row
            ours, theirs = pair
            if ours is None or theirs is None or measure is None:
                continue
            if ours.kind != theirs.kind:
                kinds_differ = True
                continue
            if measure.agreement < _ROUNDING or ours.shape != theirs.shape:
                continue
            lowest = ours.statistics[1]
            if type(lowest) is not float or lowest <= -6e4:  # it may be a fill value
                rows[index] = row = _without_fill(row)
                measure = row.measure
                assert measure is not None
            # Whether it is a question of size: two floating-point tensors of one shape that differ by something finite.
            if ours.kind != "tensor" or measure.agreement < _ROUNDING or measure.size - measure.size != 0.0:
                continue
            bounds = _bounds(ours.dtype, theirs.dtype)
            if not bounds.floating:
                continue
            role = ours.role
            if role == "input" or role == "parameters":
                rows[index] = _new(Measured, (pair, self._came_in(ours, theirs, measure, bounds, is_backward)))
            else:
                outputs.append(index)
        if outputs:
            kind = kind_of(call.parts)
            sources: _Sources | None = None
            if kind is Kind.KINKED and self._sampled and is_backward:
                self._passed_or_not(call)
            for index in outputs:
                pair, measure = row = rows[index]
                ours, theirs = pair
                assert ours is not None and theirs is not None and measure is not None
                decided = self._at_once(call, ours, theirs, measure, kind)
                if decided is None:
                    sources = sources or self._sources(call, rows, kind)
                    least = self._growth * expected_step(rows, row) if call.parts.api in STEPS else 0.0
                    decided = self._went_out(row, sources, least)
                rows[index] = _new(Measured, (pair, decided))
        if kinds_differ:
            measures = excuse(call.parts, rows, [row.measure for row in rows])
            rows = [_new(Measured, (row.pair, measure)) for row, measure in zip(rows, measures, strict=True)]
        return measured_anew(call, rows)

    def _came_in(self, ours: Row, theirs: Row, measure: Measure, bounds: _Bounds, is_backward: bool) -> Measure:
        size, identity = measure.size, _identity(ours, theirs)
        known = self._seen.get(identity)
        if known is not None and known.size >= size:
            return _replaced(measure, known.agreement, known.expected)
        if self._sampled and size < LAST_DIGITS and is_reordered(ours, theirs, size) and self._digits_count():
            return self._decided(identity, measure, 0.0)
        if ours.role != "input" or (size > bounds.rounding and identity in self._read_weights()):
            allowance = bounds.rounding  # weights are read: no error came along, but for that of training
            if size > allowance and ours.dtype != theirs.dtype and self._may_be_trained_apart(ours, theirs):
                allowance = max(allowance, GROWTH * passed_or_not(bounds.unit))
        else:
            allowance = self._unrecorded(ours, theirs, bounds, is_backward)
        return self._decided(identity, measure, allowance)

    def _read_weights(self) -> set[_Seen]:
        """The parameters of modules, by which a call inside is known to take in a weight."""
        if self._weights is None:
            pairs = (row.pair for call in self._calls for row in call.rows)
            self._weights = {_identity(a, b) for a, b in pairs if a is not None and b is not None and a.role == "parameters"}
        return self._weights

    def _may_be_trained_apart(self, ours: Row, theirs: Row) -> bool:
        if self._unjudged is None:
            self._unjudged = weights_of(self._calls).unjudged
        return identity_of(ours, theirs) in self._unjudged

    def _at_once(self, call: MeasuredCall, ours: Row, theirs: Row, measure: Measure, kind: Kind | None) -> Measure | None:
        """The weighed measure where no expectation is needed to tell: it is known already, or smaller than any expectation."""
        identity = _identity(ours, theirs)
        if call.parts.is_module:
            known = self._seen.get(identity)
            if known is not None and known.size >= measure.size:
                return _replaced(measure, known.agreement, known.expected)
        bounds = _bounds(ours.dtype, theirs.dtype)
        least = bounds.rounding
        if kind is not None:  # at least one rounding of the coarser dtype
            least = min(least, self._growth * bounds.unit)
        return self._result(identity, bounds, measure, least) if measure.size <= least else None

    def _result(self, identity: _Seen, bounds: _Bounds, measure: Measure, allowance: float) -> Measure:
        """Decides an output; one that is explained shows which errors are usual by now."""
        weighed = self._decided(identity, measure, allowance)
        if weighed.agreement is _ROUNDING and not self._parted:
            self._ambient = max(self._ambient * AMBIENT_DECAY, min(weighed.size, AMBIENT_LIMIT * bounds.rounding))
        return weighed

    def _went_out(self, row: Measured, sources: _Sources, least: float) -> Measure:
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
        bounds = _bounds(ours.dtype, theirs.dtype)
        if sources.kind is None or sources.incomplete:
            allowance = max(allowance, self._unrecorded(ours, theirs, bounds, sources.backward))
        return self._result(_identity(ours, theirs), bounds, measure, max(allowance, least))

    def _passed_or_not(self, call: MeasuredCall) -> None:
        """Four numbers hardly show which elements of a gradient relu lets pass; those behind it carry that error all the same. In wide
        dtypes it is too small to matter."""
        forward = self._names.get(forward_of(call.name) or "")
        came = self._values(forward.rows, "input") if forward is not None else []
        if came and came[0].unit >= _NARROW and came[0].error > 0.0 and not self._parted:
            self._ambient = max(self._ambient, passed_or_not(came[0].error))

    def _digits_count(self) -> bool:
        if self._digits is None:
            self._digits = digits_count(self._calls)
        return self._digits

    def _unrecorded(self, ours: Row, theirs: Row, bounds: _Bounds, is_gradient: bool) -> float:
        """What may be rounding in a value of which not all is known that it was made from."""
        allowance = max(bounds.rounding, self._growth * self._ambient)
        if ours.dtype != theirs.dtype:  # the coarser side rounds in every operation in between
            allowance = max(allowance, self._growth * bounds.unit)
        if is_gradient and self._coarsest and not self._parted:  # a relu may be among what was not recorded
            usual = passed_or_not(self._coarsest)
            allowance = max(allowance, GROWTH * usual)
            self._ambient = max(self._ambient, usual) if self._sampled else self._ambient
        return allowance

    def _decided(self, identity: _Seen, measure: Measure, allowance: float) -> Measure:
        if measure.size <= allowance:
            agreement = _ROUNDING
        else:
            agreement = Agreement.DIFFERENT
            self._parted = True
        decided = self._seen[identity] = _replaced(measure, agreement, allowance)
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


def _coarsest(call: MeasuredCall) -> float:
    """Unit roundoff of the coarsest narrow dtype that one side has where the other has another one."""
    pairs = [
        pair for pair, _ in call.rows if pair.target is not None and pair.golden is not None and pair.target.dtype != pair.golden.dtype
    ]
    return max(
        (unit for ours, theirs in pairs if ours and theirs and (unit := _bounds(ours.dtype, theirs.dtype).unit) >= _NARROW), default=0.0
    )


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


class _Bounds(NamedTuple):
    """Of two dtypes: whether both are floating-point, the larger unit roundoff, and thresholds.ROUNDING."""

    floating: bool
    unit: float
    rounding: float


@cache
def _bounds(ours: str, theirs: str) -> _Bounds:
    units = unit_of(ours), unit_of(theirs)
    return _Bounds(min(units) > 0, max(units), rounding_of(ours, theirs))


def _replaced(measure: Measure, agreement: Agreement, expected: float) -> Measure:
    """`measure._replace(agreement=..., expected=...)`, several times as fast."""
    cells, _, size, reason, norm_relative, cosine, thousandth, max_abs, lost, _, filled = measure
    return _new(Measure, (cells, agreement, size, reason, norm_relative, cosine, thousandth, max_abs, lost, expected, filled))


def _identity(ours: Row, theirs: Row) -> _Seen:
    """The same on both sides for the same value under another name; a view has the extremes of what it views, and nearly its norm."""
    a, b = ours.statistics, theirs.statistics
    return (a[0], a[1], b[0], b[1], ours.value)
