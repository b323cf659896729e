"""Fifth stage: a word for every row. The rules are described, with their reasons, in docs/compare.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

from msprobe.comparison import thresholds
from msprobe.comparison.calls import Measured, MeasuredCall, execution_order, is_overwritten, overwritten_input, returns_memory
from msprobe.comparison.gradient_slots import REASON as SHIFTED
from msprobe.comparison.judging import absent, casts
from msprobe.comparison.judging.accepted import are_integers, is_accepted
from msprobe.comparison.judging.hints import hint
from msprobe.comparison.judging.weights import NOT_JUDGED
from msprobe.comparison.judging.words import explained
from msprobe.comparison.match import RowPair
from msprobe.comparison.measure import Agreement, Measure, is_fill, slight_of
from msprobe.comparison.names import forward_of, gradient_of
from msprobe.comparison.rows import Row

Mode = Literal["statistics", "tensor", "md5", "structure"]
Result = Literal["pass", "warning", "error", "unmatched", "not compared"]

RESULTS: tuple[Result, ...] = ("pass", "warning", "error", "unmatched", "not compared")


class Verdict(NamedTuple):
    """The cells `Result` and, as a list, `Err_message`."""

    result: Result
    messages: tuple[str, ...]


_PASS = Verdict("pass", ())
_passing: Callable[..., list[int]] | None
try:
    from msprobe.comparison.judging._verdicts import passing as _passing
except ImportError:  # installed without a compiler
    _passing = None
_SAME, _ROUNDING, _DIFFERENT = Agreement.SAME, Agreement.ROUNDING, Agreement.DIFFERENT
_TARGET_ONLY = Verdict("unmatched", ("unmatched: the golden dump has no such value.",))
_GOLDEN_ONLY = Verdict("unmatched", ("unmatched: the target dump has no such value.",))

# Texts of the existing tool, word for word.
NONFINITE = "error: There is nan/inf/-inf in the maximum or minimum value of NPU."
THOUSANDTH = "error: The input/parameters of One Thousandth Err Ratio > 0.9 while the output < 0.6."
NORM = "error: The NormRelativeErr of output is greater than 0.5."
REQUIRES_GRAD = "error: The Required_Grad of NPU and Bench are inconsistent"
SCALAR = "error: The scalar parameters of NPU and Bench are inconsistent."
DTYPE = "error: The dtype of NPU and Bench are inconsistent."
SHAPE = "error: The shape of NPU and Bench are inconsistent."
COSINE = "warning: The input/parameters of Cosine > 0.9, and input/parameters - output > 0.1"
NORM_GROWTH = "warning: The norm relative error of output is 10 times that of input."
CRC = "error: The CRC-32 value of NPU differs from that of the bench."

# Ours.
OUTPUT = "error: The output differs although the inputs and parameters agree."
OUTPUT_SLIGHT = "warning: The output differs by more than rounding although the inputs and parameters agree."
FOLLOWS = "follows: "
OUTPUT_FOLLOWS = "warning: follows: The output differs, as inputs or parameters do."
INPUT = "error: The input differs although no call before it gave a difference."
INPUT_FOLLOWS = "warning: follows: The input differs, as something before it does."
INPUT_OVERWRITTEN = "warning: The input differs; the call overwrites it, so it may never have held a value."
PARAMETER = "error: The parameter differs."
SAVED = "error: The saved value differs."
SAVED_SLIGHT = "warning: The saved value differs by more than rounding."
SAVED_FOLLOWS = "warning: follows: The gradient of the saved value differs, as something that came before it does."
GRADIENT = "error: The gradient differs although everything before it agrees."
GRADIENT_FOLLOWS = "warning: follows: The gradient differs, as values before it do."
CHECKSUM_FOLLOWS = "follows: Something before it differs."
STATISTICS = "error: There is no checksum of it, and its Max, Min, Mean or Norm differs."
FILL = "warning: Masked positions hold another fill value on each side; of the others only the maximum was compared."
FILL_ELSEWHERE = "warning: Each side masks other positions, or only one has NaN or infinity at a position that none masks."
FILL_OF_ELEMENTS = "warning: Masked positions hold another fill value on each side; the others were compared."
ACCEPTED = "accepted: another floating-point dtype on each side."
INTEGERS = "accepted: integers of another width on each side."
MEMORY = "not compared: the call returns uninitialised memory."


@dataclass(frozen=True)
class _Context:
    """What the judgement of one call's rows needs to know beyond the row."""

    mode: Mode
    call: MeasuredCall
    came_in: Agreement  # the worst of all that the call's outputs depend on
    explained: bool  # a difference was seen before this call
    starts: bool  # the first difference starts here
    thousandth: float
    cosine: float
    norm: float
    accept_dtype: bool
    two_frameworks: bool


