"""What one run says of each module call: what it was given, what arrived, what it gave out, each measured against the golden dump."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from msprobe.comparison import report_csv
from msprobe.comparison.calls import Measured, MeasuredCall
from msprobe.comparison.compared import Compared
from msprobe.comparison.inputs import DumpPair
from msprobe.comparison.measure import Agreement
from msprobe.comparison.one_pair import examine
from msprobe.comparison.rows import Row
from msprobe.comparison.stacks import Frame, frames_of, locate
from msprobe.errors import DumpFormatError
from msprobe.format import isolation, layout, names
from msprobe.isolation.differences import Difference, beyond_slight, difference_of, none_or_tensor, of_line
from msprobe.isolation.golden import GoldenRank, is_forward
from msprobe.isolation.gradients import code_or_call, first_wrong
from msprobe.isolation.other_containers import realigned


@dataclass(frozen=True)
class CallFacts:
    """What a run says of one forward call of a module.

    Attributes:
        name: of the call.
        parent: the call around it, None at the top.
        arrived: inputs as they came, before golden ones took their place, that differ.
        arguments: arguments without values of their own (numbers, texts, None) that differ, or that one side alone has.
        given: inputs that the call worked on although they are not those of the golden run.
        parameters, outputs: those that differ.
        unknown: values that could not be compared, and why.
        mutated: inputs that the call changed in place.
        sources: key of an input that arrived wrong -> the earlier calls that gave out this very content in the golden run.
        frame: the line that makes the call: the nearest one outside torch.
    """

    name: str
    parent: str | None = None
    arrived: tuple[Difference, ...] = ()
    arguments: tuple[Difference, ...] = ()
    given: tuple[Difference, ...] = ()
    parameters: tuple[Difference, ...] = ()
    outputs: tuple[Difference, ...] = ()
    unknown: tuple[str, ...] = ()
    mutated: tuple[str, ...] = ()
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    frame: Frame | None = None


@dataclass(frozen=True)
class Evidence:
    """What a run says of one rank.

    Attributes:
        label: of the golden rank.
        calls: those that both runs made, in the order in which they began.
        missing, extra: calls that the golden run alone, and that this run alone has made. A call that the golden run made and did not
            record is neither.
        code: name of a module -> `file:line` of its forward, where that is not torch's own; of the model itself for "".
        ends: the same -> its last line.
        buffers: name of a module -> names of its buffers, which no dump holds.
        random: modules that draw random numbers while training: dropout.
        backward: what is wrong with the gradients, in words (gradients.py); "" where nothing is.
        has_backward: both runs recorded a backward pass.
        not_replaced: calls none of whose inputs was replaced although both runs have tensors there; () where nothing was replaced at all.
        csv: the comparison's file, None where none was written.
    """

    label: str
    calls: tuple[CallFacts, ...]
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    code: Mapping[str, str] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)
    buffers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    random: frozenset[str] = frozenset()
    backward: str = ""
    has_backward: bool = True
    not_replaced: tuple[str, ...] = ()
    csv: Path | None = None


def gather(directory: Path, golden: GoldenRank, output: Path | None = None) -> Evidence:
    """Reads what a run left in the directory of one rank.

    Args:
        directory: of the run's dump: `.../step0/rank0`.
        golden: what it is measured against.
        output: where the CSV of the comparison goes; None for none.

    Raises:
        DumpFormatError, UsageError: the two cannot be compared.
        OSError: the CSV cannot be written.
    """
    compared = examine(DumpPair(directory / layout.DUMP, golden.directory / layout.DUMP, None, golden.label))
    known = [index for index, call in enumerate(compared.calls) if call.pair.target is not None or call.parts.is_module]
    compared = replace(  # of a golden dump of level mix: its APIs are not looked at here
        compared, calls=[compared.calls[index] for index in known], verdicts=[compared.verdicts[index] for index in known]
    )
    csv = None
    if output is not None:
        lines = report_csv.rows_of(compared)
        csv = report_csv.write(output, f"isolate_{golden.label}", report_csv.timestamp(), report_csv.header(compared), lines)
    compared = realigned(compared)
    arrived, mutated, replaced = _arrived(directory)
    matched = {call.name: call for call in compared.calls if call.matched and is_forward(call.name)}
    begun = [name for name in compared.parents if name in matched]
    begun += [name for name in matched if name not in compared.parents]
    sources = _Sources(golden, matched)
    facts = []
    for name in begun:
        call = matched[name]
        differing = tuple(arrived.get(name, ()))
        facts.append(
            replace(
                _facts(call, {difference.key for difference in differing}),
                parent=_parent(name, compared.parents, matched),
                arrived=differing,
                mutated=tuple(mutated.get(name, ())),
                sources={difference.key: source for difference in differing if (source := sources.of(call, difference.key))},
                frame=_frame(name, compared),
            )
        )
    modules = _modules(directory)
    forwards = [call for call in compared.calls if is_forward(call.name) and not call.matched]
    return Evidence(
        golden.label,
        tuple(facts),
        tuple(call.name for call in forwards if call.pair.target is None),
        tuple(call.name for call in forwards if call.pair.golden is None and call.name not in golden.parents),
        {name: known.forward for name, known in modules.items() if known.forward},
        {name: known.last for name, known in modules.items() if known.forward},
        {name: known.buffers for name, known in modules.items() if known.buffers},
        frozenset(name for name, known in modules.items() if known.random),
        _backward(compared, modules, facts),
        any(call.matched and call.parts.direction == names.BACKWARD for call in compared.calls),
        tuple(name for name in begun if replaced and name not in replaced and _takes_tensors(matched[name])),
        csv,
    )


def _facts(call: MeasuredCall, arrived: set[str]) -> CallFacts:
    arguments: list[Difference] = []
    given: list[Difference] = []
    parameters: list[Difference] = []
    outputs: list[Difference] = []
    unknown: list[str] = []
    for row in call.rows:
        ours, theirs = row.pair
        known = ours or theirs
        if known is None or known.role == "parameters_grad":
            continue
        if row.measure is not None and row.measure.agreement is Agreement.UNKNOWN and row.measure.lost:
            unknown.append(f"{known.key}: {row.measure.reason}")
        difference = (none_or_tensor(row) if known.role == "input" else None) or difference_of(row)
        if difference is None:
            continue
        if known.role == "input":
            plain = "tensor" not in (ours.kind if ours else "", theirs.kind if theirs else "")
            (arguments if plain or row.measure is None or difference.may_not_matter else given).append(difference)
        else:
            (parameters if known.role == "parameters" else outputs).append(difference)
    return CallFacts(
        call.name,
        arguments=tuple(arguments),
        given=tuple(given),
        parameters=tuple(parameters),
        outputs=tuple(outputs),
        unknown=tuple(unknown),
    )


def _takes_tensors(call: MeasuredCall) -> bool:
    pairs = (row.pair for row in call.rows)
    return any(
        ours and theirs and ours.role == "input" and ours.kind == theirs.kind == "tensor" and ours.value != 0 for ours, theirs in pairs
    )


def _arrived(directory: Path) -> tuple[dict[str, list[Difference]], dict[str, list[str]], set[str]]:
    """By call: what differed when it arrived, and what the call changed in place; and the calls that had an input replaced."""
    replaced: set[str] = set()
    arrived: defaultdict[str, list[Difference]] = defaultdict(list)
    mutated: defaultdict[str, list[str]] = defaultdict(list)
    for line in isolation.read_lines(directory / isolation.ARRIVED):
        call, key = line.get("call"), line.get("key")
        if not isinstance(call, str) or not isinstance(key, str):
            continue
        if line.get("changed_in_place"):
            mutated[call].append(key)
            continue
        replaced.add(call)
        if (difference := of_line(key, line)) is not None:
            arrived[call].append(difference)
    return arrived, mutated, replaced


class _Sources:
    """Which call's output an input of the golden run was: a value that a step holds twice has one file with two names."""

    def __init__(self, golden: GoldenRank, calls: Mapping[str, MeasuredCall]) -> None:
        self._directory = golden.directory / layout.TENSORS
        self._calls = calls
        self._order = {name: index for index, name in enumerate(golden.calls)}
        self._outputs: dict[tuple[int, int], list[str]] | None = None

    def of(self, call: MeasuredCall, key: str) -> tuple[str, ...]:
        """The calls before `call` whose output had the content of its input `key`, as far as files tell."""
        row = next((row.pair.golden for row in call.rows if row.pair.golden is not None and row.pair.golden.key == key), None)
        mark = self._mark(row)
        if mark is None:
            return ()
        if self._outputs is None:
            self._outputs = defaultdict(list)
            for name, other in self._calls.items():
                for measured in other.rows:
                    theirs = measured.pair.golden
                    if theirs is not None and theirs.role == "output" and (found := self._mark(theirs)) is not None:
                        self._outputs[found].append(name)
        position = self._position(call, 0)
        return tuple(name for name in self._outputs.get(mark, ()) if self._position(self._calls[name], position) < position)

    def _position(self, call: MeasuredCall, unknown: int) -> int:
        golden = call.pair.golden
        return self._order.get(golden.name, unknown) if golden is not None else unknown

    def _mark(self, row: Row | None) -> tuple[int, int] | None:
        if row is None or not row.data_name or "/" in row.data_name:
            return None
        try:
            found = os.stat(self._directory / row.data_name)
        except OSError:
            return None
        return (found.st_dev, found.st_ino) if found.st_nlink > 1 else None


