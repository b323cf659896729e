"""The summary of a dump root: one row for each step and rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msprobe.comparison.headline import headline
from msprobe.comparison.inputs import DumpPair
from msprobe.comparison.outcome import Outcome, PairReport

COLUMNS = (
    "Step",
    "Rank",
    "Target",
    "Golden",
    "Matched",
    "Unmatched",
    "Pass",
    "Warning",
    "Error",
    "Not compared",
    "First difference",
    "Code line",
    "Result file",
    "Problem",
)


def table(outcome: Outcome) -> tuple[tuple[str, ...], Iterator[list[Any]]]:
    """Header and rows."""
    return COLUMNS, _rows(outcome)


def _rows(outcome: Outcome) -> Iterator[list[Any]]:
    reports = {id(report.pair): report for report in outcome.reports}
    failures = {id(failure.pair): failure for failure in outcome.failures}
    for pair in outcome.plan.pairs:
        report = reports.get(id(pair))
        if report is not None:
            yield _compared(report)
        elif id(pair) in failures:
            yield [*_place(pair), *[""] * 9, failures[id(pair)].message]
    for sentence in (*outcome.plan.one_sided, *outcome.plan.problems):
        yield [""] * 13 + [sentence]


def _place(pair: DumpPair) -> list[Any]:
    return ["" if pair.step is None else pair.step, pair.label, str(pair.target), str(pair.golden)]


def _compared(report: PairReport) -> list[Any]:
    counts, first = report.counts, report.findings.first
    return [
        *_place(report.pair),
        report.matched,
        counts["unmatched"],
        counts["pass"],
        counts["warning"],
        counts["error"],
        counts["not compared"],
        headline(first) if first is not None else "",
        str(report.location.at) if report.location.at is not None else "",
        report.csv.name if report.csv is not None else "",
        report.nothing_measured,
    ]
