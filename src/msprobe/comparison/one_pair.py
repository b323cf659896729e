"""The unit of work: one dump of the target against one of the golden side, through all stages to the files and a report."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from msprobe.comparison import gradient_slots, report_csv
from msprobe.comparison.alignment.notes import nested_otherwise
from msprobe.comparison.beginnings import advice as advice_to_seed
from msprobe.comparison.beginnings import with_beginnings
from msprobe.comparison.beside import parents_of, stacks_of
from msprobe.comparison.calls import Measured, MeasuredCall, execution_order
from msprobe.comparison.communication import trail_of
from msprobe.comparison.compared import Compared
from msprobe.comparison.first_difference import Findings, find
from msprobe.comparison.frameworks.naming import MINDSPORE
from msprobe.comparison.inputs import DumpPair
from msprobe.comparison.judge import Mode, all_pass, count, judge
from msprobe.comparison.judging import reference
from msprobe.comparison.judging.accepted import accept, accept_integers
from msprobe.comparison.judging.weighing import weigh
from msprobe.comparison.judging.weights import Weights, hold_to_casts
from msprobe.comparison.kinds import Held, choose
from msprobe.comparison.locations import location, unmatched_frame
from msprobe.comparison.mapping.composed import ComposingMeasurer
from msprobe.comparison.match import Around, CallPair, align
from msprobe.comparison.measure import Agreement, Measure, Measurer
from msprobe.comparison.measure_many import measure_calls
from msprobe.comparison.options import DEFAULTS, Options
from msprobe.comparison.outcome import PairReport
from msprobe.comparison.pairing import pair_up
from msprobe.comparison.previous_step import Gradients, gradients_of
from msprobe.comparison.propagation import trace
from msprobe.comparison.reading import read_calls
from msprobe.comparison.reasons import reasons
from msprobe.comparison.rows import Call
from msprobe.comparison.saved_lines import saved_lines
from msprobe.comparison.step_parts import by_optimizer
from msprobe.comparison.surroundings import differing
from msprobe.comparison.times import advice
from msprobe.comparison.tools import are_of_two_tools
from msprobe.comparison.unread import unread_of, without_unread
from msprobe.errors import UsageError
from msprobe.format import layout


def compare_pair(pair: DumpPair, output: Path, stamp: str, options: Options = DEFAULTS, *, last: bool = False) -> PairReport:
    """Compares two dump files and writes the files that the options ask for. What it takes and what it returns can be pickled.

    Args:
        pair, output, stamp, options: see Unit.
        last: the process ends after this, and all memory with it: the rows are not given back one by one.

    Raises:
        DumpFormatError: one of them cannot be read.
        UsageError: they hold different kinds of data, or have no value in common.
        OSError: a file cannot be written.
    """
    compared = examine(pair, options)
    if last:
        _keep(compared)
    report = report_of(compared, report_csv.write_pair(output, stem_of(pair), stamp, compared))
    if options.diff_analyze:
        from msprobe.comparison import diff_analyze

        diff_analyze.write_pair(output, stem_of(pair), stamp, compared)
    if not options.reports:
        return report
    from msprobe.comparison.reports.writing import write_reports

    return write_reports(report, compared, output, stem_of(pair), stamp, options)


def _keep(compared: Compared) -> None:
    """Neither reference counts nor the collector will ever free it: freeing a million rows takes a tenth of the time of comparing them."""
    kept: list[object] = [compared]
    kept.append(kept)
    gc.freeze()


def examine(pair: DumpPair, options: Options = DEFAULTS) -> Compared:
    """All stages up to the verdicts; writes nothing.

    Raises:
        DumpFormatError: one of the two cannot be read.
        UsageError: they hold different kinds of data, or have no value in common.
    """
    target = _read(pair.target)
    golden = _read(pair.golden, target.calls)
    if "structure" in (target.task, golden.task):
        from msprobe.comparison.structure import examine_structure

        return examine_structure(
            pair, options, (target.task, golden.task), (target.level, golden.level), (target.framework, golden.framework)
        )
    calls = target.calls, golden.calls
    mode, unlike = choose(Held(pair.target, target.task, target.calls), Held(pair.golden, golden.task, golden.calls))
    notes: list[str] = [*advice(*calls), *differing(pair.target, pair.golden), *([unlike] if unlike else [])]
    if options.tensors.prepare is not None:
        from msprobe.comparison.mapping.preparing import prepared

        if pair.reference is not None:
            raise UsageError("a mapping file with `prepare:` does not go with --reference; compare each of the two runs with the third")
        dumps, directories = (pair.target, pair.golden), (target.tensor_dir, golden.tensor_dir)
        calls = prepared(calls, options.tensors.prepare, dumps, directories, notes)
    parents, golden_parents = parents_of(pair.target, notes), parents_of(pair.golden, notes)
    two_frameworks = (target.framework == MINDSPORE) != (golden.framework == MINDSPORE)
    if two_frameworks:
        from msprobe.comparison.frameworks.pairs import comparable_calls

        calls = comparable_calls(calls, (parents, golden_parents), notes)
        calls = _as_in_pytorch(calls, (target, golden), notes, joins=not options.maps)
    stacks = stacks_of(pair.target, notes)
    golden_stack = cache(lambda: stacks_of(pair.golden, []) or {})
    around = Around(parents, lambda: stacks or {}), Around(golden_parents, golden_stack)
    paired = pair_up(pair, options, calls, around, (target.tensor_dir, golden.tensor_dir))
    if two_frameworks:
        from msprobe.comparison.frameworks.gradients import of_the_same_inputs
        from msprobe.comparison.frameworks.pairs import comparable_values
        from msprobe.comparison.frameworks.shapes import same_shapes

        values = comparable_values(of_the_same_inputs(paired.calls), notes)
        same, reshaped = same_shapes(values, (target.tensor_dir, golden.tensor_dir), notes)
        paired = paired._replace(calls=same, composed=paired.composed or reshaped)
    if not any(ours is not None and theirs is not None for call in paired.calls for ours, theirs in call.rows):
        why = nested_otherwise(paired.calls) or _of_levels(target.level, golden.level) or _first_names(calls)
        raise UsageError(f"no value of {pair.target} has a partner in {pair.golden}: {why}")
    measurer = _measurer(mode, target, golden)
    if paired.composed:
        measurer = ComposingMeasurer(measurer, mode, (target.tensor_dir, golden.tensor_dir))
    elsewhere = gradient_slots.not_measured(measurer.columns, "unsupported" if mode == "tensor" else "N/A")
    measured = measure_calls(paired.calls, measurer, paired.shifted, elsewhere)
    unread = unread_of(pair.target, notes), unread_of(pair.golden, notes)
    measured, not_recorded = without_unread(measured, *unread, measurer.columns, elsewhere.cells[0])
    if options.accept_dtype:
        measured = accept(measured, mode)
    if two_frameworks:
        measured = accept_integers(measured, mode)
    weights = Weights()
    if mode != "md5":
        measured, weights = hold_to_casts(weigh(measured, sampled=mode == "statistics"), parents, options.accept_dtype)
        notes += weights.said(options.accept_dtype)
    if target.level != golden.level:
        notes.append(
            f"the target was recorded at level {target.level}, the golden run at {golden.level}: calls of one level only have no partner"
        )
    notes += paired.notes
    two_tools = mode == "statistics" and are_of_two_tools(pair.target, pair.golden, calls, notes)
    findings = find(
        measured,
        parents,
        golden_parents,
        may_be_exact=not two_tools,
        again=paired.again,
        accept_dtype=options.accept_dtype,
        levels=(target.level, golden.level),
    )
    findings = with_beginnings(findings, measured, pair.step, options.accept_dtype)
    if findings.unseeded:
        notes.append(advice_to_seed(pair.target, pair.golden))
    verdicts = judge(measured, mode, _starts(findings), options.accept_dtype, two_frameworks)
    quiet = findings.first is None and findings.unmatched is None
    return Compared(
        pair=pair,
        mode=mode,
        metrics=tuple(measurer.columns),
        matched=sum(map(len, verdicts)) - count(verdicts)["unmatched"],
        calls=measured,
        verdicts=verdicts,
        findings=findings,
        stacks=stacks,
        golden_stacks={} if quiet else golden_stack() or saved_lines(pair.golden),
        parents=parents,
        golden_parents=golden_parents,
        other_calls=two_tools or target.level != golden.level,
        notes=tuple(notes),
        truths=_truths(measured, pair, target, golden, options) if pair.reference is not None else None,
        tensor_dirs=(target.tensor_dir, golden.tensor_dir),
        saved_at=saved_lines(pair.target),
        not_recorded=not_recorded,
        not_judged=weights.not_judged,
    )


def _as_in_pytorch(
    calls: tuple[list[Call], list[Call]], sides: tuple[_Side, _Side], notes: list[str], joins: bool
) -> tuple[list[Call], list[Call]]:
    """Both sides' calls, MindSpore's primitives in the shape of PyTorch's functions. `joins`: several may become one."""
    from msprobe.comparison.frameworks.joined import in_pytorch_order, joined

    place = 0 if sides[0].framework == MINDSPORE else 1
    ours, theirs = in_pytorch_order(calls[place]), calls[1 - place]
    if joins:
        ours = joined(ours, theirs, sides[place].tensor_dir, notes)
    return (ours, theirs) if place == 0 else (theirs, ours)