def _parent(name: str, parents: Mapping[str, str | None], calls: Mapping[str, Any]) -> str | None:
    """The nearest call around it that both runs made."""
    seen: set[str] = set()
    parent = parents.get(name)
    while parent is not None and parent not in calls and parent not in seen:
        seen.add(parent)
        parent = parents.get(parent)
    return parent if parent in calls else None


def _frame(name: str, compared: Compared) -> Frame | None:
    user, nearer = locate(frames_of(name, compared.stacks or {}))
    return nearer or user


class _Module(NamedTuple):
    """What no dump holds of a module: first and last line of its forward, its buffers, whether it draws random numbers."""

    forward: str
    last: int
    buffers: tuple[str, ...]
    random: bool


def _modules(directory: Path) -> dict[str, _Module]:
    try:
        content = json.loads((directory / isolation.CODE).read_text(encoding="utf-8"))
        return {
            str(name): _Module(
                str(known["forward"]), int(known.get("last", 0)), tuple(map(str, known["buffers"])), bool(known.get("random"))
            )
            for name, known in content.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _backward(compared: Compared, modules: Mapping[str, _Module], facts: Sequence[CallFacts]) -> str:
    def shown(row: Measured) -> str:
        difference = difference_of(row)
        return f"{difference.key} ({difference.how})" if difference is not None and not difference.slight else ""

    code = {name: known.forward for name, known in modules.items()}
    called: dict[str, str] = {}
    for call in facts:
        parts = names.parse(call.name)
        if parts is not None and call.frame is not None:
            called.setdefault(parts.operation, f"called at {call.frame.path}:{call.frame.line}")
    return first_wrong(compared.calls, shown, code_or_call(code, called), code.get("", ""))


def output_of(directory: Path, golden: GoldenRank, name: str) -> tuple[Difference, ...] | None:
    """The outputs of one call that differ from golden by more than accumulated rounding; None where the run did not record it."""
    try:
        evidence = gather(directory, golden)
    except DumpFormatError:
        return None
    found = next((facts for facts in evidence.calls if facts.name == name), None)
    return None if found is None else beyond_slight(found.outputs)
