"""Two dumps of which one at least holds no values (task structure): compared call by call.

The same calls, in the same order, in the same modules, from the same lines of code. A row stands for a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msprobe.comparison.alignment.notes import pairing_notes
from msprobe.comparison.alignment.sequence import increasing
from msprobe.comparison.beside import parents_of, stacks_of
from msprobe.comparison.calls import MeasuredCall, summarise
from msprobe.comparison.compared import Compared
from msprobe.comparison.first_difference import find
from msprobe.comparison.frameworks.naming import MINDSPORE
from msprobe.comparison.inputs import DumpPair
from msprobe.comparison.judge import Verdict, judge
from msprobe.comparison.mapping.names import renaming
from msprobe.comparison.match import Around, CallPair, RowPair, align
from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.names import parse
from msprobe.comparison.options import Options
from msprobe.comparison.rows import Call, Row
from msprobe.comparison.stacks import Frame, frames_of, locate
from msprobe.comparison.times import advice
from msprobe.errors import UsageError

ORDER = "error: The call is made in another order."
MODULE = "error: The call is made in another module: {}, in the golden run {}."
LINE = "warning: The line of code reads otherwise: {} / {}"

_SAME = Measure((), Agreement.SAME)
_NOTHING = (None, None, None, None)


def examine_structure(
    pair: DumpPair,
    options: Options,
    tasks: tuple[str, str],
    levels: tuple[str | None, str | None],
    frameworks: tuple[str | None, str | None] = (None, None),
) -> Compared:
    """All stages up to the verdicts.

    Args:
        pair, options: as for every pair.
        tasks, levels, frameworks: those of target and golden run.

    Raises:
        UsageError: a side holds no calls, or none of them has a partner.
    """
    notes: list[str] = []
    if tasks[0] != tasks[1]:
        told = f"the target was recorded with task {tasks[0]}, the golden run with task {tasks[1]}"
        notes.append(f"{told}: the calls are compared, no values")
    if levels[0] != levels[1]:
        told = f"the target was recorded at level {levels[0]}, the golden run at {levels[1]}"
        notes.append(f"{told}: calls of one level only have no partner")
    parents = parents_of(pair.target, notes), parents_of(pair.golden, notes)
    stacks = stacks_of(pair.target, notes), stacks_of(pair.golden, notes)
    sides = [_calls(pair.target, frameworks[0], parents[0], stacks[0]), _calls(pair.golden, frameworks[1], parents[1], stacks[1])]
    two_frameworks = (frameworks[0] == MINDSPORE) != (frameworks[1] == MINDSPORE)
    if two_frameworks:
        from msprobe.comparison.frameworks.pairs import comparable_calls

        alike = comparable_calls((sides[0], sides[1]), parents, notes)
        sides = [[call for call in side if call.parts.direction == "forward"] for side in alike]
        notes.append(
            "of two frameworks the forward calls are compared: each has its own order of the backward pass, and other lines of code"
        )
    rename = renaming(options.names, *sides)
    around = Around(parents[0], lambda: stacks[0] or {}), Around(parents[1], lambda: stacks[1] or {})
    matching = align(sides[0], sides[1], around, rename=rename, by_api_alone=options.fuzzy)
    pairs = [_whole(call) for call in matching.pairs]
    matched = [call for call in pairs if call.target is not None and call.golden is not None]
    if not matched:
        raise UsageError(f"no call of {pair.target} has a partner in {pair.golden}")
    calls = [summarise(call, [_SAME if ours is not None and theirs is not None else None for ours, theirs in call.rows]) for call in pairs]
    notes += [*advice(*sides), *pairing_notes(matching, rename)]
    findings = replace(find(calls, *parents), exact=True, first=None, value=None, beyond_rounding=None)
    return Compared(
        pair=pair,
        mode="structure",
        metrics=(),
        matched=len(matched),
        calls=calls,
        verdicts=_verdicts(calls, parents, ({}, {}) if two_frameworks else (stacks[0] or {}, stacks[1] or {}), sides[1]),
        findings=findings,
        stacks=stacks[0],
        golden_stacks=stacks[1] or {},
        parents=parents[0],
        golden_parents=parents[1],
        other_calls=levels[0] != levels[1],
        notes=tuple(notes),
    )


def _calls(path: Path, framework: str | None, parents: Mapping[str, str | None], stacks: Mapping[str, Sequence[str]] | None) -> list[Call]:
    names = dict.fromkeys([*parents, *(stacks or {})])
    if not names:
        raise UsageError(f"{path} holds no calls: neither construct.json nor stack.json beside it names any")
    return [Call(name, parse(name, framework), (_row(name),)) for name in names]


def _row(name: str) -> Row:
    return Row(name, "", "output", "null", "N/A", "N/A", "N/A", _NOTHING, None, None, None)


def _whole(call: CallPair) -> CallPair:
    """The one row of a call with the one row of its partner."""
    ours, theirs = call.target, call.golden
    return call._replace(rows=(RowPair(ours.rows[0] if ours is not None else None, theirs.rows[0] if theirs is not None else None),))


def _verdicts(
    calls: Sequence[MeasuredCall],
    parents: tuple[Mapping[str, str | None], Mapping[str, str | None]],
    stacks: tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]],
    golden: Sequence[Call],
) -> list[tuple[Verdict, ...]]:
    partners = {call.name: call.pair.golden.name for call in calls if call.matched and call.pair.golden is not None}
    place = {call.name: index for index, call in enumerate(golden)}
    order = [(index, place[partners[call.name]]) for index, call in enumerate(calls) if call.name in partners]
    in_order = {index for index, _ in increasing(order)}
    verdicts = judge(calls, "structure", ())
    for index, call in enumerate(calls):
        partner = partners.get(call.name) if call.pair.target is not None else None
        if partner is None:
            continue
        messages: list[str] = [] if index in in_order else [ORDER]
        outer, outer_there = parents[0].get(call.name), parents[1].get(partner)
        if parents[0] and parents[1] and (partners.get(outer) if outer is not None else None) != outer_there:
            messages.append(MODULE.format(outer or "no module", outer_there or "no module"))
        lines = _user_line(call.name, stacks[0]), _user_line(partner, stacks[1])
        if lines[0] is not None and lines[1] is not None and lines[0].source != lines[1].source:
            messages.append(LINE.format(lines[0], lines[1]))
        if messages:
            verdicts[index] = (Verdict("error" if messages[0].startswith("error") else "warning", tuple(messages)),)
    return verdicts


def _user_line(name: str, stacks: Mapping[str, Sequence[str]]) -> Frame | None:
    return locate(frames_of(name, stacks))[0]
