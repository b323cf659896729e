"""The result for several runs in words and as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msprobe.comparison import report_csv
from msprobe.comparison.block import Line
from msprobe.comparison.communication import PREFIX
from msprobe.comparison.random_calls import draws_random_numbers
from msprobe.comparison.repeated.runs import CallRuns, First, Runs, Unit
from msprobe.comparison.repeated.table import SOURCE, listed
from msprobe.comparison.rows import Row, calls_of
from msprobe.errors import DumpFormatError
from msprobe.format import layout, reader

COLUMNS = ("Name", "Identical", "Distinct values", "Runs that agree", "Inputs", "Parameters", "Outputs", "Not compared", "Code line")
_BY = {"tensor": "the bytes of the tensors", "md5": "checksum", "statistics": "Max, Min, Mean and Norm, all four equal"}
_SHOWN_UNITS = 8
_SHOWN_GROUPS = 4
_SHOWN_ROWS = 2


def write(runs: Runs, output: Path) -> list[Path]:
    """Writes `repeated_runs_{rank}_{time}.csv` for each unit, of a dump root into `step{N}`; returns the paths in the order of the units.

    Raises:
        OSError: one cannot be written.
    """
    stamp = report_csv.timestamp()
    paths: list[Path] = []
    for unit in runs.units:
        step = unit.pair.step
        directory = Path(layout.step_dir(output, step)) if runs.level == "root" and step is not None else output
        stem = f"repeated_runs_{unit.pair.label}" if unit.pair.label else "repeated_runs"
        paths.append(report_csv.write(directory, stem, stamp, COLUMNS, map(_cells, unit.calls, [unit] * len(unit.calls))))
    return paths


def _cells(call: CallRuns, unit: Unit) -> list[Any]:
    words = [_word(groups, call.whole) for groups in (call.inputs, call.parameters, call.outputs)]
    frame = unit.frames.get(call.name)
    agree = " | ".join(" ".join(map(str, members)) for members in grouped(call.whole))
    return [call.name, not call.whole.count(-1) and call.identical, call.distinct, agree, *words, call.not_compared, str(frame or "")]


def _word(groups: Sequence[int], whole: Sequence[int]) -> str:
    if -1 in whole:
        return "not in all runs"
    return "differ" if any(groups) else "identical"


def grouped(groups: Sequence[int]) -> list[list[int]]:
    """The numbers of the runs, counted from 1, group by group; those that lack the call are in none."""
    found: dict[int, list[int]] = {}
    for run, group in enumerate(groups, 1):
        if group >= 0:
            found.setdefault(group, []).append(run)
    return list(found.values())


def describe(runs: Runs, paths: Sequence[Path]) -> Iterator[Line]:
    """What the user is told; the first call that is not identical comes last."""
    for number, path in enumerate(runs.paths, 1):
        yield Line(f"run {number}: {path}", "dim")
    for sentence in runs.one_sided:
        yield Line(f"not in all: {sentence}", "bad")
    for note in runs.notes:
        yield Line(f"note: {note}", "dim")
    shown = [unit for unit in runs.units if len(runs.units) <= _SHOWN_UNITS or unit.first is not None][:_SHOWN_UNITS]
    for unit in shown:
        yield from _counts(unit)
    more = [unit for unit in runs.units if all(unit is not other for other in shown)]
    alike = sum(unit.first is None for unit in more)
    if alike:
        yield Line(f"{alike} {'more' if shown else 'steps and ranks'}: all calls identical in all {len(runs.paths)} runs")
    if len(more) > alike:
        yield Line(f"... and {len(more) - alike} more that are not identical", "bad")
    if len(paths) <= _SHOWN_UNITS:
        yield from (Line(f"result: {path}") for path in paths)
    elif paths:
        yield Line(f"results: {len(paths)} files repeated_runs_*.csv in {paths[0].parent.parent}")
    found = [unit for unit in runs.units if unit.first is not None]
    yield Line("")
    if not found:
        if runs.units:
            what = "Everything recorded" if runs.exit_code == 0 else "What could be compared"
            yield Line(f"{what} is identical in all {len(runs.paths)} runs.", "good" if runs.exit_code == 0 else "bad")
        return
    chosen = min((unit for unit in found if unit.pair.step == found[0].pair.step), key=_blame)
    yield from _first(chosen, len(runs.units) > 1)


def _counts(unit: Unit) -> Iterator[Line]:
    same = sum(call.identical for call in unit.calls)
    title = f"{unit.pair.title}: " if unit.pair.title else ""
    rest = f", {len(unit.calls) - same} not" if same < len(unit.calls) else ""
    yield Line(f"{title}{same} of {len(unit.calls)} calls identical in all {len(unit.files)} runs{rest}", "bad" if rest else "good")
    yield Line(f"  compared by {_BY[unit.mode]}", "dim")
    lost = sum(call.not_compared for call in unit.calls)
    if lost:
        yield Line(f"  {lost} values have nothing to be compared by", "bad")


def _blame(unit: Unit) -> tuple[bool, bool]:
    """A rank whose call is nondeterministic by itself comes before one that may have received it."""
    first = unit.first
    assert first is not None
    return first.call.name.startswith(PREFIX), first.cause != "call"


def sentence(first: First) -> str:
    """The first call that is not identical, in one sentence."""
    name = first.call.name
    inside = f" in {first.module}" if first.module is not None else ""
    if first.cause == "missing":
        has = grouped(first.call.whole)
        runs = sorted(run for group in has for run in group)
        return f"{name}{inside} is in run {' and '.join(map(str, runs))} only: another way through the code"
    if first.cause == "parameters":
        return f"parameters of {name}{inside} differ (its inputs are identical): what set them, or updated them, is not deterministic"
    if first.cause == "first inputs":
        return f"the inputs of the first call, {name}{inside}, differ: the data, or its order, is not the same"
    if first.cause == "inputs":
        return f"the inputs of {name}{inside} differ, and no recorded call before it gave a difference: code before it is not deterministic"
    if draws_random_numbers(first.call.parts):
        return f"{name}{inside} draws random numbers (identical inputs, other outputs): seed it (seed_all), or switch it off"
    return f"{name}{inside} is not deterministic: its inputs and parameters are identical, its outputs are not"


def _first(unit: Unit, many: bool) -> Iterator[Line]:
    first = unit.first
    assert first is not None
    where = f" of {unit.pair.title}" if many and unit.pair.title else ""
    yield Line(f"First call that is not identical{where}: {sentence(first)}", "head")
    if first.frame is not None:
        yield Line(f"  at {first.frame}")
    sets = grouped(first.call.whole)
    yield Line(f"  {first.call.distinct} distinct recordings: {'; '.join(_runs(one) for one in sets)}")
    yield from _values(unit, first.call, sets)
    if first.cause == "call":
        yield from (Line(f"  {text}") for text in _known(first))


def _runs(members: Sequence[int]) -> str:
    return f"run {members[0]} alone" if len(members) == 1 else f"runs {', '.join(map(str, members))} agree"


def _known(first: First) -> Iterator[str]:
    """What is known of the operation."""
    parts = first.call.parts
    found = listed(parts)
    if found is not None:
        then = "raises an error" if found.raises else "takes a deterministic algorithm"
        yield f"torch lists {parts.base} as nondeterministic {found.when}; with {SOURCE}(True) it {then}"
    elif first.call.name.startswith(PREFIX):
        yield "a communication adds up in the order in which the ranks arrive, or received something else from a rank: see the other ranks"
    elif not draws_random_numbers(parts):
        kind = "module" if parts.is_module else "operation"
        yield (
            f"torch does not list this {kind} (documentation of {SOURCE}); usual reasons are sums in no fixed order (atomic additions,"
            " several threads), algorithms chosen by timing (cudnn.benchmark), and memory that nobody set"
        )


def _values(unit: Unit, call: CallRuns, sets: Sequence[Sequence[int]]) -> Iterator[Line]:
    """The first values that differ, of one run of each group."""
    shown = [members[0] for members in sets[:_SHOWN_GROUPS]]
    rows: dict[str, dict[int, Row]] = {}
    for run in shown:
        try:
            data = reader.read_dump(unit.files[run - 1]).data
            found = calls_of({call.name: data[call.name]}, "")
        except (DumpFormatError, KeyError):
            return
        for row in found[0].rows:
            rows.setdefault(row.key, {})[run] = row
    spelled = {key: {repr((row.value, row.statistics, row.md5)) for row in each.values()} for key, each in rows.items()}
    different = [(key, each) for key, each in rows.items() if len(spelled[key]) > 1]
    for key, each in different[:_SHOWN_ROWS]:
        yield Line(f"  {key}")
        for run, row in each.items():
            yield Line(f"    run {run}: {_shown(row)}")


def _shown(row: Row) -> str:
    if row.kind != "tensor":
        return str(row.value)
    values = [f"{name} {value}" for name, value in zip(("Max", "Min", "Mean", "Norm"), row.statistics, strict=True) if value is not None]
    return ", ".join([*values, *([f"checksum {row.md5}"] if row.md5 is not None else [])]) or f"{row.dtype} {row.shape}"
