"""Two paths -> pairs of dumps -> a report for each, and a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msprobe.comparison import jobs, remote, report_csv
from msprobe.comparison.inputs import DumpPair, Plan, make_plan
from msprobe.comparison.jobs import Progress
from msprobe.comparison.judging.reference import with_reference
from msprobe.comparison.options import DEFAULTS, Options
from msprobe.comparison.outcome import Failure, Outcome, PairReport
from msprobe.comparison.work import Unit, do
from msprobe.errors import UsageError
from msprobe.format import layout


def compare(
    target: str | Path,
    golden: str | Path,
    output: str | Path = "./output",
    options: Options = DEFAULTS,
    progress: Progress | None = None,
    *,
    last: bool = False,
) -> Outcome:
    """Compares two dumps and writes the CSV files.

    Args:
        target, golden: two dump.json, two directories of one process, two step directories or two dump roots.
        output: directory for the results, made if need be.
        options: how to pair, to measure and to report.
        progress: called with the number of pairs done, that of all, and the title of the last one.
        last: the process ends after this and need not give back its memory; for the command line.

    Raises:
        UsageError: the paths are not of one kind, hold no dump, or none of the pairs can be compared.
        DumpFormatError: the only pair there is cannot be read.
        OSError: the results cannot be written.
    """
    plan, units = _units(target, golden, Path(output), options)
    stamp = units[0].stamp if units else report_csv.timestamp()
    results = _results(plan, units, options, progress, last)
    reports = [result for result in results if isinstance(result, PairReport)]
    failures = [result for result in results if isinstance(result, Failure)]
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


def plan_of(target: Path, golden: Path, options: Options) -> Plan:
    """What is to be compared of two local paths. Raises UsageError as compare does."""
    _refuse(options)
    plan = make_plan(target, golden, options.steps, options.ranks, options.tensors.group())
    return plan if options.reference is None else with_reference(plan, target, Path(remote.local_path(options.reference)))


def _refuse(options: Options) -> None:
    if options.reference is not None and options.tensors.group() is not None:
        raise UsageError("--reference does not go with `shard` in the mapping file: a third dump would have to be put together, too")


def _units(target: str | Path, golden: str | Path, output: Path, options: Options) -> tuple[Plan, list[Unit]]:
    """What is to be done: the plan, and a unit of work for each of its pairs."""
    urls: Mapping[int, tuple[str, ...]] = {}
    _refuse(options)
    if any(remote.is_url(path) for path in (target, golden, options.reference or "")):
        plan, urls = remote.plan_of(target, golden, options)
    else:
        plan = plan_of(Path(target), Path(golden), options)
    stamp = report_csv.timestamp()
    pairs = enumerate(plan.pairs)
    return plan, [Unit(pair, _directory(output, plan, pair), stamp, options, urls.get(place)) for place, pair in pairs]


def _results(plan: Plan, units: Sequence[Unit], options: Options, progress: Progress | None, last: bool) -> list[PairReport | Failure]:
    """One for each pair, of the plan's own pairs."""
    if plan.level == "file" and options.cluster is None:
        return [do(units[0], last=last)]
    if options.cluster is not None:
        from msprobe.comparison import cluster

        results = [*cluster.run(units, options.cluster, progress)]
        if plan.level == "file" and isinstance(results[0], Failure):
            raise UsageError(results[0].message)
    else:
        results = [*jobs.run(units, jobs.number_of_jobs(units, options.jobs), progress)]
    return [replace(result, pair=pair) for result, pair in zip(results, plan.pairs, strict=True)]


def _directory(output: Path, plan: Plan, pair: DumpPair) -> Path:
    return Path(layout.step_dir(output, pair.step)) if plan.level == "root" and pair.step is not None else output