def _truths(
    calls: Sequence[MeasuredCall], pair: DumpPair, target: _Side, golden: _Side, options: Options
) -> list[tuple[reference.Truth, ...]]:
    assert pair.reference is not None
    truth = _read(pair.reference)
    beside = _around(pair.reference)
    if options.maps:
        return _truths_by_mapping(calls, pair, (target, golden, truth), beside, options)
    errors = [
        reference.errors_of(_against(side, truth, (_around(path), beside))) for side, path in ((target, pair.target), (golden, pair.golden))
    ]
    return reference.truths(calls, errors[0], errors[1])


def _truths_by_mapping(
    calls: Sequence[MeasuredCall], pair: DumpPair, sides: tuple[_Side, _Side, _Side], beside: Around, options: Options
) -> list[tuple[reference.Truth, ...]]:
    """Where names are mapped: what a value of the target is compared with in the reference, the golden value is held against, too."""
    target, golden, truth = sides
    around = _around(pair.target), beside
    if reference.is_built_like(truth.calls, golden.calls, target.calls):
        plain = replace(pair, target_group=(), golden_group=())
        pairs = pair_up(plain, options, (target.calls, truth.calls), around, (target.tensor_dir, truth.tensor_dir)).calls
    else:
        pairs = align(target.calls, truth.calls, around).pairs
    errors = [
        reference.errors_of(_measured(of, side, truth))
        for of, side in ((gradient_slots.realigned(pairs)[0], target), (reference.golden_pairs(calls, pairs), golden))
    ]
    return reference.truths(calls, errors[0], errors[1], by_target=True)


