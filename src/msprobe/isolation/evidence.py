"""What one run says of each module call: what it was given, what arrived, what it gave out, each measured against the golden dump."""

from __future__ import annotations

import json
import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from msprobe import numerics
from msprobe.comparison import report_csv
from msprobe.comparison.calls import Measured, MeasuredCall
from msprobe.comparison.compared import Compared
from msprobe.comparison.inputs import DumpPair
from msprobe.comparison.measure import Agreement, Measure, slight_of
from msprobe.comparison.measure_tensors import from_metrics
from msprobe.comparison.one_pair import examine
from msprobe.comparison.rows import Row
from msprobe.comparison.stacks import Frame, frames_of, locate
from msprobe.errors import DumpFormatError
from msprobe.format import isolation, layout, names
from msprobe.isolation.golden import GoldenRank, is_forward
from msprobe.isolation.gradients import code_or_call, first_wrong


@dataclass(frozen=True)
class Difference:
    """A value that differs from golden by more than rounding.

    Attributes:
        key: where it lies in its call: `input.0`, `output`, `parameters.weight`.
        how: by how much, in words.
        slight: no more than narrower arithmetic may give (thresholds.SLIGHT).
        missing: the golden run alone has a value there.
        may_not_matter: one run passes None and the other a tensor, which may well come to the same (a mask that says nothing).
    """

    key: str
    how: str
    slight: bool = False
    missing: bool = False
    may_not_matter: bool = False


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
        code: name of a module -> `file:line` of its forward, where that is not torch's own.
        buffers: name of a module -> names of its buffers, which no dump holds.
        random: modules that draw random numbers while training: dropout.
        backward: what is wrong with the gradients, in words (gradients.py); "" where nothing is.
        csv: the comparison's file, None where none was written.
    """

    label: str
    calls: tuple[CallFacts, ...]
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    code: Mapping[str, str] = field(default_factory=dict)
    buffers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    random: frozenset[str] = frozenset()
    backward: str = ""
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
    arrived, mutated = _arrived(directory)
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
        {name: known.buffers for name, known in modules.items() if known.buffers},
        frozenset(name for name, known in modules.items() if known.random),
        _backward(compared, modules, facts),
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
        difference = (_none_or_tensor(row) if known.role == "input" else None) or _difference(row)
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


def _difference(row: Measured) -> Difference | None:
    """None where the two agree up to rounding, and where nothing could be measured."""
    (ours, theirs), measure = row
    if ours is None and theirs is not None:
        return None if theirs.kind == "null" else Difference(theirs.key, "the golden run has it, this one does not", missing=True)
    if theirs is None and ours is not None:
        return None if ours.kind == "null" else Difference(ours.key, "this run has it, the golden one does not")
    if ours is None or theirs is None or measure is None or measure.agreement is not Agreement.DIFFERENT:
        return None
    if ours.kind != "tensor" or theirs.kind != "tensor":
        return Difference(ours.key, f"{_value(ours)}, golden {_value(theirs)}", missing=ours.kind == "null")
    if ours.shape != theirs.shape:
        return Difference(ours.key, f"shape {ours.shape}, golden {theirs.shape}")
    return _of_tensors(ours.key, measure, ours.dtype, theirs.dtype)


def _none_or_tensor(row: Measured) -> Difference | None:
    """An input that is None on one side and a tensor on the other; `msprobe compare` measures nothing there."""
    ours, theirs = row.pair
    if {ours.kind if ours else "null", theirs.kind if theirs else "null"} != {"null", "tensor"}:
        return None
    known = ours or theirs
    assert known is not None
    return Difference(known.key, f"{_value(ours)}, golden {_value(theirs)}", missing=_is_null(ours), may_not_matter=True)


def _is_null(row: Row | None) -> bool:
    return row is None or row.kind == "null"


def _of_tensors(key: str, measure: Measure, dtype: str, golden_dtype: str) -> Difference:
    how = f"max abs diff {measure.max_abs:.3g}, relative {measure.size:.3g}"
    if math.isinf(measure.size):
        how = "NaN or infinities at other places"
    if dtype.removeprefix("torch.") != golden_dtype.removeprefix("torch."):
        how += f"; {dtype.removeprefix('torch.')}, golden {golden_dtype.removeprefix('torch.')}"
    return Difference(key, how, measure.size <= slight_of(dtype, golden_dtype))


def _value(row: Row | None) -> str:
    if row is None:
        return "None"
    if row.kind == "tensor":
        return f"a tensor {row.shape}"
    text = repr(row.value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _arrived(directory: Path) -> tuple[dict[str, list[Difference]], dict[str, list[str]]]:
    """By call: what differed when it arrived, and what the call changed in place."""
    arrived: defaultdict[str, list[Difference]] = defaultdict(list)
    mutated: defaultdict[str, list[str]] = defaultdict(list)
    for line in isolation.read_lines(directory / isolation.ARRIVED):
        call, key = line.get("call"), line.get("key")
        if not isinstance(call, str) or not isinstance(key, str):
            continue
        if line.get("changed_in_place"):
            mutated[call].append(key)
        elif (difference := _of_line(key, line)) is not None:
            arrived[call].append(difference)
    return arrived, mutated


def _of_line(key: str, line: Mapping[str, Any]) -> Difference | None:
    shape, golden_shape, dtype, golden_dtype = (line.get(name) for name in ("shape", "golden_shape", "dtype", "golden_dtype"))
    if shape != golden_shape:
        return Difference(key, f"shape {shape}, golden {golden_shape}")
    metrics = line.get("metrics")
    if not isinstance(metrics, dict):
        return None
    try:
        measure = from_metrics(numerics.PairMetrics(**metrics), str(dtype), str(golden_dtype))
    except TypeError:
        return None
    return _of_tensors(key, measure, str(dtype), str(golden_dtype)) if measure.agreement is Agreement.DIFFERENT else None


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
        position = self._order.get(call.name, 0)
        return tuple(name for name in self._outputs.get(mark, ()) if self._order.get(name, position) < position)

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
    """What no dump holds of a module: where its forward stands, its buffers, whether it draws random numbers."""

    forward: str
    buffers: tuple[str, ...]
    random: bool


def _modules(directory: Path) -> dict[str, _Module]:
    try:
        content = json.loads((directory / isolation.CODE).read_text(encoding="utf-8"))
        return {
            str(name): _Module(str(known["forward"]), tuple(map(str, known["buffers"])), bool(known.get("random")))
            for name, known in content.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _backward(compared: Compared, modules: Mapping[str, _Module], facts: Sequence[CallFacts]) -> str:
    def shown(row: Measured) -> str:
        difference = _difference(row)
        return f"{difference.key} ({difference.how})" if difference is not None and not difference.slight else ""

    code = {name: known.forward for name, known in modules.items()}
    called: dict[str, str] = {}
    for call in facts:
        parts = names.parse(call.name)
        if parts is not None and call.frame is not None:
            called.setdefault(parts.operation, f"called at {call.frame.path}:{call.frame.line}")
    return first_wrong(compared.calls, shown, code_or_call(code, called))


def output_of(directory: Path, golden: GoldenRank, name: str) -> tuple[Difference, ...] | None:
    """The outputs of one call that differ from golden by more than accumulated rounding; None where the run did not record it."""
    try:
        evidence = gather(directory, golden)
    except DumpFormatError:
        return None
    found = next((facts for facts in evidence.calls if facts.name == name), None)
    return None if found is None else beyond_slight(found.outputs)


def beyond_slight(differences: Sequence[Difference]) -> tuple[Difference, ...]:
    """Without those that rounding adds up to on its way through a model."""
    return tuple(difference for difference in differences if not difference.slight)
