"""What the measured rows say about each call, and the order in which calls ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msprobe.comparison.match import CallPair, RowPair
from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.names import EntryName, gradient_of, parse
from msprobe.comparison.rows import Row

UNINITIALISED = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_with_format"})
"""APIs whose result is memory as it was found; its values mean nothing."""

_FILLED = [
    "copy_",
    "fill_",
    "zero_",
    "normal_",
    "uniform_",
    "random_",
    "bernoulli_",
    "exponential_",
    "geometric_",
    "log_normal_",
    "cauchy_",
]
_RECEIVED = [
    "recv",
    "irecv",
    "broadcast",
    "all_gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_gather_into_tensor",
    "all_to_all",
    "all_to_all_single",
    "_all_gather_base",
    "_reduce_scatter_base",
]

OVERWRITTEN: dict[str, str] = {
    **dict.fromkeys(_FILLED, "input.0"),
    **dict.fromkeys(_RECEIVED, "input.0"),
    "__setitem__": "input.0",
    "gather": "input.1",
    "batch_isend_irecv": "input",
}
"""API -> the input it writes into; what that held before may be memory as it was found."""

_KEEPS_SOME = frozenset({"__setitem__", "batch_isend_irecv"})
"""Of these the output still holds part of what the overwritten input held."""


_new = tuple.__new__  # what makes a NamedTuple, without the call in between that Python writes for it


class Measured(NamedTuple):
    """A pair of rows and its measurement; None where one side has no such row."""

    pair: RowPair
    measure: Measure | None


class MeasuredCall(NamedTuple):
    """A call with its measured rows. The three agreements are those of the worst row of a role; UNKNOWN where there is none.

    `inputs` leaves out what the call overwrites. `grad_differs`: requires_grad of a value differs, in a forward call; `dtype_differs`: a
    tensor has another dtype on each side.
    """

    pair: CallPair
    parts: EntryName
    rows: tuple[Measured, ...]
    inputs: Agreement
    parameters: Agreement
    outputs: Agreement
    grad_differs: bool = False
    dtype_differs: bool = False

    @property
    def name(self) -> str:
        return self.pair.name

    @property
    def matched(self) -> bool:
        return self.pair.target is not None and self.pair.golden is not None


def summarise(pair: CallPair, measures: Sequence[Measure | None]) -> MeasuredCall:
    """Joins a pair of calls with the measures of its rows, in their order."""
    call = pair.target or pair.golden
    parts = call.parts if call is not None else parse("")
    grad_differs = dtype_differs = False
    rows: list[Measured] = []
    for row, measure in zip(pair.rows, measures, strict=True):
        rows.append(_new(Measured, (row, measure)))
        ours, theirs = row
        if ours is theirs or measure is None or ours is None or theirs is None:
            continue
        if ours.requires_grad != theirs.requires_grad:
            grad_differs = grad_differs or requires_grad_differs(row)
        if ours.dtype != theirs.dtype:
            dtype_differs = dtype_differs or dtypes_differ(row)
    grad_differs = grad_differs and parts.direction == "forward"
    return _new(MeasuredCall, (pair, parts, tuple(rows), *_agreements(parts, rows), grad_differs, dtype_differs))


def measured_anew(call: MeasuredCall, rows: Sequence[Measured]) -> MeasuredCall:
    """The call with other measures of the same rows; a row that was measured still is."""
    pair, parts, _, _, _, _, grad_differs, dtype_differs = call
    return _new(MeasuredCall, (pair, parts, tuple(rows), *_agreements(parts, rows), grad_differs, dtype_differs))


def _agreements(parts: EntryName, rows: Sequence[Measured]) -> tuple[Agreement, Agreement, Agreement]:
    """Those of inputs, parameters and outputs."""
    written = overwritten_input(parts)
    ignored_outputs = returns_memory(parts)
    inputs = parameters = outputs = Agreement.UNKNOWN
    for (ours, theirs), measure in rows:
        if measure is None or ours is None or theirs is None:
            continue
        role, agreement = ours.role, measure.agreement
        if role == "input":
            if agreement > inputs and (written is None or not is_overwritten(ours, written)):
                inputs = agreement
            elif agreement is Agreement.DIFFERENT and parts.api in _KEEPS_SOME:
                ignored_outputs = True
        elif role == "parameters":
            parameters = agreement if agreement > parameters else parameters
        elif agreement > outputs:
            outputs = agreement
    return inputs, parameters, Agreement.UNKNOWN if ignored_outputs else outputs


def requires_grad_differs(row: RowPair) -> bool:
    """Whether both sides recorded requires_grad, and not the same."""
    ours, theirs = row
    if ours is None or theirs is None or ours.requires_grad == theirs.requires_grad:
        return False
    return ours.requires_grad != "N/A" and theirs.requires_grad != "N/A"


def dtypes_differ(row: RowPair) -> bool:
    """Whether the two are tensors of different dtypes."""
    ours, theirs = row
    return ours is not None and theirs is not None and ours.dtype != theirs.dtype and ours.kind == theirs.kind == "tensor"


def inputs_partly_unknown(call: MeasuredCall) -> bool:
    """Whether some input that the call does not overwrite could not be compared, or only by Max and Min, which leave much open (bool)."""
    written = overwritten_input(call.parts)
    return any(
        measure is not None and ours is not None and ours.role == "input" and ours.key != written and _leaves_open(ours, measure)
        for (ours, _), measure in call.rows
    )


def _leaves_open(row: Row, measure: Measure) -> bool:
    if measure.agreement is Agreement.UNKNOWN:
        return True
    highest, lowest, mean, norm = row.statistics
    return row.kind == "tensor" and row.data_name is None and row.md5 is None and mean is norm is None and highest is not lowest


def returns_memory(parts: EntryName) -> bool:
    """Whether the call returns uninitialised memory."""
    return parts.api in UNINITIALISED and parts.direction == "forward"


def overwritten_input(parts: EntryName) -> str | None:
    """Key of the input that the call writes into, None for most calls."""
    return OVERWRITTEN.get(parts.api) if parts.direction == "forward" else None


def is_overwritten(row: Row, written: str) -> bool:
    """Whether a row is the input (or part of it) that the call writes into."""
    return row.kind == "tensor" and (row.key == written or row.key.startswith(written + "."))


def execution_order(calls: Sequence[MeasuredCall]) -> list[MeasuredCall]:
    """The calls in the order in which their results came to be.

    dump.json has that order, but for one thing: the gradients of a module's parameters may stand before the module's own backward entry,
    which tells whether what came into that backward pass agreed. They are moved behind it.

    debug.json has gradients beside the values they belong to; they came after all values, the last saved value's first.
    """
    if calls and all(call.parts.direction == "debug" for call in calls):
        return _values_then_gradients(calls)
    last: dict[str, int] = {}
    for index, call in enumerate(calls):
        if call.parts.is_module and call.parts.direction == "backward":
            last[call.parts.base] = index
    ordered: list[MeasuredCall] = []
    waiting: dict[str, list[MeasuredCall]] = {}
    for index, call in enumerate(calls):
        base, direction = call.parts.base, call.parts.direction
        if direction == "parameters_grad" and last.get(base, -1) > index:
            waiting.setdefault(base, []).append(call)
            continue
        ordered.append(call)
        if waiting and direction == "backward" and call.parts.is_module:
            ordered.extend(waiting.pop(base, ()))
    return ordered


def _values_then_gradients(calls: Sequence[MeasuredCall]) -> list[MeasuredCall]:
    values: list[MeasuredCall] = []
    gradients: list[MeasuredCall] = []
    names: set[str] = set()
    for call in calls:
        (gradients if gradient_of(call.name) in names else values).append(call)
        names.add(call.name)
    return [*values, *reversed(gradients)]