def _measured(pairs: Sequence[CallPair], side: _Side, truth: _Side) -> list[MeasuredCall]:
    mode: Mode = "tensor" if side.task == truth.task == "tensor" else "statistics"
    measurer: Measurer = ComposingMeasurer(_measurer(mode, side, truth), mode, (side.tensor_dir, truth.tensor_dir))
    return weigh(measure_calls(pairs, measurer, (), gradient_slots.not_measured(measurer.columns, "N/A")), sampled=mode == "statistics")


def _against(side: _Side, truth: _Side, around: tuple[Around, Around]) -> list[MeasuredCall]:
    mode: Mode = "tensor" if side.task == truth.task == "tensor" else "statistics"
    measurer = _measurer(mode, side, truth)
    calls: tuple[list[Call], list[Call]] = (side.calls, truth.calls)
    two_frameworks = (side.framework == MINDSPORE) != (truth.framework == MINDSPORE)
    if two_frameworks:
        calls = _as_in_pytorch(calls, (side, truth), [], joins=True)
    pairs, shifted = gradient_slots.realigned(align(*calls, around).pairs)
    if two_frameworks:
        from msprobe.comparison.frameworks.gradients import of_the_same_inputs

        pairs = of_the_same_inputs(pairs)
    measured = measure_calls(pairs, measurer, shifted, gradient_slots.not_measured(measurer.columns, "N/A"))
    return weigh(measured, sampled=mode == "statistics")


def _around(dump: Path) -> Around:
    return Around(parents_of(dump, []), cache(lambda: stacks_of(dump, []) or {}))


