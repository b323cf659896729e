"""`--accept-dtype`: one run computes in another floating-point dtype, and is meant to. And integers of two frameworks.

A dtype that differs is then no error by itself: values are judged by their size, with the rounding of the coarser dtype. Integers against
floats stay errors, as do dtypes whose rounding is not known. Checksums of two dtypes say nothing about the values.

Token ids, labels and masks of positions are int32 in MindSpore, whose operators take no others, and int64 in PyTorch: between the two
frameworks equal integers are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from msprobe.comparison.calls import Measured, MeasuredCall, dtypes_differ, measured_anew
from msprobe.comparison.judging.values import unit_of
from msprobe.comparison.measure import Agreement
from msprobe.comparison.rows import Row

OTHER_DTYPE = "checksums of {} and {} say nothing about the values; record with summary_mode statistics or task tensor to compare them"


_INTEGERS = frozenset(f"torch.{sign}int{width}" for sign in ("", "u") for width in (8, 16, 32, 64))


@cache
def is_acceptable(target: str, golden: str) -> bool:
    """Whether two dtypes, as dump.json writes them, are one kind of number (real or complex) in different precision."""
    same_kind = ("complex" in target) == ("complex" in golden)
    return target != golden and same_kind and unit_of(target) > 0.0 and unit_of(golden) > 0.0


def is_accepted(target: Row, golden: Row) -> bool:
    """Whether two values differ in nothing but such a dtype: two tensors, or two arguments that name one."""
    if target.kind == golden.kind == "tensor":
        return is_acceptable(target.dtype, golden.dtype)
    return _names_dtypes(target, golden)


def are_integers(target: Row, golden: Row) -> bool:
    """Whether the two are tensors of integers of different widths."""
    both_tensors = target.kind == golden.kind == "tensor"
    return both_tensors and target.dtype != golden.dtype and target.dtype in _INTEGERS and golden.dtype in _INTEGERS


def accept_integers(calls: Sequence[MeasuredCall], mode: str) -> list[MeasuredCall]:
    """The measured calls of two frameworks: equal integers of two widths agree; in mode md5 they are not compared."""
    return [_accept_integers(call, mode) for call in calls]


def _accept_integers(call: MeasuredCall, mode: str) -> MeasuredCall:
    if not call.dtype_differs:
        return call
    found = list(call.rows)
    differs = False
    for index, (pair, measure) in enumerate(call.rows):
        ours, theirs = pair
        if ours is None or theirs is None or measure is None or not are_integers(ours, theirs):
            differs = differs or dtypes_differ(pair)
            continue
        if mode == "md5":
            reason = OTHER_DTYPE.format(ours.dtype, theirs.dtype)
            measure = measure._replace(agreement=Agreement.UNKNOWN, size=0.0, reason=reason, lost=True)
        elif measure.agreement is Agreement.ROUNDING and measure.size == 0.0:
            measure = measure._replace(agreement=Agreement.SAME)
        found[index] = Measured(pair, measure)
    return measured_anew(call, found)._replace(dtype_differs=differs)


def accept(calls: Sequence[MeasuredCall], mode: str) -> list[MeasuredCall]:
    """The measured calls with arguments that name such dtypes as agreeing; in mode md5 values of two dtypes are not compared."""
    return [_accept(call, mode) for call in calls]


def _accept(call: MeasuredCall, mode: str) -> MeasuredCall:
    found: list[Measured] | None = None
    for index, row in enumerate(call.rows):
        (ours, theirs), measure = row
        if ours is None or theirs is None or measure is None or measure.agreement is not Agreement.DIFFERENT:
            continue
        if _names_dtypes(ours, theirs):
            changed = measure._replace(agreement=Agreement.SAME, size=0.0)
        elif mode == "md5" and is_accepted(ours, theirs):
            reason = OTHER_DTYPE.format(ours.dtype, theirs.dtype)
            changed = measure._replace(agreement=Agreement.UNKNOWN, size=0.0, reason=reason, lost=True)
        else:
            continue
        found = found if found is not None else list(call.rows)
        found[index] = Measured(row.pair, changed)
    return call if found is None else measured_anew(call, found)


def _names_dtypes(target: Row, golden: Row) -> bool:
    a, b = target.value, golden.value
    return target.kind == golden.kind == "scalar" and isinstance(a, str) and isinstance(b, str) and is_acceptable(a, b)
