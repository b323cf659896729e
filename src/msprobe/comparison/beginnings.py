"""How two runs began: unseeded, or in another dtype. Both explain most of what is found, and are told first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from msprobe.comparison.arguments import argument_name
from msprobe.comparison.calls import Measured, MeasuredCall, dtypes_differ, execution_order
from msprobe.comparison.findings import Findings
from msprobe.comparison.judging.accepted import are_integers
from msprobe.comparison.measure import Agreement
from msprobe.comparison.times import Advice
from msprobe.errors import MsprobeException
from msprobe.format.reader import read_meta

_WEIGHTS = ("weight", "bias")


def with_beginnings(findings: Findings, calls: Sequence[MeasuredCall], step: int | None, accept_dtype: bool) -> Findings:
    """The findings, with what is known of the begin.

    Args:
        findings: of the search.
        calls: measured.
        step: its number, None for dumps without one.
        accept_dtype: a change of the floating-point dtype is no difference by itself.
    """
    unseeded = not step and _look_unseeded(findings, calls)
    changed = next((call for call in execution_order(calls) if call.dtype_differs), None) if not accept_dtype else None
    return replace(findings, unseeded=unseeded, dtype_change=changed) if unseeded or changed is not None else findings


def dtypes_of(call: MeasuredCall) -> tuple[str, str]:
    """The dtypes of target and golden run where those of a call differ first; widths of integers only where nothing else does."""
    integers: tuple[str, str] | None = None
    for row in call.rows:
        ours, theirs = row.pair
        if ours is None or theirs is None or not dtypes_differ(row.pair):
            continue
        if not are_integers(ours, theirs):
            return ours.dtype, theirs.dtype
        integers = integers or (ours.dtype, theirs.dtype)
    if integers is None:
        raise ValueError(f"{call.name} has equal dtypes on both sides")
    return integers


def advice(target: Path, golden: Path) -> Advice:
    """What to do about two runs that look unseeded.

    Args:
        target, golden: the two dump files; meta.json beside them knows torch's seed.
    """
    seeds = _seed(target), _seed(golden)
    said = ""
    if None not in seeds:
        said = f"torch's seed was {seeds[0]} in the target and {seeds[1]} in the golden run"
        if seeds[0] == seeds[1]:
            said = f"torch's seed was the same in both, {seeds[0]}: look at the checkpoint, and at how the data are drawn"
        said = f" ({said})"
    return Advice(f"Seed both runs, seed_all() before the model is made, or let both begin from one checkpoint with the same data{said}.")


def _seed(dump: Path) -> int | None:
    try:
        seed = read_meta(dump.parent).get("torch_seed")
    except MsprobeException:
        return None
    return seed if type(seed) is int else None


def _look_unseeded(findings: Findings, calls: Sequence[MeasuredCall]) -> bool:
    """Whether the first data and weights of both runs have nothing to do with each other: before anything was computed, both differ."""
    first = findings.first
    if first is None or first.kind not in ("first input", "input") or first.dtypes is not None or first.reordered:
        return False
    if first.call.parts.direction != "forward" or not any(_is_other(row) and not _is_weight(first.call, row) for row in first.rows):
        return False
    return any(_has_other_weights(call) for call in calls if call.matched and call.parts.direction == "forward")


def _is_other(row: Measured) -> bool:
    """Whether two tensors of one shape hold different values."""
    (ours, theirs), measure = row
    if ours is None or theirs is None or measure is None or measure.agreement is not Agreement.DIFFERENT:
        return False
    return ours.kind == theirs.kind == "tensor" and ours.shape == theirs.shape


def _has_other_weights(call: MeasuredCall) -> bool:
    return any(_is_other(row) and _is_weight(call, row) for row in call.rows)


def _is_weight(call: MeasuredCall, row: Measured) -> bool:
    ours = row.pair.target
    if ours is None:
        return False
    return ours.role == "parameters" or (not call.parts.is_module and argument_name(call.parts.base, ours.key) in _WEIGHTS)