def report_of(compared: Compared, csv: Path | None) -> PairReport:
    """What remains of a comparison when its rows are on disk. `csv`: the file, None when none was written."""
    measured, findings = compared.calls, compared.findings
    groups = zip(measured, compared.verdicts, strict=True)
    lost = [
        row
        for call, group in groups
        if group is not all_pass(len(group))
        for row in call.rows
        if row.measure is not None and row.measure.lost
    ]
    stacks = compared.frames, compared.golden_stacks
    order = execution_order(measured)
    return PairReport(
        compared.pair,
        compared.mode,
        csv,
        compared.matched,
        count(compared.verdicts),
        len(lost),
        _example(lost),
        _nothing_measured(measured),
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
        reference.tally(measured, compared.truths, findings.first) if compared.truths is not None else None,
        not_recorded=compared.not_recorded,
        not_judged=compared.not_judged,
        by_optimizer=by_optimizer(compared),
    )


class _Side(NamedTuple):
    """What is kept of one dump file; the JSON itself, several times as large, is not."""

    task: str
    level: str | None
    tensor_dir: Path
    calls: list[Call]
    framework: str | None


def _read(path: Path, like: Sequence[Call] = ()) -> _Side:
    dump, calls = read_calls(path, like)
    if dump.task == "structure":
        return _Side(dump.task, dump.level, dump.tensor_dir, [], dump.framework)
    if dump.task not in ("statistics", "tensor"):
        raise UsageError(
            f"{path} was recorded with task {dump.task!r}, which holds no values to compare: record both runs with task statistics or"
            " tensor (with structure, the calls alone are compared)"
        )
    if not calls:
        raise UsageError(f"{path} holds no data: nothing was recorded in this step")
    return _Side(dump.task, dump.level, dump.tensor_dir, calls, dump.framework)


def _of_levels(target: str | None, golden: str | None) -> str:
    if {target, golden} != {"L0", "L1"}:
        return ""
    return f"level {target} recorded the one, level {golden} the other, L0 modules and L1 the calls inside; record both at one level"


def _measurer(mode: Mode, target: _Side, golden: _Side) -> Measurer:
    if mode == "tensor":
        from msprobe.comparison.measure_tensors import TensorMeasurer

        return TensorMeasurer(target.tensor_dir, golden.tensor_dir)
    if mode == "md5":
        from msprobe.comparison.measure_md5 import Md5Measurer

        return Md5Measurer()
    if target.tensor_dir.is_dir() and golden.tensor_dir.is_dir():  # tensor_list
        from msprobe.comparison.measure_mixed import MixedMeasurer

        return MixedMeasurer(target.tensor_dir, golden.tensor_dir)
    from msprobe.comparison.measure_statistics import StatisticsMeasurer

    return StatisticsMeasurer()


def _starts(findings: Findings) -> set[str]:
    names: set[str] = set()
    for difference in (findings.first, findings.value, findings.beyond_rounding):
        if difference is not None:
            names |= {difference.call.name, difference.shows_at}
            if difference.kind == "own code" and difference.module is not None:
                names.add(difference.module)
    return names


def stem_of(pair: DumpPair) -> str:
    """The begin of the name of every file that is made of a pair: `compare_result_rank0`."""
    stem = "debug_compare_result" if pair.target.name == layout.DEBUG else "compare_result"
    return f"{stem}_{pair.label}" if pair.label else stem


def _first_names(calls: tuple[Sequence[Call], Sequence[Call]]) -> str:
    shown = [", ".join(call.name for call in side[:2]) for side in calls]
    return f"the target begins with {shown[0]}; the golden dump with {shown[1]}"


def _nothing_measured(calls: Sequence[MeasuredCall]) -> str:
    measures: list[Measure] = []
    for call in calls:
        for row in call.rows:
            if row.measure is not None and row.measure.agreement is not Agreement.UNKNOWN:
                return ""
        measures += [row.measure for row in call.rows if row.measure is not None]
    return f"none of the {len(measures)} pairs of values could be compared; the first: {measures[0].reason}"


def _example(lost: Sequence[Measured]) -> str:
    if not lost or lost[0].pair.target is None or lost[0].measure is None:
        return ""
    return f"{lost[0].pair.target.name}: {lost[0].measure.reason}"
