"""Two paths -> pairs of dumps -> a report for each, and a summary."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from msprobe.comparison import report_csv
from msprobe.comparison.inputs import DumpPair, Plan, make_plan
from msprobe.comparison.judging.reference import with_reference
from msprobe.comparison.kinds import KindsDiffer
from msprobe.comparison.one_pair import compare_pair
from msprobe.comparison.options import DEFAULTS, Options
from msprobe.comparison.outcome import Failure, Outcome, PairReport
from msprobe.errors import DumpFormatError, UsageError
from msprobe.format import layout


def compare(
    target: str | Path,
    golden: str | Path,
    output: str | Path = "./output",
    options: Options = DEFAULTS,
) -> Outcome:
    """Compares two dumps and writes the CSV files.

    Args:
        target, golden: two dump.json, two directories of one process, two step directories or two dump roots.
        output: directory for the results, made if need be.
        options: how to pair, to measure and to report.

    Raises:
        UsageError: the paths are not of one kind, hold no dump, or none of the pairs can be compared.
        DumpFormatError: the only pair there is cannot be read.
        OSError: the results cannot be written.
    """
    plan = make_plan(Path(target), Path(golden), options.steps, options.ranks)
    if options.reference is not None:
        plan = with_reference(plan, Path(target), Path(options.reference))
    stamp = report_csv.timestamp()
    reports: list[PairReport] = []
    failures: list[Failure] = []
    for pair in plan.pairs:
        try:
            with _without_collector():
                reports.append(compare_pair(pair, _directory(Path(output), plan, pair), stamp, options))
        except (DumpFormatError, UsageError) as error:
            if plan.level == "file":
                raise
            failures.append(Failure(pair, str(error), "kinds" if isinstance(error, KindsDiffer) else ""))
    outcome = Outcome(plan, tuple(reports), tuple(failures))
    if options.diff_analyze:
        from msprobe.comparison import diff_analyze

        directories = {pair.step: _directory(Path(output), plan, pair) for pair in plan.pairs}
        outcome = replace(outcome, analyses=tuple(diff_analyze.write_searches(outcome, directories)))
    if "html" in options.reports:
        from msprobe.comparison.reports import report_html

        outcome = replace(outcome, html=report_html.write(outcome, Path(output), stamp))
    if plan.level != "root":
        return outcome
    from msprobe.comparison import report_summary

    header, lines = report_summary.table(outcome)
    path = report_csv.write(Path(output), "summary", stamp, header, lines)
    return replace(outcome, summary=path)


def _directory(output: Path, plan: Plan, pair: DumpPair) -> Path:
    return Path(layout.step_dir(output, pair.step)) if plan.level == "root" and pair.step is not None else output


@contextmanager
def _without_collector() -> Iterator[None]:
    """Hundreds of thousands of rows are built and none is garbage: the cycle collector would walk them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
