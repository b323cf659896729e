"""The result of a comparison in words, for the terminal and for the summary."""

from __future__ import annotations

from collections.abc import Iterator
from os.path import realpath

from msprobe.comparison.block import Line, block
from msprobe.comparison.conclusion import call_without_partner, conclusion, not_compared, sole_call, truth
from msprobe.comparison.headline import headline
from msprobe.comparison.order import beyond_rounding, guilty_first, later_than, search_step, unmatched_first
from msprobe.comparison.outcome import Outcome, PairReport
from msprobe.comparison.previous_step import look_back
from msprobe.comparison.reasons import ONLY_DTYPE, are_of_dtype_alone, joined
from msprobe.comparison.sentence import lead
from msprobe.comparison.spread import received, spread
from msprobe.comparison.times import Advice

_SHOWN_RANKS = 8
_SHOWN_PAIRS = 24
_SHOWN_FILES = 3
_SHOWN_NOTES = 5
_SHOWN_MISSING = 8
_AFTER_A_CALL = {"requires_grad": "First requires_grad that differs", "sequence": "Next difference"}


def describe(outcome: Outcome) -> Iterator[Line]:
    """What the user is told, in order: the sentence, counts, where the files lie, and last, where the eye rests, the first difference."""
    first = lead(outcome)
    if first:
        yield Line(first, "lead")
    if _is_one_dump(outcome):
        yield Line("warning: -tp and -gp lead to one dump, which was compared with itself", "bad")
    notes = list(dict.fromkeys(note for report in outcome.reports[:_SHOWN_PAIRS] for note in report.notes))
    yield from (Line(f"  {note}", "head") for note in notes if isinstance(note, Advice))
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
    notes = [*outcome.plan.notes, *(note for note in notes if not isinstance(note, Advice))]
    for note in notes[:_SHOWN_NOTES]:
        yield Line(f"note: {note}", "dim")
    if len(notes) > _SHOWN_NOTES:
        yield Line(f"note: ... and {len(notes) - _SHOWN_NOTES} more notes", "dim")
    if outcome.summary is None or len(outcome.reports) <= _SHOWN_FILES:
        for report in outcome.reports:
            for path in (report.csv, report.xlsx, report.jsonl):
                if path is not None:
                    yield Line(f"result: {path}")
    else:
        yield from _many_files(outcome)
    if outcome.summary is not None:
        yield Line(f"summary: {outcome.summary}")
    if outcome.analyses is not None:
        yield from (Line(f"diff_analyze: {path}") for path in outcome.analyses)
        if not outcome.analyses:
            yield Line("diff_analyze: no file, as no difference beyond rounding was found")
    if outcome.html is not None:
        yield Line(f"report: {outcome.html}")
    yield from _differences(outcome)
    missing = not_compared(outcome)
    if missing:
        more = f" and {len(missing) - _SHOWN_MISSING} more" if len(missing) > _SHOWN_MISSING else ""
        yield Line(f"Not compared: {', '.join(missing[:_SHOWN_MISSING])}{more} (standard error says why)", "bad")


def _is_one_dump(outcome: Outcome) -> bool:
    """Whether every file was compared with itself."""
    pairs = outcome.plan.pairs
    return bool(pairs) and all(realpath(str(pair.target)) == realpath(str(pair.golden)) for pair in pairs)


def _many_files(outcome: Outcome) -> Iterator[Line]:
    """Where many results lie: a pattern for each kind, with the number of files."""
    for kind in ("csv", "xlsx", "jsonl"):
        paths = [path for report in outcome.reports if (path := getattr(report, kind)) is not None]
        if not paths:
            continue
        parents = {path.parent for path in paths}
        place = parents.pop() if len(parents) == 1 else paths[0].parent.parent / "step*"
        yield Line(f"results: {place / f'*compare_result_*.{kind}'} ({len(paths)} files)")


def problems(outcome: Outcome) -> Iterator[str]:
    """What could not be compared, one sentence each."""
    yield from outcome.plan.problems
    for failure in outcome.failures:
        alike = [other for other in outcome.failures if failure.kind and other.kind == failure.kind]
        if alike and alike[0] is not failure:
            continue
        more = f" ({len(alike) - 1} more pairs alike)" if len(alike) > 1 else ""
        yield f"{failure.pair.title}: {failure.message}{more}"
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
    if report.truth is not None:
        yield Line(f"  {report.truth}")


