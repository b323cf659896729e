"""Several recordings of one script, unit by unit (one rank of one step): which runs agree on which call, and where they first do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from msprobe.comparison.calls import execution_order, summarise
from msprobe.comparison.inputs import DumpPair, make_plan
from msprobe.comparison.judge import Mode
from msprobe.comparison.kinds import Held, choose
from msprobe.comparison.match import CallPair
from msprobe.comparison.names import EntryName
from msprobe.comparison.repeated.fingerprints import Fingerprint, Fingerprints, groups
from msprobe.comparison.rows import Call, calls_of
from msprobe.comparison.saved_lines import saved_lines
from msprobe.comparison.stacks import Frame, frames_of, locate
from msprobe.errors import DumpFormatError, UsageError
from msprobe.format import layout, reader

Cause = Literal["call", "parameters", "inputs", "first inputs", "missing"]
"""Why the first call is not identical: it gives other results for identical inputs; its parameters differ; its inputs do though no call
before it gave a difference; it is the first call; not all runs have it."""
_STRENGTH: dict[Mode, int] = {"statistics": 0, "md5": 1, "tensor": 2}


class CallRuns(NamedTuple):
    """One call over all runs.

    Attributes:
        name, parts: of the entry.
        inputs, parameters, outputs, whole: for each run the number of the group of equal ones it is in, -1 where it lacks the call.
        not_compared: values of it that have nothing to be compared by, in any run.
    """

    name: str
    parts: EntryName
    inputs: tuple[int, ...]
    parameters: tuple[int, ...]
    outputs: tuple[int, ...]
    whole: tuple[int, ...]
    not_compared: int

    @property
    def identical(self) -> bool:
        return not any(self.whole)

    @property
    def distinct(self) -> int:
        """How many different recordings of it there are."""
        return max(self.whole) + 1


@dataclass(frozen=True)
class First:
    """The first call that is not identical in all runs.

    Attributes:
        call: it.
        cause: see Cause.
        module: the module around it, None when unknown.
        frame: the user's line.
    """

    call: CallRuns
    cause: Cause
    module: str | None
    frame: Frame | None


@dataclass(frozen=True)
class Unit:
    """One rank of one step in all runs.

    Attributes:
        pair: the first two dumps: their step and label are those of the unit.
        files: the dump.json of each run.
        mode: by what values were compared.
        calls: all calls in execution order.
        first: the first that is not identical, None when all are.
        frames: call that is not identical -> the user's line, as far as known.
    """

    pair: DumpPair
    files: tuple[Path, ...]
    mode: Mode
    calls: tuple[CallRuns, ...]
    first: First | None
    frames: Mapping[str, Frame]


@dataclass(frozen=True)
class Runs:
    """The result for all units.

    Attributes:
        paths: the runs, as given.
        level: what they are: file, step or root.
        units: in the order of steps and ranks.
        one_sided: what not all runs have, one sentence each.
        problems: what could not be compared, one sentence each.
        notes: what else lies there and is left out, one sentence each.
    """

    paths: tuple[Path, ...]
    level: str
    units: tuple[Unit, ...]
    one_sided: tuple[str, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0: everything recorded is identical in all runs. 1: something is not. 2: something could not be compared."""
        if self.problems or any(unit.calls and all(_nothing(call) for call in unit.calls) for unit in self.units):
            return 2
        return 1 if self.one_sided or any(unit.first is not None for unit in self.units) else 0


def _nothing(call: CallRuns) -> bool:
    return bool(call.not_compared) and call.identical


def compare_runs(paths: Sequence[str | Path], steps: frozenset[int] | None = None, ranks: frozenset[int] | None = None) -> Runs:
    """Compares several recordings of one script; writes nothing.

    Args:
        paths: two or more dump files, directories of one process, step directories or dump roots, all of one kind.
        steps, ranks: only these, None for all.

    Raises:
        UsageError: fewer than two paths, one path twice, or paths that are not of one kind, hold no dump, or have nothing in common.
    """
    runs = tuple(Path(path) for path in paths)
    if len(runs) < 2:
        raise UsageError("--runs needs two recordings of one script at least")
    if len({path.resolve() for path in runs}) < len(runs):
        raise UsageError("--runs names one recording twice: it would agree with itself")
    try:
        plans = [make_plan(runs[0], other, steps, ranks) for other in runs[1:]]
    except UsageError as error:  # here no side is the golden one
        raise UsageError(str(error).replace("the target path ", "", 1).replace("the golden path ", "", 1)) from None
    one_sided: list[str] = []
    problems: list[str] = []
    for path, plan in zip(runs[1:], plans, strict=True):
        one_sided += (
            text.replace("the target only", f"{runs[0]} and not in {path}").replace("the golden dump only", f"{path} and not in {runs[0]}")
            for text in plan.one_sided
        )
        problems += (text.replace("of the target", f"of {runs[0]}").replace("of the golden dump", f"of {path}") for text in plan.problems)
    partners = [{pair.target: pair.golden for pair in plan.pairs} for plan in plans]
    units: list[Unit] = []
    for pair in plans[0].pairs:
        others = [known.get(pair.target) for known in partners]
        files = (pair.target, *(other for other in others if other is not None))
        if len(files) < len(runs):
            continue  # told as one-sided above
        try:
            units.append(_unit(pair, files))
        except (DumpFormatError, UsageError) as error:
            if plans[0].level == "file":
                raise
            problems.append(f"{pair.title}: {error}")
    if not units and not problems:
        raise UsageError(f"nothing is in all {len(runs)} runs: {'; '.join(one_sided)}")
    notes = (note for plan in plans for note in plan.notes)
    return Runs(runs, plans[0].level, tuple(units), *(tuple(dict.fromkeys(texts)) for texts in (one_sided, problems, notes)))