def judge(
    calls: Sequence[MeasuredCall], mode: Mode, starts: Collection[str], accept_dtype: bool = False, two_frameworks: bool = False
) -> list[tuple[Verdict, ...]]:
    """Judges all rows.

    Args:
        calls: the measured calls in the order of the report.
        mode: which rules hold.
        starts: names of the calls where the first difference starts; what differs there beyond rounding is an error.
        accept_dtype: a change from one floating-point dtype to another is no error by itself.
        two_frameworks: equal integers of two widths are no error.

    Returns:
        For each call the verdicts of its rows, in their order.
    """
    explained = _explained(calls)
    by_name = _ByName(calls)
    accepts = accept_dtype, two_frameworks
    if _passing is None:
        return [_judge_call(call, mode, by_name, explained, starts, accepts) for call in calls]
    passing = _passing([*calls], mode != "md5")
    return [
        all_pass(rows) if rows >= 0 else _judge_call(call, mode, by_name, explained, starts, accepts)
        for call, rows in zip(calls, passing, strict=True)
    ]


@cache
def all_pass(rows: int) -> tuple[Verdict, ...]:
    """The verdicts of a call of so many rows that all pass, none of which was lost; always the same object."""
    return (_PASS,) * rows


class _ByName:
    """The calls by their names; made when one is asked for."""

    def __init__(self, calls: Sequence[MeasuredCall]) -> None:
        self._calls = calls
        self._by_name: dict[str, MeasuredCall] | None = None

    def get(self, name: str) -> MeasuredCall | None:
        if self._by_name is None:
            self._by_name = {call.name: call for call in self._calls}
        return self._by_name.get(name)


def _explained(calls: Sequence[MeasuredCall]) -> set[str]:
    """Names of the calls before which, in execution order, something differed by more than rounding."""
    names: set[str] = set()
    if not any(_DIFFERENT in (call.inputs, call.parameters, call.outputs) for call in calls):
        return names
    seen = False
    for call in execution_order(calls):
        if seen:
            names.add(call.name)
        elif call.matched:
            seen = _DIFFERENT in (call.inputs, call.parameters, call.outputs)
    return names


def _judge_call(
    call: MeasuredCall, mode: Mode, by_name: _ByName, explained: set[str], starts: Collection[str], accepts: tuple[bool, bool]
) -> tuple[Verdict, ...]:
    context: _Context | None = None
    verdicts: list[Verdict] = []
    values = mode != "md5"
    for (ours, theirs), measure in call.rows:
        if measure is None or ours is None or theirs is None:
            verdicts.append(_GOLDEN_ONLY if ours is None else _TARGET_ONLY)
            continue
        agreement = measure.agreement
        if ours.requires_grad == theirs.requires_grad and ours.dtype == theirs.dtype and ours.shape == theirs.shape:
            # Two devices are SAME and still two scalars.
            if agreement is _SAME and (ours.kind == "tensor" or ours.value == theirs.value):
                verdicts.append(_PASS)
                continue
            # What no rule for a difference within rounding has anything to say to.
            if agreement is _ROUNDING and values and ours.kind == theirs.kind == "tensor" and not measure.reason and not measure.filled:
                highest, lowest = ours.statistics[:2]
                if type(highest) is type(lowest) is float and highest - highest == lowest - lowest == 0.0:
                    verdicts.append(_PASS)
                    continue
        if context is None:
            context = _context(call, mode, by_name, call.name in explained, call.name in starts, accepts)
        verdicts.append(_judge_row(ours, theirs, measure, context))
    return tuple(verdicts)


def _context(call: MeasuredCall, mode: Mode, by_name: _ByName, explained: bool, starts: bool, accepts: tuple[bool, bool]) -> _Context:
    came_in = max(call.inputs, call.parameters)
    forward = by_name.get(forward_of(call.name) or "")
    if forward is not None:
        # A backward pass depends on what its forward kept: inputs, parameters and outputs.
        came_in = max(came_in, forward.inputs, forward.parameters, forward.outputs)
    if call.parts.direction == "parameters_grad" and explained:
        came_in = Agreement.DIFFERENT  # gradients add up over all uses of the parameter
    if call.parts.direction == "debug" and explained and by_name.get(gradient_of(call.name) or "") is not None:
        came_in = Agreement.DIFFERENT  # it flowed through what was computed from the values, and from the gradients behind it
    sources = [measure for (ours, _), measure in call.rows if measure is not None and ours is not None and _is_source(ours)]
    return _Context(
        mode,
        call,
        came_in,
        explained,
        starts,
        thousandth=min((m.thousandth for m in sources if m.thousandth is not None), default=1.0),
        cosine=min((m.cosine for m in sources if m.cosine is not None), default=1.0),
        norm=max((m.norm_relative for m in sources if m.norm_relative is not None), default=0.0),
        accept_dtype=accepts[0],
        two_frameworks=accepts[1],
    )


