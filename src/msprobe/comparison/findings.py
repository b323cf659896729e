"""What the search for the first difference found, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msprobe.comparison.arguments import argument_name
from msprobe.comparison.calls import Measured, MeasuredCall
from msprobe.comparison.measure import Agreement

Kind = Literal["output", "own code", "first input", "input", "argument", "parameter", "gradient", "sequence", "requires_grad"]
"""What starts the difference: a call's output; a module's code between its recorded calls; the data; code before a call that was not
recorded; a plain argument; a parameter's value; the gradient of a parameter; another sequence of calls, so that the two calls of one
name are not the same call; requires_grad of a value, which changes what the backward pass computes."""

_NO_MATTER_OF_DTYPE = ("parameter", "first input", "argument")
"""Kinds of differences beyond rounding that do not follow from a run that computes in another dtype before."""


@dataclass(frozen=True)
class FirstDifference:
    """Where the difference starts.

    Attributes:
        kind: see Kind.
        call: the call at fault, or the one whose input differs.
        rows: its rows that differ, those that matter first.
        module: the module that contains it (for `own code`, the module whose code it is), None when unknown or none.
        last_inner: when the call at fault is a module of which inner calls were recorded, all of them agreeing: the last of these.
        golden_module: the module that contains the golden call, for a `sequence`.
        within_rounding: the difference is no larger than rounding.
        parameters: agreement of the parameters, of the call itself and of the module around it.
        dtypes: those of target and golden run, where the first of `rows` has another on each side.
        dtypes_from_here: no call before it has another dtype on each side.
        other_calls: when the call at fault is a module, the calls inside it are not the same ones on both sides.
        accepted: a change from one floating-point dtype to another is no difference by itself (`--accept-dtype`): its size decides.
        cause: the call that only one side has and that makes what differs: the first of those inside the module at fault, or before the
            call at fault, whose result becomes it; None when there is none.
        cause_count: how many such calls there are in a row.
        cause_instead: what the golden run calls in its place, None when nothing.
        reordered: the values look like the same ones in another order; statistics may not have shown it where it began.
        shows_at: the first call in execution order at which it shows: `call`, or one inside it, whose entry stands before its own.
        opens_backward: it is an input of the first backward call that both sides recorded.
        unknown_inner: of the calls inside a module at fault, one that could not be compared; "" where all could.
        inputs_partly_unknown: some input of the call (for `own code`, of the module) could not be compared.
        overwritten_differs: the input that the call writes into differs, which counts for nothing.
    """

    kind: Kind
    call: MeasuredCall
    rows: tuple[Measured, ...]
    module: str | None
    last_inner: str | None
    golden_module: str | None
    within_rounding: bool
    parameters: Agreement
    dtypes: tuple[str, str] | None = None
    dtypes_from_here: bool = False
    other_calls: bool = False
    reordered: bool = False
    shows_at: str = ""
    opens_backward: bool = False
    inputs_partly_unknown: bool = False
    unknown_inner: str = ""
    accepted: bool = False
    cause: MeasuredCall | None = None
    cause_count: int = 0
    cause_instead: MeasuredCall | None = None
    overwritten_differs: bool = False

    @property
    def of_values(self) -> bool:
        """Whether values of one call are measured against each other, in one dtype or in two that may differ: only then their size
        decides."""
        return self.kind not in ("sequence", "requires_grad") and (self.dtypes is None or self.accepted)

    @property
    def by_dtype(self) -> bool:
        """Whether it is the dtype that differs, and counts."""
        return self.dtypes is not None and not self.accepted and self.kind not in ("sequence", "requires_grad")

    @property
    def only_dtype(self) -> bool:
        """Whether it is nothing but the dtype: the values agree up to its rounding."""
        return self.by_dtype and self.within_rounding

    @property
    def of_weights(self) -> bool:
        """Whether all that differs are weights given to a function."""
        base = self.call.parts.base
        keys = [row.pair.target.key for row in self.rows if row.pair.target is not None]
        return bool(keys) and all((argument_name(base, key) or key.rpartition(".")[2]) in ("weight", "bias") for key in keys)


@dataclass(frozen=True)
class Findings:
    """What the search found.

    Attributes:
        exact: whether values had to be equal in every recorded bit to agree; otherwise, up to rounding. Not exact when no floating-point
            tensor of the two dumps is bit-identical, when two tools made them, or when the two runs compute in different precision.
        first: the first difference, None when nothing differs.
        value: when `first` is one of requires_grad, the first difference of a value.
        beyond_rounding: when the first difference of a value is within rounding, or one of the dtype alone, the first one that is not.
        unmatched: the first call that only one side has, None when there is none.
        unmatched_is_earlier: it stands before `first`.
        unmatched_is_harmless: it explains nothing. Values behind it agree up to rounding, until one differs for which it is no reason: the
            output of a call whose inputs agree, a parameter, an argument. Or it stands in a module that both sides have and that gives the
            same up to rounding (another implementation of attention), or it was run again by the backward pass.
        unmatched_in: what is around it: the outermost module that this side alone has, else the module around it, else "".
        unmatched_whole: `unmatched_in` is on this side only.
        unseeded: the first data and weights of the two runs differ before anything was computed.
        dtype_change: the first call with another dtype on each side, where that is a difference; None when there is none.
    """

    exact: bool
    first: FirstDifference | None
    value: FirstDifference | None
    beyond_rounding: FirstDifference | None
    unmatched: MeasuredCall | None
    unmatched_is_earlier: bool
    unmatched_is_harmless: bool = False
    unmatched_in: str = ""
    unmatched_whole: bool = False
    unseeded: bool = False
    dtype_change: MeasuredCall | None = None

    @property
    def leading(self) -> FirstDifference | None:
        """The difference that is told in one sentence: one within rounding only where there is no other, or where it cannot be rounding
        since parameters and data are read and not computed, and other values are identical in every bit."""
        if self.exact and self.first is not None and self.first.kind in ("parameter", "first input"):
            return self.first
        first, beyond = self.first, self.beyond_rounding
        if first is not None and first.of_values and first.within_rounding and beyond is not None:
            return beyond
        if first is not None and first.only_dtype and beyond is not None and (beyond.kind in _NO_MATTER_OF_DTYPE or beyond.of_weights):
            return beyond
        return self.first
