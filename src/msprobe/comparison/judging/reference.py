"""`--reference`: a third dump, of a run in higher precision, that stands for the truth. Which of the two runs is closer to it, row by row.

Target and golden are each compared with it as two dumps are, so that what rounding explains is known of either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from msprobe.comparison.calls import MeasuredCall
from msprobe.comparison.first_difference import FirstDifference
from msprobe.comparison.inputs import Plan, make_plan
from msprobe.comparison.match import CallPair, RowPair
from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.rows import Call, Row
from msprobe.errors import UsageError

COLUMNS = ("NPU Reference Err", "Bench Reference Err", "Reference Verdict")
"""Appended behind all other columns: relative size of the difference of each side from the reference, and the sentence."""

CLOSER = "target is closer to the truth than golden"
BOTH = "both are within rounding of the truth"
FARTHER = "target is farther from the truth than golden"
ALIKE = "both are equally far from the truth"
UNKNOWN = "not compared with the truth"
VERDICTS = (BOTH, CLOSER, FARTHER, ALIKE, UNKNOWN)

_ALIKE_RATIO = 2.0  # errors that differ by less than this are of one size


class Truth(NamedTuple):
    """What the reference says of a row: sizes of the two errors (None where there is none to tell), and the verdict."""

    target: float | None
    golden: float | None
    verdict: str


NOTHING = Truth(None, None, UNKNOWN)
Errors = Mapping[tuple[str, str], Measure]
"""Entry and place of a row -> its measure against the reference."""


@dataclass(frozen=True)
class Tally:
    """For the report of one pair: rows by verdict, and what is said of the first row of the first difference ("" where there is none)."""

    counts: Mapping[str, int]
    of_first: str

    def __str__(self) -> str:
        """`against the reference: 3 rows: target is closer ...; 12 rows: both are ...`"""
        said = [f"{count} {'row' if count == 1 else 'rows'}: {verdict}" for verdict, count in self.counts.items() if count]
        return f"against the reference: {'; '.join(said)}"


def with_reference(plan: Plan, target: Path, reference: Path) -> Plan:
    """The plan with the reference's dump of the same step and rank beside each pair.

    Raises:
        UsageError: the reference is not of the kind of the target, or lacks one of its dumps.
    """
    if not reference.exists():
        raise UsageError(f"the reference {reference} does not exist")
    try:
        found = {(pair.step, pair.label): pair.golden for pair in make_plan(target, reference).pairs}
    except UsageError as error:
        raise UsageError(f"--reference {reference}: {error}") from None
    missing = [pair.title or str(pair.target) for pair in plan.pairs if (pair.step, pair.label) not in found]
    if missing:
        raise UsageError(f"--reference {reference} has no dump of {missing[0]}; give a run of the same steps and ranks")
    return replace(plan, pairs=tuple(replace(pair, reference=found[pair.step, pair.label]) for pair in plan.pairs))


def errors_of(calls: Sequence[MeasuredCall]) -> Errors:
    """The measures of one side against the reference, by the names of that side."""
    found: dict[tuple[str, str], Measure] = {}
    for call in calls:
        if call.pair.target is None:
            continue
        for (ours, _), measure in call.rows:
            if ours is not None and measure is not None and ours.kind == "tensor":
                found[call.pair.target.name, ours.key] = measure
    return found


def is_built_like(reference: Sequence[Call], one: Sequence[Call], other: Sequence[Call]) -> bool:
    """Whether more calls of the reference are called as those of `one` than as those of `other`."""
    names = {call.name for call in reference}
    return sum(call.name in names for call in one) > sum(call.name in names for call in other)


def golden_pairs(calls: Sequence[MeasuredCall], pairs: Sequence[CallPair]) -> list[CallPair]:
    """Golden values with what the values of the target that they are compared with have for partners in the reference; by the keys of the
    target.

    Args:
        calls: target and golden dump.
        pairs: target and reference.
    """
    truths = {
        (pair.target.name, ours.key): theirs
        for pair in pairs
        if pair.target is not None
        for ours, theirs in pair.rows
        if ours is not None and theirs is not None
    }
    found: list[CallPair] = []
    for call in calls:
        ours, golden = call.pair.target, call.pair.golden
        if ours is None or golden is None:
            continue
        rows = [
            RowPair(theirs._replace(key=mine.key), truth)
            for mine, theirs in call.pair.rows
            if mine is not None and theirs is not None and (truth := truths.get((ours.name, mine.key))) is not None
        ]
        found.append(CallPair(golden._replace(name=ours.name), golden, tuple(rows)))
    return found


def truths(calls: Sequence[MeasuredCall], target: Errors, golden: Errors, by_target: bool = False) -> list[tuple[Truth, ...]]:
    """For each call the truth of its rows. `by_target`: the errors of the golden values, too, are found by the names of the target."""
    found: list[tuple[Truth, ...]] = []
    for call in calls:
        ours, theirs = (one.name if one is not None else "" for one in call.pair[:2])
        found.append(
            tuple(
                _truth(_error(target, ours, row), _error(golden, ours, row) if by_target else _error(golden, theirs, other))
                for (row, other), _ in call.rows
            )
        )
    return found


def _error(errors: Errors, call: str, row: Row | None) -> Measure | None:
    return errors.get((call, row.key)) if row is not None else None


def _truth(target: Measure | None, golden: Measure | None) -> Truth:
    if target is None or golden is None or Agreement.UNKNOWN in (target.agreement, golden.agreement):
        return NOTHING
    if max(target.agreement, golden.agreement) <= Agreement.ROUNDING:
        verdict = BOTH
    elif max(target.size, golden.size) < _ALIKE_RATIO * min(target.size, golden.size) or target.size == golden.size:
        verdict = ALIKE
    else:
        verdict = CLOSER if target.size < golden.size else FARTHER
    return Truth(target.size, golden.size, verdict)


def tally(calls: Sequence[MeasuredCall], found: Sequence[Sequence[Truth]], first: FirstDifference | None) -> Tally:
    """Counts the verdicts and looks up the first difference."""
    counts = dict.fromkeys(VERDICTS, 0)
    of_first = ""
    for call, group in zip(calls, found, strict=True):
        for row, truth in zip(call.rows, group, strict=True):
            if row.pair.target is not None and row.pair.golden is not None and row.pair.target.kind == "tensor":
                counts[truth.verdict] += 1
        if first is not None and call.name == first.call.name and first.rows:
            said = [truth for row, truth in zip(call.rows, group, strict=True) if row.pair == first.rows[0].pair]
            of_first = sentence(said[0]) if said and said[0].verdict != UNKNOWN else ""
    return Tally(counts, of_first)


def sentence(truth: Truth) -> str:
    """`the reference says: target is closer to the truth than golden (target 1.2e-07, golden 3e-03)`. For a verdict with two numbers."""
    return f"the reference says: {truth.verdict} (target {truth.target:.2g}, golden {truth.golden:.2g})"


def cells(found: Sequence[Sequence[Truth]]) -> Iterator[tuple[object, object, str]]:
    """The cells of the columns, row by row."""
    for group in found:
        for truth in group:
            yield _cell(truth.target), _cell(truth.golden), truth.verdict


def _cell(error: float | None) -> object:
    return "N/A" if error is None else " inf" if error == float("inf") else error


def conclusion_of(tallies: Sequence[Tally], differs: bool = False) -> str:
    """One sentence about all pairs. `differs`: the comparison itself found a first difference."""
    closer, farther, alike = (sum(one.counts[verdict] for one in tallies) for verdict in (CLOSER, FARTHER, ALIKE))
    if farther and farther >= closer:
        return f"The reference speaks against the target: it is farther from the truth than golden in {farther} rows, closer in {closer}"
    if closer:
        return f"The reference speaks for the target: it is closer to the truth than golden in {closer} rows, farther in {farther}"
    if alike:
        return f"The reference speaks for neither: {alike} rows are equally far from the truth, all others within rounding of it"
    within = "Both are within rounding of the truth wherever the reference can be compared"
    if differs and not any(tally.of_first for tally in tallies):
        # In a narrow dtype much is within rounding, and an argument has no truth that a reference could hold.
        return f"{within}; that does not decide who is right about the first difference"
    return within