def _is_source(row: Row) -> bool:
    return row.role == "input" or row.role == "parameters"


def _judge_row(ours: Row, theirs: Row, measure: Measure, context: _Context) -> Verdict:
    if measure.reason == SHIFTED:  # neither shape nor dtype of the two says anything
        return Verdict("not compared", (f"not compared: {SHIFTED}",))
    if absent.stands_alone(context.call, RowPair(ours, theirs)):
        return Verdict("unmatched", (f"unmatched: {absent.said(measure)}",))
    if context.mode == "md5":
        return _judge_checksum(measure, context)
    is_output = ours.role == "output"
    errors: list[str] = []
    warnings: list[str] = []
    if _is_nonfinite(ours) and not _is_nonfinite(theirs) and not measure.filled:
        errors.append(NONFINITE)
    if is_output:
        _reference_output_rules(measure, context, errors, warnings)
    if ours.requires_grad != theirs.requires_grad and "N/A" not in (ours.requires_grad, theirs.requires_grad):
        errors.append(REQUIRES_GRAD)
    accepted = context.accept_dtype and is_accepted(ours, theirs)
    if ours.role == "input" and not accepted and _scalars_differ(ours, theirs):
        errors.append(SCALAR)
    integers = context.two_frameworks and measure.agreement is Agreement.SAME and are_integers(ours, theirs)
    if ours.dtype != theirs.dtype and not accepted and not integers:
        errors.append(DTYPE)
    if ours.shape != theirs.shape:
        errors.append(SHAPE)
    if measure.agreement is Agreement.UNKNOWN:
        reason = (f"not compared: {measure.reason}",)
        return Verdict("error", (*errors, *reason)) if errors else Verdict("not compared", reason)
    ruled = bool(errors or warnings)  # by a rule of the existing tool: its text stands alone
    notes: list[str] = []
    judged = measure.reason != NOT_JUDGED
    if not judged and not errors:
        word: Result = "not compared" if measure.agreement is Agreement.DIFFERENT else "warning"
        return Verdict(word, (f"{word}: {NOT_JUDGED}.", *filter(None, (_size(measure), casts.said(ours, theirs)))))
    if measure.agreement is Agreement.DIFFERENT and not errors:
        message = _value_rule(ours, theirs, measure, context)
        if message == MEMORY:
            return Verdict("not compared", (message,))
        if message.startswith("error"):
            errors.append(message)
            notes = [_size(measure)]
        elif not ruled or FOLLOWS in message:
            warnings.append(message)
            notes = [] if ruled else [_size(measure)]
    if measure.filled:
        warnings.append(_of_fill(measure))
    cast = casts.said(ours, theirs) if measure.agreement is Agreement.DIFFERENT and _is_source(ours) else ""
    if DTYPE in errors:
        if cast and judged and (context.starts or not context.explained or ours.role == "parameters"):
            errors.append(PARAMETER if ours.role == "parameters" else INPUT)
        notes = [_size(measure)]
    elif errors and measure.agreement is Agreement.DIFFERENT and SHAPE not in errors:
        notes.append(hint(ours, theirs, measure))
    notes.append(cast)
    if measure.reason:  # what was measured contradicts what was recorded
        notes.append(measure.reason)
    if not (errors or warnings):
        if measure.reason:
            return Verdict("not compared", (f"not compared: {measure.reason}",))
        if integers:
            return Verdict("pass", (INTEGERS,))
        return Verdict("pass", (ACCEPTED, *filter(None, [_size(measure)]))) if accepted else _PASS
    return Verdict("error" if errors else "warning", (*errors, *warnings, *filter(None, notes)))


def _of_fill(measure: Measure) -> str:
    if math.isinf(measure.size):
        return FILL_ELSEWHERE
    return FILL if measure.thousandth is None else FILL_OF_ELEMENTS


def _size(measure: Measure) -> str:
    how_much = explained(measure)
    return f"size: {how_much}." if how_much else ""


