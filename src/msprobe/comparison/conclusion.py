"""What is said when no value differs by more than rounding: in one sentence, with what makes the exit code 1."""

from __future__ import annotations

from collections.abc import Iterator

from msprobe.comparison.block import Line, block
from msprobe.comparison.headline import headline
from msprobe.comparison.judging.reference import conclusion_of
from msprobe.comparison.outcome import Outcome, PairReport
from msprobe.comparison.reasons import ONLY_DTYPE, are_of_dtype_alone, joined

BLIND = (
    "  Max, Min, Mean and Norm do not show everything: the same values in another order (a transposed weight, a permuted batch) have the"
    " same four; summary_mode md5 or task tensor tells them apart"
)


def conclusion(outcome: Outcome) -> Iterator[Line]:
    """The last lines. Nothing when no value at all could be measured: standard error tells of that."""
    if not outcome.reports or any(report.nothing_measured for report in outcome.reports):
        return
    if any(report.mode == "statistics" for report in outcome.reports):
        yield Line(BLIND, "dim")
    slight = next((report for report in outcome.reports if report.findings.first is not None), None)
    why = _why(outcome)
    unseen = not_recorded(outcome) + not_judged(outcome)
    rounded = slight is not None or not all(report.findings.exact for report in outcome.reports)
    if why:
        what = "Calls" if all(report.mode == "structure" for report in outcome.reports) else "Values"
        agree = "The values that could be compared agree" if any(report.lost for report in outcome.reports) else f"{what} agree"
        yield Line(f"{agree}{' up to rounding' if rounded else ''}; {'; '.join(why + unseen)}", "bad")
    elif slight is None:
        beyond = " beyond rounding" if rounded else ""
        what = "could be compared" if not_compared(outcome) else "both sides recorded"
        yield Line(f"No difference{beyond} in what {what}{''.join(f'; {text}' for text in unseen)}.", "good")
    if slight is not None and slight.findings.first is not None:
        where = f" of {slight.pair.title}" if len(outcome.reports) > 1 and slight.pair.title else ""
        start = "The first difference" if why else "No difference beyond rounding; the first"
        yield Line(f"{start} within rounding{where}: {headline(slight.findings.first)}", "" if why else "good")
        yield from block(slight.findings.first, slight.location, slight.mode)
        if not why:
            yield from (Line(f"  {text}", "dim") for text in unseen)
    unmatched = [report for report in outcome.reports if report.findings.unmatched is not None]
    if unmatched:
        where = f"{unmatched[0].pair.title}: " if len(outcome.reports) > 1 and unmatched[0].pair.title else ""
        yield Line(f"  {where}{call_without_partner(unmatched[0])}")
    yield from truth(outcome)


def not_compared(outcome: Outcome) -> list[str]:
    """What should have been compared and was not, in a few words each; standard error has the reasons."""
    found = [problem.partition(";")[0].partition(": ")[0] for problem in outcome.plan.problems]
    pairs = [failure.pair for failure in outcome.failures] + [report.pair for report in outcome.reports if report.nothing_measured]
    return found + [pair.title or str(pair.target) for pair in pairs]


def truth(outcome: Outcome) -> Iterator[Line]:
    """What the reference says of all pairs, nothing without one."""
    tallies = [report.truth for report in outcome.reports if report.truth is not None]
    if tallies:
        yield Line(conclusion_of(tallies, any(report.findings.first is not None for report in outcome.reports)), "head")


def _why(outcome: Outcome) -> list[str]:
    """What makes the exit code 1, one clause each."""
    found = joined(report.reasons for report in outcome.reports)
    clauses = [str(reason) for reason in found]
    sides = outcome.plan.one_sided
    if are_of_dtype_alone(found) and not sides:
        clauses.append(ONLY_DTYPE)
    if sides:
        clauses.append(f"{sides[0]}{f', and {len(sides) - 1} more of that kind' if len(sides) > 1 else ''}")
    return clauses


def not_recorded(outcome: Outcome) -> list[str]:
    """One clause on the values that neither side recorded; nothing where there are none."""
    found = [report.not_recorded for report in outcome.reports if report.not_recorded.rows]
    rows = sum(one.rows for one in found)
    if not rows:
        return []
    return [f"{rows} {'value is' if rows == 1 else 'values are'} recorded on neither side (first: {found[0].example})"]


def not_judged(outcome: Outcome) -> list[str]:
    """One clause on the weights of which it cannot be told whether they are the same; nothing where there are none."""
    found = [report.not_judged for report in outcome.reports if report.not_judged.weights]
    if not found:
        return []
    some, all_of_them = sum(one.weights for one in found), sum(one.of for one in found)
    weights = "weight was" if some == all_of_them == 1 else "weights were"
    return [f"{some} of {all_of_them} {weights} not judged (first: {found[0].example}: no cast of the golden run's)"]


def sole_call(report: PairReport) -> str:
    """The first call without partner as a headline."""
    call = report.findings.unmatched
    assert call is not None
    side = "target" if call.pair.target is not None else "golden dump"
    found = report.findings
    inside = ""
    if found.unmatched_in:
        inside = f", with all of {found.unmatched_in}" if found.unmatched_whole else f", in {found.unmatched_in}"
    return f"the call {call.name} is in the {side} only{inside}"


def call_without_partner(report: PairReport) -> str:
    """The first call without partner, as a remark beside something else."""
    call = report.findings.unmatched
    assert call is not None
    side = "target" if call.pair.target is not None else "golden dump"
    when = ""
    if report.findings.first is not None:
        when = " (earlier than that)" if report.findings.unmatched_is_earlier else " (later)"
    at = f", at {report.unmatched}" if report.unmatched is not None else ""
    return f"First call without partner{when}: {call.name}, in the {side} only{at}"