class _Recorded(NamedTuple):
    held: Held
    tensors: Path


def _read(path: Path) -> _Recorded:
    dump = reader.read_dump(path)
    if dump.task not in ("statistics", "tensor"):
        raise UsageError(f"{path} was recorded with task {dump.task!r}, which holds no values")
    if not dump.data:
        raise UsageError(f"{path} holds no data: nothing was recorded in this step")
    return _Recorded(Held(path, dump.task, calls_of(dump.data, str(path))), dump.tensor_dir)


def _unit(pair: DumpPair, files: tuple[Path, ...]) -> Unit:
    """Reads the runs one after the other; only the first one's calls are kept while the others are read."""
    first = _read(files[0])
    modes: list[Mode] = []
    prints: list[dict[str, Fingerprint]] = []
    orders: list[Sequence[Call]] = [first.held.calls]
    for path in files[1:]:
        other = _read(path)
        mode = choose(first.held, other.held)[0]
        modes.append(mode)
        prints.append(_prints(other, mode))
        orders.append([call._replace(rows=()) for call in other.held.calls])
    weakest = min(modes, key=lambda mode: _STRENGTH[mode])
    for index, mode in enumerate(modes):
        if mode != weakest:
            prints[index] = _prints(_read(files[index + 1]), weakest)
    prints.insert(0, _prints(first, weakest))
    calls = tuple(_call(call.name, call.parts, prints) for call in _merged(orders))
    different = [call for call in calls if not call.identical]
    if not different:
        return Unit(pair, files, weakest, calls, None, {})
    stacks = [_stacks(path) for path in files[:2]]
    frames = {call.name: frame for call in different if (frame := _frame(call.name, stacks)) is not None}
    return Unit(pair, files, weakest, calls, _first(calls, _parents(files[0]), frames), frames)


def _prints(recorded: _Recorded, mode: Mode) -> dict[str, Fingerprint]:
    make = Fingerprints(mode, recorded.tensors)
    return {call.name: make.of(call) for call in recorded.held.calls}


def _merged(orders: Sequence[Sequence[Call]]) -> list[Call]:
    """All calls in the execution order of the first run; what only others have stands behind the call it follows there."""
    seen = {call.name for call in orders[0]}
    behind: dict[str, list[Call]] = {}
    for order in orders[1:]:
        previous = ""
        for call in order:
            if call.name not in seen:
                seen.add(call.name)
                behind.setdefault(previous, []).append(call)
            previous = call.name
    merged: list[Call] = []
    waiting = [*reversed(orders[0])]
    waiting.extend(reversed(behind.get("", ())))
    while waiting:
        call = waiting.pop()
        merged.append(call)
        waiting.extend(reversed(behind.get(call.name, ())))
    by_name = {call.name: call for call in merged}
    ordered = execution_order([summarise(CallPair(call, None, ()), ()) for call in merged])
    return [by_name[call.name] for call in ordered]


def _call(name: str, parts: EntryName, prints: Sequence[Mapping[str, Fingerprint]]) -> CallRuns:
    found = [one.get(name) for one in prints]
    return CallRuns(
        name,
        parts,
        groups(one and one.inputs for one in found),
        groups(one and one.parameters for one in found),
        groups(one and one.outputs for one in found),
        groups(one and one[:3] for one in found),
        max((one.not_compared for one in found if one is not None), default=0),
    )


def _first(calls: Sequence[CallRuns], parents: Mapping[str, str | None], frames: Mapping[str, Frame]) -> First:
    index = next(index for index, call in enumerate(calls) if not call.identical)
    call = calls[index]
    call = _innermost(call, calls, parents)
    return First(call, _cause(call, index), parents.get(call.name), frames.get(call.name))


def _cause(call: CallRuns, index: int) -> Cause:
    if -1 in call.whole:
        return "missing"
    if any(call.inputs):
        return "inputs" if index else "first inputs"
    return "parameters" if any(call.parameters) else "call"


def _innermost(call: CallRuns, calls: Sequence[CallRuns], parents: Mapping[str, str | None]) -> CallRuns:
    """Of a module whose inputs are identical, the first call inside it that makes the difference. A backward entry of a module may stand
    before those inside it."""
    while call.parts.is_module and not any(call.inputs) and not any(call.parameters):
        inside = (one for one in calls if parents.get(one.name) == call.name and one.name != call.name)
        deeper = next((one for one in inside if any(one.outputs) and not any(one.inputs) and not any(one.parameters)), None)
        if deeper is None:
            return call
        call = deeper
    return call


def _frame(name: str, stacks: Sequence[Mapping[str, Sequence[str]]]) -> Frame | None:
    return next((frame for one in stacks if (frame := locate(frames_of(name, one))[0]) is not None), None)


def _stacks(dump: Path) -> Mapping[str, Sequence[str]]:
    path = dump.parent / layout.STACK
    try:
        return reader.read_stack(path) if path.is_file() else saved_lines(dump)
    except DumpFormatError:
        return {}


def _parents(dump: Path) -> Mapping[str, str | None]:
    path = dump.parent / layout.CONSTRUCT
    try:
        return reader.read_construct(path) if path.is_file() else {}
    except DumpFormatError:
        return {}