def _judge_checksum(measure: Measure, context: _Context) -> Verdict:
    if measure.agreement is Agreement.UNKNOWN:
        return Verdict("not compared", (f"not compared: {measure.reason}",))
    if measure.agreement is not Agreement.DIFFERENT:
        return _PASS
    if returns_memory(context.call.parts):
        return Verdict("not compared", (MEMORY,))
    said = STATISTICS if measure.reason else CRC
    return Verdict("error", (said, CHECKSUM_FOLLOWS) if _only_follows(context) else (said,))


def _only_follows(context: _Context) -> bool:
    """Whether something before the call, or what came into it, differs."""
    return (context.explained or context.came_in is Agreement.DIFFERENT) and not context.starts


def _reference_output_rules(measure: Measure, context: _Context, errors: list[str], warnings: list[str]) -> None:
    """The existing tool's rules for outputs, each on the output that breaks it."""
    if returns_memory(context.call.parts) or context.call.outputs is Agreement.UNKNOWN or context.call.parts.direction == "debug":
        return  # what was saved by hand has no inputs that the rules could hold it against
    if context.mode == "tensor":
        _tensor_rules(measure, context, errors, warnings)
        return
    norm = measure.norm_relative
    if norm is None or measure.agreement is not Agreement.DIFFERENT:
        return
    if context.norm < thresholds.NORM_INPUT and norm > thresholds.NORM_OUTPUT:
        errors.append(NORM)
    if math.isfinite(norm):
        limit = thresholds.NORM_FROM_EQUAL if context.norm == 0 else context.norm * thresholds.NORM_GROWTH
        if norm > limit:
            warnings.append(NORM_GROWTH)


def _tensor_rules(measure: Measure, context: _Context, errors: list[str], warnings: list[str]) -> None:
    if measure.agreement is not Agreement.DIFFERENT:
        return
    thousandth, cosine = measure.thousandth, measure.cosine
    if thousandth is not None and context.thousandth > thresholds.THOUSANDTH_INPUT and thousandth < thresholds.THOUSANDTH_OUTPUT:
        errors.append(THOUSANDTH)
    if cosine is not None and context.cosine > thresholds.COSINE_INPUT and context.cosine - cosine > thresholds.COSINE_DROP:
        warnings.append(COSINE)


def _value_rule(ours: Row, theirs: Row, measure: Measure, context: _Context) -> str:
    """The message for a value that differs by more than rounding."""
    if ours.role == "parameters":
        return PARAMETER
    if ours.role == "input":
        written = overwritten_input(context.call.parts)
        if written is not None and is_overwritten(ours, written):
            return INPUT_OVERWRITTEN
        return INPUT if context.starts or not context.explained else INPUT_FOLLOWS
    if returns_memory(context.call.parts):
        return MEMORY
    if ours.role == "parameters_grad":
        return GRADIENT_FOLLOWS if context.came_in is Agreement.DIFFERENT else GRADIENT
    if context.came_in is Agreement.DIFFERENT and context.call.parts.direction == "debug":
        return SAVED_FOLLOWS
    if context.came_in is Agreement.DIFFERENT or context.call.outputs is Agreement.UNKNOWN:
        return OUTPUT_FOLLOWS
    bound = slight_of(ours.dtype, theirs.dtype)
    if context.call.parts.direction == "debug":
        return SAVED if context.starts or bound == 0 or measure.size > bound else SAVED_SLIGHT
    if context.starts or measure.size > bound > 0:
        return OUTPUT
    if bound == 0:  # integers, bool, plain values: a rounded input may move an argmax, equal inputs may not
        return OUTPUT_SLIGHT if context.came_in is Agreement.ROUNDING else OUTPUT
    return OUTPUT_SLIGHT


def _is_nonfinite(row: Row) -> bool:
    return any(type(value) is float and not math.isfinite(value) for value in row.statistics[:2])


def _scalars_differ(ours: Row, theirs: Row) -> bool:
    if ours.kind != theirs.kind or ours.kind not in ("scalar", "opaque") or ours.shape != theirs.shape:
        return False
    a: Any = ours.value
    b: Any = theirs.value
    if is_fill(a) and is_fill(b):
        return False
    return bool(a != b and not (a != a and b != b)) and not (isinstance(a, list | dict) and repr(a) == repr(b))  # [NaN] is no other [NaN]


def count(verdicts: Sequence[Sequence[Verdict]]) -> dict[Result, int]:
    """How many rows got each word."""
    counts: dict[Result, int] = dict.fromkeys(RESULTS, 0)
    for group in verdicts:
        for verdict in group:
            counts[verdict.result] += 1
    return counts


__all__ = ["RESULTS", "Measured", "Mode", "Result", "Verdict", "count", "judge"]
