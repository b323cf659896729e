"""Why rows are `error` or `unmatched`, or were lost, in counts and one example each: what is said when no value differs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msprobe.comparison.calls import Measured, MeasuredCall, dtypes_differ, requires_grad_differs
from msprobe.comparison.judge import DTYPE, SCALAR, Verdict, all_pass
from msprobe.comparison.judging.absent import stands_alone
from msprobe.comparison.judging.accepted import is_accepted
from msprobe.comparison.judging.weights import NOT_JUDGED
from msprobe.comparison.measure import CONTRADICTION

ONLY_DTYPE = "if that is meant, --accept-dtype (accept_dtype=True) makes it no error"
"""Advice where a dtype that differs is all that makes the exit code 1."""


class Reason(NamedTuple):
    """How many rows, and the first of them. `one` and `many`: what is said of one row and of several."""

    rows: int
    one: str
    many: str
    example: str

    def __str__(self) -> str:
        return f"{self.rows} {self.one if self.rows == 1 else self.many} (first: {self.example})"


_WORDS = {
    "dtype": ("row has another dtype on each side", "rows have another dtype on each side"),
    "number": ("row holds another kind of number on each side", "rows hold another kind of number on each side"),
    "requires_grad": ("row differs in requires_grad", "rows differ in requires_grad"),
    "file": ("tensor file could not be read", "tensor files could not be read"),
    "contradiction": ("record contradicts its tensor file", "records contradict their tensor files"),
    "weight": ("row holds a weight that was not judged", "rows hold weights that were not judged"),
    "lost": ("recorded value could not be compared", "recorded values could not be compared"),
    "side": ("row stands on one side only", "rows stand on one side only"),
    "error": ("other row is an error", "other rows are errors"),
}


def reasons(calls: Sequence[MeasuredCall], verdicts: Sequence[Sequence[Verdict]]) -> tuple[Reason, ...]:
    """One for each kind that occurs; a row counts once."""
    counts: dict[str, int] = {}
    examples: dict[str, str] = {}
    for call, group in zip(calls, verdicts, strict=True):
        if group is all_pass(len(group)):
            continue
        for row, verdict in zip(call.rows, group, strict=True):
            if verdict.result not in ("error", "unmatched") and not (row.measure is not None and row.measure.lost):
                continue
            kind, detail = _classify(call, row, verdict)
            counts[kind] = counts.get(kind, 0) + 1
            if kind not in examples:
                known = row.pair.target or row.pair.golden
                key = f" {known.key}" if known is not None and known.key else ""
                examples[kind] = f"{call.name}{key}{detail}"
    return tuple(Reason(counts[kind], *words, examples[kind]) for kind, words in _WORDS.items() if kind in counts)


def _classify(call: MeasuredCall, row: Measured, verdict: Verdict) -> tuple[str, str]:
    ours, theirs = row.pair
    if ours is None or theirs is None:
        return "side", f", in the {'golden dump' if ours is None else 'target'} only"
    if stands_alone(call, row.pair):
        return "side", f", None in the {'golden dump' if ours.kind == 'tensor' else 'target'}"
    if row.measure is not None and row.measure.reason.startswith(CONTRADICTION):
        return "contradiction", f": {row.measure.reason.removeprefix(CONTRADICTION)}"
    if row.measure is not None and row.measure.lost and row.measure.reason == NOT_JUDGED:
        return "weight", ""
    if row.measure is not None and row.measure.lost:
        return "file" if ours.data_name and theirs.data_name else "lost", f": {row.measure.reason}"
    if is_accepted(ours, theirs):
        shown = (ours.dtype, theirs.dtype) if ours.kind == "tensor" else (ours.value, theirs.value)
        if {text for text in verdict.messages if text.startswith("error")} <= {DTYPE, SCALAR}:
            return "dtype", f": {shown[0]} / {shown[1]}"
    elif dtypes_differ(row.pair):
        return "number", f": {ours.dtype} / {theirs.dtype}"
    if requires_grad_differs(row.pair):
        return "requires_grad", f": {ours.requires_grad} / {theirs.requires_grad}"
    said = next((text for text in verdict.messages if text != DTYPE), "")
    return "error", f": {said.removeprefix('error: ')}" if said else ""


def joined(groups: Iterable[Sequence[Reason]]) -> list[Reason]:
    """Those of several pairs of dumps as one: counts added up, the first example kept."""
    found: dict[str, Reason] = {}
    for group in groups:
        for reason in group:
            before = found.get(reason.many)
            found[reason.many] = reason if before is None else before._replace(rows=before.rows + reason.rows)
    return [found[many] for _, many in _WORDS.values() if many in found]


def are_of_dtype_alone(found: Sequence[Reason]) -> bool:
    """Whether another floating-point dtype is all that the rows have against them."""
    return [reason.many for reason in found] == [_WORDS["dtype"][1]]
