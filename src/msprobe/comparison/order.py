"""Which of several steps and ranks is told first."""

from __future__ import annotations

from collections.abc import Sequence

from msprobe.comparison.first_difference import FirstDifference
from msprobe.comparison.outcome import Location, Outcome, PairReport
from msprobe.comparison.ranks import RankSearch, search_ranks

_COMPUTES, _DATA, _RECEIVES, _COMMUNICATES = range(4)
_RECEIVED_KINDS = ("input", "gradient")


def unmatched_first(report: PairReport) -> bool:
    """Whether a call without partner is the earliest difference. Two tools, or two levels, do not record the same calls; and what stands
    in a module that gives the same on both sides explains no difference behind it, nor does one call where another one is known to."""
    findings = report.findings
    if report.other_calls or findings.unmatched is None:
        return False
    cause = findings.leading.cause if findings.leading is not None else None
    if cause is not None and cause.name not in (findings.unmatched.name, findings.unmatched_in):
        return False
    return findings.first is None or (findings.unmatched_is_earlier and not findings.unmatched_is_harmless)


def guilty_first(outcome: Outcome) -> Sequence[PairReport]:
    """The reports of the earliest step in which anything differs beyond rounding, the rank that computes something else first.

    Empty when no value of any step differs by more than rounding; then what there is besides is told in one sentence.
    """
    if not any(_counts(report) for report in outcome.reports):
        return []
    found = [report for report in outcome.reports if report.findings.first is not None or unmatched_first(report)]
    return by_blame([report for report in found if report.pair.step == found[0].pair.step], search_step(outcome, found[0].pair.step))


def search_step(outcome: Outcome, step: int | None) -> RankSearch:
    """The search over the ranks of one step, those without a difference included: they take part in communication too."""
    return search_ranks([report for report in outcome.reports if report.pair.step == step])


def by_blame(reports: Sequence[PairReport], search: RankSearch) -> list[PairReport]:
    """Reports of one step: first those whose difference came from no other rank, the earliest in the order of communication first."""

    def key(report: PairReport) -> tuple[bool, bool, int, int, bool]:
        rank = report.trail.rank
        # Of ranks that are equal otherwise, one that makes other calls than its golden run departed from it by itself.
        makes_the_same = report.other_calls or report.findings.unmatched is None
        if rank is None:
            return False, False, 0, _blame(report), makes_the_same
        blame = _blame(report)
        # What came out of a communication with a rank that was not compared explains less than a call that computes something else.
        return (
            rank in search.received,
            blame == _COMMUNICATES and rank not in search.alike,
            search.layer.get(rank, 0),
            blame,
            makes_the_same,
        )

    return sorted(reports, key=key)


def _counts(report: PairReport) -> bool:
    first = report.findings.first
    return first is not None and (not first.of_values or not first.within_rounding or report.findings.beyond_rounding is not None)


def _blame(report: PairReport) -> int:
    """A rank that computes something else comes before one with other data, and that before one that received something else: a
    gradient that was averaged over the ranks shows first in the optimizer, or in code that no recorded call explains."""
    first = report.findings.first
    if first is None or unmatched_first(report):
        return _COMPUTES
    if first.call.name.startswith("Distributed."):
        return _COMMUNICATES
    if first.kind == "first input":
        return _DATA
    return _RECEIVES if first.kind in _RECEIVED_KINDS or first.module == "optimizer" else _COMPUTES


def later_than(outcome: Outcome, report: PairReport) -> Sequence[PairReport]:
    """The reports of later steps, in their order."""
    step = report.pair.step
    return [other for other in outcome.reports if step is not None and other.pair.step is not None and other.pair.step > step]


def beyond_rounding(report: PairReport) -> tuple[FirstDifference, Location] | None:
    """The first difference of a report that is not within rounding, and where."""
    findings = report.findings
    if findings.beyond_rounding is not None:
        return findings.beyond_rounding, report.beyond
    if findings.first is not None and not findings.first.within_rounding:
        return findings.first, report.location
    return None
