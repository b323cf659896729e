"""The result of a comparison in words, for the terminal and for the summary."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msprobe.comparison.calls import Measured
from msprobe.comparison.first_difference import FirstDifference
from msprobe.comparison.judge import Mode
from msprobe.comparison.measure import Agreement
from msprobe.comparison.outcome import Location, Outcome, PairReport

_SHOWN_ROWS = 3
_SHOWN_RANKS = 8
_SHOWN_PAIRS = 24
_WORDS = {Agreement.SAME: "equal", Agreement.ROUNDING: "equal up to rounding", Agreement.DIFFERENT: "different"}


class Line(NamedTuple):
    """One line of output. `style`: "" or a meaning that the terminal may colour: head, good, bad, dim."""

    text: str
    style: str = ""


def describe(outcome: Outcome) -> Iterator[Line]:
    """What the user is told, in order: counts, where the files lie, and last, where the eye rests, the first difference."""
    for sentence in outcome.plan.one_sided:
        yield Line(f"not in both: {sentence}", "bad")
    few = len(outcome.reports) <= _SHOWN_PAIRS
    clean = [report for report in outcome.reports if not (few or _is_interesting(report))]
    interesting = [report for report in outcome.reports if few or _is_interesting(report)]
    for report in interesting[:_SHOWN_PAIRS]:
        yield from _counts(report)
    if clean:
        yield Line(f"{len(clean)} more pairs: all {sum(report.matched for report in clean)} rows pass", "good")
    if len(interesting) > _SHOWN_PAIRS:
        yield Line(f"... and {len(interesting) - _SHOWN_PAIRS} pairs more with differences, see the summary", "bad")
    for note in dict.fromkeys(note for report in outcome.reports[:_SHOWN_PAIRS] for note in report.notes):
        yield Line(f"note: {note}", "dim")
    if outcome.summary is None or len(outcome.reports) == 1:
        for report in outcome.reports:
            yield Line(f"result: {report.csv}")
    if outcome.summary is not None:
        yield Line(f"summary: {outcome.summary}")
    yield from _differences(outcome)


def problems(outcome: Outcome) -> Iterator[str]:
    """What could not be compared, one sentence each."""
    yield from outcome.plan.problems
    for failure in outcome.failures:
        yield f"{failure.pair.title}: {failure.message}"
    for report in outcome.reports:
        if report.nothing_measured:
            yield f"{report.pair.title}: {report.nothing_measured}" if report.pair.title else report.nothing_measured


def _counts(report: PairReport) -> Iterator[Line]:
    counts = report.counts
    title = f"{report.pair.title}: " if report.pair.title else ""
    words = ", ".join(f"{counts[word]} {word}" for word in ("pass", "warning", "error", "not compared"))
    bad = bool(counts["error"] or counts["unmatched"])
    yield Line(f"{title}{report.matched} rows matched, {counts['unmatched']} unmatched: {words}", "bad" if bad else "good")
    if report.lost and not report.nothing_measured:
        yield Line(f"  {report.lost} not compared although recorded; the first: {report.lost_example}", "bad")


def _is_interesting(report: PairReport) -> bool:
    return report.counts["pass"] != report.matched or bool(report.counts["unmatched"])


def _differences(outcome: Outcome) -> Iterator[Line]:
    found = [report for report in outcome.reports if report.findings.first is not None]
    if not found:
        yield from _no_difference(outcome)
        return
    step = found[0].pair.step
    ranks = sorted((report for report in found if report.pair.step == step), key=_blame)
    chosen = ranks[0]
    first = chosen.findings.first
    assert first is not None
    yield Line("")
    many = len(outcome.reports) > 1
    where = f" of {chosen.pair.title}" if many and chosen.pair.title else ""
    yield Line(f"First difference{where}: {headline(first)}", "head")
    yield from _block(first, chosen.location, chosen.mode)
    if not chosen.findings.exact:
        yield Line("  (values count as equal up to rounding, not to the last bit)", "dim")
    if first.within_rounding:
        yield from _beyond(chosen)
    if chosen.findings.unmatched is not None and chosen.findings.unmatched_is_earlier:
        yield _unmatched(chosen)
    for other in ranks[1 : _SHOWN_RANKS + 1]:
        if other.findings.first is not None:
            yield Line(f"  {other.pair.title} differs first at {headline(other.findings.first)}")
    if len(ranks) > _SHOWN_RANKS + 1:
        yield Line(f"  ... and {len(ranks) - _SHOWN_RANKS - 1} more")
    yield Line("")


def _blame(report: PairReport) -> tuple[bool, bool]:
    """Sorts ranks: a rank that computes something else comes before one that receives something else, and before one with other data."""
    first = report.findings.first
    assert first is not None
    return first.call.name.startswith("Distributed."), first.kind in ("first input", "input")


def _no_difference(outcome: Outcome) -> Iterator[Line]:
    for report in outcome.reports:
        if report.nothing_measured:
            return
    unmatched = [report for report in outcome.reports if report.findings.unmatched is not None]
    if outcome.reports:
        exact = all(report.findings.exact for report in outcome.reports)
        yield Line("No difference in what both sides recorded." if exact else "No difference beyond rounding in what both sides recorded.")
    if unmatched:
        yield _unmatched(unmatched[0])


def _unmatched(report: PairReport) -> Line:
    call = report.findings.unmatched
    assert call is not None
    side = "target" if call.pair.target is not None else "golden dump"
    earlier = " (earlier than that)" if report.findings.first is not None else ""
    at = f", at {report.unmatched}" if report.unmatched is not None else ""
    return Line(f"  First call without partner{earlier}: {call.name}, in the {side} only{at}")


def _beyond(report: PairReport) -> Iterator[Line]:
    beyond = report.findings.beyond_rounding
    if beyond is None:
        yield Line("  This difference is within rounding, and so is every later one.", "dim")
        return
    yield Line("  This difference is within rounding.", "dim")
    yield Line(f"First difference beyond rounding: {headline(beyond)}", "head")
    yield from _block(beyond, report.beyond, report.mode)


def headline(difference: FirstDifference) -> str:
    """The sentence after `First difference: `."""
    call = difference.call.name
    module = difference.module
    inside = f" in {module}" if module is not None else ""
    keys = ", ".join(row.pair.target.key for row in difference.rows[:_SHOWN_ROWS] if row.pair.target is not None)
    if difference.kind == "parameter":
        several = len(difference.rows) > 1
        what = (
            f"parameters {_parameters(difference)} of {call} differ"
            if several
            else f"the parameter {_parameters(difference)} of {call} differs"
        )
        return f"{what} ({_inputs(difference)})"
    if difference.kind == "gradient":
        return f"the gradient of {_parameters(difference)} in {call} differs (everything before it agrees)"
    if difference.kind == "first input":
        return f"inputs of the first call differ: {keys} of {call}{inside}"
    if difference.kind == "own code":
        return f"{module}, before it calls {call} (its inputs agree, {keys} of that call differs, and no call in between gave a difference)"
    if difference.kind == "sequence":
        here, there = (name or "no module" for name in (module, difference.golden_module))
        return f"the sequence of calls: {call} is in {here}, in the golden run in {there}; a call was added or removed before it"
    if difference.kind == "argument":
        return f"argument {keys} of {call}{inside} differs; no call before it gave a difference: the code that calls it changed"
    if difference.kind == "input":
        return f"{keys} of {call}{inside} differs; no recorded call before it gave a difference: the code before it changed"
    own = "; the calls inside it agree: its own code changed" if difference.last_inner is not None else ""
    return f"{call}{inside} ({_inputs(difference)}, output differs{own})"


def _inputs(difference: FirstDifference) -> str:
    """`inputs equal, parameters equal`, leaving out what was not recorded."""
    words = ["no inputs recorded" if difference.call.inputs is Agreement.UNKNOWN else f"inputs {_WORDS[difference.call.inputs]}"]
    if difference.kind == "output" and difference.parameters is not Agreement.UNKNOWN:
        words.append(f"parameters {_WORDS[difference.parameters]}")
    return ", ".join(words)


def _parameters(difference: FirstDifference) -> str:
    names = [row.pair.target.key.removeprefix("parameters.") for row in difference.rows if row.pair.target is not None]
    return " and ".join(names[:_SHOWN_ROWS]) + (f" and {len(names) - _SHOWN_ROWS} more" if len(names) > _SHOWN_ROWS else "")


def _block(difference: FirstDifference, location: Location, mode: Mode) -> Iterator[Line]:
    if location.user is not None:
        yield Line(f"  at {location.user}")
    if location.library is not None:
        yield Line(f"  through {location.library}")
    if location.golden is not None:
        yield Line(f"  in the golden run at {location.golden}")
    if location.inner is not None:
        yield Line(f"  its last recorded call is made at {location.inner}")
    if difference.call.name.startswith("Distributed."):
        yield Line("  It is a communication: the difference may have come from another rank.")
    for ours, theirs in difference.call.pair.rows:
        if theirs is None and ours is not None:
            yield Line(f"  {ours.key}: in the target only")
        elif ours is None and theirs is not None:
            yield Line(f"  {theirs.key}: in the golden dump only")
    if difference.kind == "sequence":  # the two are not the same call, so that their values say nothing
        return
    for row in difference.rows[:_SHOWN_ROWS]:
        yield from _values(row, mode)
    if len(difference.rows) > _SHOWN_ROWS:
        yield Line(f"  ... and {len(difference.rows) - _SHOWN_ROWS} more values of this call differ")


def _values(measured: Measured, mode: Mode) -> Iterator[Line]:
    ours, theirs = measured.pair
    measure = measured.measure
    if ours is None or theirs is None or measure is None:
        return
    kind = ours.dtype if (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape) else f"{ours.dtype} {ours.shape}, golden {theirs.dtype}"
    shape = theirs.shape if kind != ours.dtype else ours.shape
    if ours.kind != "tensor" or theirs.kind != "tensor":
        yield Line(f"  {ours.key}: {_shown(ours.value)} in the target, {_shown(theirs.value)} in the golden dump")
        return
    yield Line(f"  {ours.key} ({kind} {shape})")
    if mode == "md5":
        yield Line(f"    target {measure.cells[0]}, golden {measure.cells[1]}")
        return
    table: list[tuple[str, ...]] = [("", "Max", "Min", "Mean", "Norm")]
    table += [(side, *map(_shown, row.statistics)) for side, row in (("target", ours), ("golden", theirs))]
    yield from map(Line, _table(table))
    if measure.max_abs is not None and ours.shape == theirs.shape:
        what = "max abs diff" if mode == "tensor" else "largest difference of these"
        yield Line(f"    {what} {measure.max_abs:.6g}, relative size {measure.size:.3g}")


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "    " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _shown(value: Any) -> str:
    if type(value) is float and not math.isfinite(value):
        return "NaN" if value != value else "Inf" if value > 0 else "-Inf"
    return repr(value) if isinstance(value, str) else str(value)