def _is_interesting(report: PairReport) -> bool:
    return report.counts["pass"] != report.matched or bool(report.counts["unmatched"])


def _differences(outcome: Outcome) -> Iterator[Line]:
    ranks = guilty_first(outcome)
    if not ranks:
        yield from conclusion(outcome)
        return
    chosen = ranks[0]
    search = search_step(outcome, chosen.pair.step)
    many = len(outcome.reports) > 1
    yield Line("")
    if unmatched_first(chosen):
        yield from _unmatched_first(chosen, outcome, many)
    else:
        yield from _value_first(chosen, outcome, many)
    for other in ranks[1 : _SHOWN_RANKS + 1]:
        what = sole_call(other) if unmatched_first(other) else headline(other.findings.first) if other.findings.first is not None else ""
        yield Line(f"  First difference{_of(other, many)}: {what}{received(other, search)}")
    if len(ranks) > _SHOWN_RANKS + 1:
        yield Line(f"  ... and {len(ranks) - _SHOWN_RANKS - 1} more")
    for note in search.notes:
        yield Line(f"  {note}", "bad")
    yield from truth(outcome)
    yield Line("")


def _of(report: PairReport, many: bool) -> str:
    return f" of {report.pair.title}" if many and report.pair.title else ""


def _unmatched_first(chosen: PairReport, outcome: Outcome, many: bool) -> Iterator[Line]:
    yield Line(f"First difference{_of(chosen, many)}: {sole_call(chosen)}", "head")
    if chosen.unmatched is not None:
        yield Line(f"  at {chosen.unmatched}")
    later = [report for report in (chosen, *later_than(outcome, chosen)) if report.findings.first is not None]
    if later and later[0].findings.first is not None:
        first = later[0].findings.first
        word = _AFTER_A_CALL.get(first.kind, "First value that differs")
        where = "" if later[0] is chosen else _of(later[0], many)
        yield Line(f"{word}{where}: {headline(first)}", "head")
        yield from _below(later[0], outcome, many)


def _value_first(chosen: PairReport, outcome: Outcome, many: bool) -> Iterator[Line]:
    first = chosen.findings.first
    assert first is not None
    yield Line(f"First difference{_of(chosen, many)}: {headline(first)}", "head")
    yield from _below(chosen, outcome, many)
    if chosen.findings.unmatched is not None and chosen.findings.unmatched is not first.cause:
        yield Line("  " + call_without_partner(chosen))


def _below(report: PairReport, outcome: Outcome, many: bool) -> Iterator[Line]:
    """What stands under the headline of a report's first difference."""
    first, value = report.findings.first, report.findings.value
    assert first is not None
    yield from block(first, report.location, report.mode)
    if report.truth is not None and report.truth.of_first:
        yield Line(f"  {report.truth.of_first}", "head")
    if first.kind == "requires_grad" and value is not None:
        yield Line(f"First value that differs: {headline(value)}", "head")
        yield from block(value, report.value, report.mode)
    yield from spread(report, outcome)
    if first.kind == "requires_grad" and value is None:
        yield Line("  No value differs in what both sides recorded.", "dim")
    of_value = value or first
    if not report.findings.exact and of_value.kind != "requires_grad":
        yield Line("  (values count as equal up to rounding, not to the last bit)", "dim")
    if (
        of_value.only_dtype
        and report.findings.beyond_rounding is None
        and are_of_dtype_alone(joined(one.reasons for one in outcome.reports))
    ):
        yield Line(f"  Nothing but the dtype differs by more than rounding; {ONLY_DTYPE}.")
    elif of_value.within_rounding and (of_value.of_values or of_value.only_dtype):
        yield from _beyond(report, outcome, many)


def _beyond(report: PairReport, outcome: Outcome, many: bool) -> Iterator[Line]:
    yield Line("  This difference is within rounding.", "dim")
    for other in (report, *later_than(outcome, report)):
        found = beyond_rounding(other)
        if found is not None:
            where = "" if other is report else _of(other, many)
            yield Line(f"First difference beyond rounding{where}: {headline(found[0])}", "head")
            yield from block(*found, other.mode)
            if other is not report:
                yield from (Line(f"  {text}") for text in look_back(outcome.reports, other, found[0]))
            return
    yield Line("  So is every later one.", "dim")


__all__ = ["Line", "describe", "headline", "problems"]
