"""The unit of work: one dump of the target against one of the golden side, through all stages to the files and a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from msprobe.comparison import gradient_slots, report_csv
from msprobe.comparison.alignment.notes import pairing_notes
from msprobe.comparison.calls import Measured, execution_order
from msprobe.comparison.communication import trail_of
from msprobe.comparison.compared import Compared
from msprobe.comparison.first_difference import Findings, find
from msprobe.comparison.inputs import DumpPair
from msprobe.comparison.judge import Mode, count, judge
from msprobe.comparison.judging.weighing import weigh
from msprobe.comparison.kinds import Held, choose
from msprobe.comparison.locations import location, unmatched_frame
from msprobe.comparison.mapping.names import renaming
from msprobe.comparison.match import Around, align, unknown_names
from msprobe.comparison.measure import Agreement, Measure, Measurer
from msprobe.comparison.measure_many import measure_calls
from msprobe.comparison.options import DEFAULTS, Options
from msprobe.comparison.outcome import PairReport
from msprobe.comparison.previous_step import Gradients, gradients_of
from msprobe.comparison.propagation import trace
from msprobe.comparison.reading import read_calls
from msprobe.comparison.reasons import reasons
from msprobe.comparison.rows import Call
from msprobe.comparison.tools import are_of_two_tools
from msprobe.errors import DumpFormatError, UsageError
from msprobe.format import layout, reader

_T = TypeVar("_T")


def compare_pair(pair: DumpPair, output: Path, stamp: str, options: Options = DEFAULTS) -> PairReport:
    """Compares two dump files and writes the files that the options ask for. What it takes and what it returns can be pickled.

    Raises:
        DumpFormatError: one of them cannot be read.
        UsageError: they hold different kinds of data, or have no value in common.
        OSError: a file cannot be written.
    """
    compared = examine(pair, options)
    report = report_of(compared, report_csv.write_pair(output, _stem(pair), stamp, compared))
    if options.diff_analyze:
        from msprobe.comparison import diff_analyze

        diff_analyze.write_pair(output, _stem(pair), stamp, compared)
    if not options.reports:
        return report
    from msprobe.comparison.reports.writing import write_reports

    return write_reports(report, compared, output, _stem(pair), stamp, options)


def examine(pair: DumpPair, options: Options = DEFAULTS) -> Compared:
    """All stages up to the verdicts; writes nothing.

    Raises:
        DumpFormatError: one of the two cannot be read.
        UsageError: they hold different kinds of data, or have no value in common.
    """
    target = _read(pair.target)
    golden = _read(pair.golden, target.calls)
    calls = target.calls, golden.calls
    mode, unlike = choose(Held(pair.target, target.task, target.calls), Held(pair.golden, golden.task, golden.calls))
    mapping = options.data_mapping
    notes: list[str] = [unlike] if unlike else []
    parents = _optional(reader.read_construct, pair.target, layout.CONSTRUCT, notes, _NO_MODULES) or {}
    golden_parents = _optional(reader.read_construct, pair.golden, layout.CONSTRUCT, notes, _NO_MODULES) or {}
    stacks = _optional(reader.read_stack, pair.target, layout.STACK, notes, _NO_LINES)
    golden_stack = cache(lambda: _optional(reader.read_stack, pair.golden, layout.STACK, [], _NO_LINES) or {})
    around = Around(parents, lambda: stacks or {}), Around(golden_parents, golden_stack)
    rename = renaming(options.names, *calls)
    matching = align(*calls, around, rename=rename, mapping=mapping, by_api_alone=options.fuzzy)
    pairs, shifted = gradient_slots.realigned(matching.pairs)
    matched = sum(1 for call in pairs for ours, theirs in call.rows if ours is not None and theirs is not None)
    if not matched:
        raise UsageError(f"no value of {pair.target} has a partner in {pair.golden}: {_first_names(calls)}")
    measurer = _measurer(mode, target, golden)
    elsewhere = gradient_slots.not_measured(measurer.columns, "unsupported" if mode == "tensor" else "N/A")
    measured = measure_calls(pairs, measurer, shifted, elsewhere)
    if mode != "md5":
        measured = weigh(measured, sampled=mode == "statistics")
    if target.level != golden.level:
        notes.append(
            f"the target was recorded at level {target.level}, the golden run at {golden.level}: calls of one level only have no partner"
        )
    missing = unknown_names(*calls, mapping) if mapping else []
    if missing:
        notes.append(f"the mapping file names {len(missing)} rows that do not exist, the first: {missing[0]}")
    notes += pairing_notes(matching, rename)
    two_tools = mode == "statistics" and are_of_two_tools(pair.target, pair.golden, calls, notes)
    findings = find(measured, parents, golden_parents, may_be_exact=not two_tools)
    verdicts = judge(measured, mode, _starts(findings))
    quiet = findings.first is None and findings.unmatched is None
    return Compared(
        pair=pair,
        mode=mode,
        metrics=tuple(measurer.columns),
        matched=matched,
        calls=measured,
        verdicts=verdicts,
        findings=findings,
        stacks=stacks,
        golden_stacks={} if quiet else golden_stack(),
        parents=parents,
        golden_parents=golden_parents,
        other_calls=two_tools or target.level != golden.level,
        notes=tuple(notes),
        tensor_dirs=(target.tensor_dir, golden.tensor_dir),
    )


def report_of(compared: Compared, csv: Path | None) -> PairReport:
    """What remains of a comparison when its rows are on disk. `csv`: the file, None when none was written."""
    measured, findings = compared.calls, compared.findings
    measures = [row.measure for call in measured for row in call.rows if row.measure is not None]
    lost = [row for call in measured for row in call.rows if row.measure is not None and row.measure.lost]
    stacks = compared.stacks or {}, compared.golden_stacks
    order = execution_order(measured)
    return PairReport(
        compared.pair,
        compared.mode,
        csv,
        compared.matched,
        count(compared.verdicts),
        len(lost),
        _example(lost),
        _nothing_measured(measures),
        findings,
        reasons(measured, compared.verdicts),
        compared.other_calls,
        location(findings.first, *stacks),
        location(findings.value, *stacks),
        location(findings.beyond_rounding, *stacks),
        unmatched_frame(findings, *stacks),
        compared.notes,
        trail_of(compared, order),
        gradients_of(order, findings.exact, stacks[0]) if compared.pair.step is not None else Gradients(),
        trace(compared, order),
    )


class _Side(NamedTuple):
    """What is kept of one dump file; the JSON itself, several times as large, is not."""

    task: str
    level: str | None
    tensor_dir: Path
    calls: list[Call]


def _read(path: Path, like: Sequence[Call] = ()) -> _Side:
    dump, calls = read_calls(path, like)
    if dump.task == "structure":
        raise UsageError(f"{path} was recorded with task structure: it holds names and no values")
    if dump.task not in ("statistics", "tensor"):
        raise UsageError(f"{path} was recorded with task {dump.task!r}; compare knows statistics and tensor")
    if not calls:
        raise UsageError(f"{path} holds no data: nothing was recorded in this step")
    return _Side(dump.task, dump.level, dump.tensor_dir, calls)


def _measurer(mode: Mode, target: _Side, golden: _Side) -> Measurer:
    if mode == "tensor":
        from msprobe.comparison.measure_tensors import TensorMeasurer

        return TensorMeasurer(target.tensor_dir, golden.tensor_dir)
    if mode == "md5":
        from msprobe.comparison.measure_md5 import Md5Measurer

        return Md5Measurer()
    from msprobe.comparison.measure_statistics import StatisticsMeasurer

    return StatisticsMeasurer()


def _starts(findings: Findings) -> set[str]:
    names: set[str] = set()
    for difference in (findings.first, findings.value, findings.beyond_rounding):
        if difference is not None:
            names.add(difference.call.name)
            if difference.kind == "own code" and difference.module is not None:
                names.add(difference.module)
    return names


def _stem(pair: DumpPair) -> str:
    stem = "debug_compare_result" if pair.target.name == layout.DEBUG else "compare_result"
    return f"{stem}_{pair.label}" if pair.label else stem


def _first_names(calls: tuple[Sequence[Call], Sequence[Call]]) -> str:
    shown = [", ".join(call.name for call in side[:2]) for side in calls]
    return f"the target begins with {shown[0]}; the golden dump with {shown[1]}"


_NO_LINES = "no lines of code can be shown"
_NO_MODULES = "modules around calls cannot be named"


def _optional(
    read: Callable[[Path], Mapping[str, _T]], dump: Path, name: str, notes: list[str], consequence: str
) -> Mapping[str, _T] | None:
    path = dump.parent / name
    if not path.is_file():
        if dump.name == layout.DEBUG or name == layout.CONSTRUCT:  # values saved by hand never have one; calls alone have no modules
            return None
        notes.append(f"{path} does not exist: {consequence}")
        return None
    try:
        return read(path)
    except DumpFormatError as error:
        notes.append(f"{error}: {consequence}")
        return None


def _nothing_measured(measures: Sequence[Measure]) -> str:
    if any(measure.agreement is not Agreement.UNKNOWN for measure in measures):
        return ""
    return f"none of the {len(measures)} pairs of values could be compared; the first: {measures[0].reason}"


def _example(lost: Sequence[Measured]) -> str:
    if not lost or lost[0].pair.target is None or lost[0].measure is None:
        return ""
    return f"{lost[0].pair.target.name}: {lost[0].measure.reason}"
