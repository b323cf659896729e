"""Verdicts in words."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msprobe.comparison.block import Line
from msprobe.comparison.headline import listed
from msprobe.comparison.stacks import Frame
from msprobe.format import names
from msprobe.isolation.differences import Difference
from msprobe.isolation.suspects import Suspect, Undecided, Verdict, short

_SHOWN = 20
_SHOWN_VALUES = 4
_SHOWN_CALLS = 6
_WIDTH = 120
_PATH = re.compile(r"/\S+\.py:\d+")


def headline(suspect: Suspect) -> str:
    """What is wrong, without the reasons and without its place."""
    again = len(suspect.again) if suspect.kind not in ("missing", "extra") else 0
    slight = " (slight)" if suspect.slight else ""
    return _what(suspect) + slight + (f"; the same at {again} more call{'s' if again > 1 else ''}" if again else "")


def sentence(suspect: Suspect) -> str:
    """What is wrong and why we think so, in one sentence without its place."""
    because = _because(suspect)
    return headline(suspect) + (f": {because}" if because else "")


def _what(suspect: Suspect) -> str:
    call = short(suspect.call)
    if suspect.kind == "module":
        return f"{call} is wrong"
    if suspect.kind == "own code":
        return f"the code of {call} itself is wrong"
    if suspect.kind == "between":
        whose = f" in {short(suspect.owner)}" if suspect.owner else ""
        here = _inside(suspect.call, suspect.owner)
        if suspect.after:
            return f"the code between {_inside(suspect.after, suspect.owner)} and {here}{whose} is wrong"
        return f"the code before {here}, the first call{whose}, is wrong"
    if suspect.kind == "data":
        return "what the model is given is wrong"
    if suspect.kind == "parameter":
        if suspect.updated:
            return f"the parameters of {call} were right earlier in the step, an update has made them wrong"
        return f"the parameters of {call} are wrong, its code need not be"
    if suspect.kind == "argument":
        return f"{call} is wrong, or called with wrong arguments"
    who, other = ("golden run", "script") if suspect.kind == "missing" else ("script", "golden run")
    count = 1 + len(suspect.again)
    return f"the {who} makes {count} module call{'s' if count > 1 else ''} that the {other} does not, the first: {call}"


def _because(suspect: Suspect) -> str:
    keys = listed([difference.key for difference in suspect.differences])
    one = len(suspect.differences) == 1
    differ, arrive = ("differs", "arrives") if one else ("differ", "arrive")
    call = short(suspect.call)
    slight = "; narrower arithmetic may give as much" if suspect.slight else ""
    if suspect.kind == "module":
        return f"its inputs and parameters are right, {keys} {differ}{slight}"
    if suspect.kind == "own code":
        return f"its inputs, its parameters and all recorded calls inside it are right, {keys} {differ}{slight}"
    if suspect.kind == "argument":
        return f"the tensors that it is given, its parameters and all inside it are right, {keys} {differ}{slight}"
    if suspect.kind == "between":
        whose = "" if suspect.owner else " (in the model's own forward or outside of it)"
        right = "all that ran before is right, and " if suspect.after else ""
        return f"{right}{keys} of {_inside(suspect.call, suspect.owner)} {arrive} wrong{whose}{slight}"
    if suspect.kind == "data":
        return f"{keys} of its first call, {call}, {arrive} wrong (the data, or code before that call){slight}"
    if suspect.kind == "parameter":
        keys = listed([f"its {difference.key.removeprefix('parameters.')}" for difference in suspect.differences])
        return f"{keys} {differ} from golden{slight}"
    return ""


def _inside(call: str, owner: str | None) -> str:
    """`v_proj (Linear)` for a call in the module `model.layers.0.self_attn`."""
    name, around = short(call), names.parse(owner) if owner else None
    return name.removeprefix(f"{around.path}.") if isinstance(around, names.ModuleName) and around.path else name


def _told(differences: Sequence[Difference]) -> str:
    shown = ", ".join(f"{difference.key.removeprefix('input.')} ({difference.how})" for difference in differences[:_SHOWN_VALUES])
    return shown + (f" and {len(differences) - _SHOWN_VALUES} more" if len(differences) > _SHOWN_VALUES else "")


def place(suspect: Suspect) -> str:
    """Where that is: lines of code, "" where nothing is known."""
    frame, before = suspect.frame, suspect.frame_before
    if suspect.kind == "between" and frame is not None:
        if before is None or (before.path, before.line) == (frame.path, frame.line):
            return f"before {frame}"
        if (before.path, before.function) == (frame.path, frame.function) and before.line < frame.line:
            return f"{before.path}:{before.line} to {frame.line} in {frame.function}"
        return f"after {before.path}:{before.line} in {before.function}, before {frame}"
    if suspect.kind in ("own code", "argument", "module") and suspect.code:
        return _lines(suspect) + _first_shown(suspect)
    if suspect.kind == "own code" and before is not None:
        return f"{before.path} in {before.function}; no wrong value shows before line {before.line}"
    return f"called at {frame}" if frame is not None else ""


def _lines(suspect: Suspect) -> str:
    """The forward of a module: `net.py:60 to 73 in its forward`."""
    first = suspect.code.rpartition(":")[2]
    several = f" to {suspect.code_end}" if first.isdecimal() and suspect.code_end > int(first) else ""
    return f"{suspect.code}{several} in its forward"


def _first_shown(suspect: Suspect) -> str:
    before = suspect.frame_before
    if before is None or suspect.size == 0:
        return ""
    file = "" if before.path == suspect.code.rpartition(":")[0] else f"{before.path}:"
    return f"; no wrong value shows before {file or 'line '}{before.line}"


def _short_place(suspect: Suspect) -> str:
    """`net.py:60`, the file without its directories."""
    frame: Frame | None = suspect.frame
    if suspect.kind in ("own code", "argument", "module") and suspect.code:
        path, _, line = suspect.code.rpartition(":")
        return f"{Path(path).name}:{line}" + (f" to {suspect.code_end}" if suspect.code_end > int(line) else "")
    if frame is None or suspect.kind in ("missing", "extra"):
        return ""
    before = suspect.frame_before
    if suspect.kind == "between" and before is not None and before.path == frame.path and before.line < frame.line:
        return f"{Path(frame.path).name}:{before.line} to {frame.line}"
    return f"{Path(frame.path).name}:{frame.line}"


def in_one_sentence(verdict: Verdict) -> str:
    """The sentence that stands first."""
    if not verdict.suspects:
        return ""
    first = verdict.suspects[0]
    where = _short_place(first)
    more = len(verdict.suspects) - 1
    others = f"; and {more} more thing{'s' if more > 1 else ''}, listed below" if more else ""
    return headline(first) + (f" ({where})" if where else "") + others


def details(verdict: Verdict) -> Iterator[Line]:
    """The list, smallest first, what could not be decided, and remarks; in lines that are not long, where names allow."""
    for line in _details(verdict):
        if _PATH.search(line.text):
            yield line  # where a path ends is no place to break a line
        else:
            yield from wrapped(line)


def wrapped(line: Line) -> Iterator[Line]:
    """A line as several that are not long, where names allow."""
    deep = "     " if line.text.startswith(" ") else "  "
    for part in textwrap.wrap(line.text, _WIDTH, subsequent_indent=deep, break_long_words=False, break_on_hyphens=False) or [""]:
        yield Line(part, line.style)


def _details(verdict: Verdict) -> Iterator[Line]:
    for number, suspect in enumerate(verdict.suspects[:_SHOWN], 1):
        yield from _suspect(number, suspect, len(verdict.suspects))
    if len(verdict.suspects) > _SHOWN:
        yield Line(f"... and {len(verdict.suspects) - _SHOWN} more, see isolate.json")
    for item in verdict.undecided[:_SHOWN]:
        yield Line(undecided(item), "dim")
    for text in verdict.unknown[:_SHOWN_CALLS]:
        yield Line(f"not compared: {text}", "bad")
    if len(verdict.unknown) > _SHOWN_CALLS:
        yield Line(f"... and {len(verdict.unknown) - _SHOWN_CALLS} more values not compared", "bad")
    for remark in verdict.remarks:
        yield Line(f"remark: {remark}", "dim")


def undecided(item: Undecided) -> str:
    """Why something that differs is no verdict."""
    keys = listed([f"{difference.key} ({difference.how})" for difference in item.differences])
    what = f"{keys} arrives otherwise at {short(item.call)}" if item.arrived else f"{keys} of {short(item.call)} differs"
    if item.mutators:
        return (
            f"this run cannot tell: {what}, but {listed([short(name) for name in item.mutators])} changed an input in place, and that was "
            "the copy it was given, not the tensor that the code around it goes on with"
        )
    return f"this run cannot tell: {what}, but inputs around it could not be given ({listed([given.key for given in item.not_given])})"


def hint(suspect: Suspect) -> str:
    """What is worth a look before the code is."""
    parts = names.parse(suspect.call)
    if suspect.times > 1:
        who = "script" if suspect.kind == "extra" else "golden run"
        return f"the {who} makes every call {suspect.times} times as often: is a step() missing there, or are there more micro-batches?"
    if not isinstance(parts, names.ModuleName) or suspect.kind not in ("module", "own code", "between", "argument"):
        return ""
    own = suspect.kind != "between"
    whose = "its" if own or suspect.owner is None else f"{short(suspect.owner)}'s"
    if suspect.random or (own and "dropout" in parts.class_name.lower()):
        return f"{whose} code may draw random numbers (dropout): are both runs seeded alike (seed_all), or without dropout?"
    if suspect.buffers:
        return f"{whose} buffers ({listed(suspect.buffers)}) are in no dump: are they those of the golden run?"
    if not own:
        return ""
    if parts.count > 0:
        return f"its {parts.count} earlier calls in this step are right: does it keep something between calls?"
    return ""


def nothing_wrong(buffers: Mapping[str, Sequence[str]]) -> str:
    """The verdict where nothing is found, with what was not looked at.

    Args:
        buffers: name of a module -> names of its buffers, of all ranks.
    """
    right = "every module is right on golden inputs, and so is the last one of a plain run"
    if not buffers:
        return f"nothing is wrong: {right}"
    name, own = next(iter(buffers.items()))
    more = len(buffers) - 1
    others = f" and of {more} more module{'s' if more > 1 else ''}" if more else ""
    whose = f"those of {short(f'{name}.{names.FORWARD}.0')} ({listed(own)}){others}"
    return f"nothing is wrong in what was looked at: {right}; buffers, which no dump holds, were not looked at: {whose}"


def _suspect(number: int, suspect: Suspect, count: int) -> Iterator[Line]:
    if count > 1:
        yield Line(f"{number}. {headline(suspect)}", "head")
    if where := place(suspect):
        yield Line(f"   {where}" if where.startswith(("called", "before", "after")) else f"   at {where}")
    if because := _because(suspect):
        yield Line(f"   {because}")
    if suspect.kind in ("module", "own code", "argument") and suspect.code and suspect.frame is not None:
        yield Line(f"   called at {suspect.frame}")
    yield Line(f"   {suspect.call}")
    for difference in suspect.differences[:_SHOWN_VALUES]:
        yield Line(f"   {difference.key}: {difference.how}{' (slight)' if difference.slight else ''}")
    if len(suspect.differences) > _SHOWN_VALUES:
        yield Line(f"   ... and {len(suspect.differences) - _SHOWN_VALUES} more values")
    yield from _arguments(suspect)
    if suspect.ranks and not (len(suspect.ranks) == 1 and suspect.ranks[0].startswith("proc")):
        yield Line(f"   on {listed(suspect.ranks)}")
    if suspect.again and suspect.kind not in ("missing", "extra"):
        yield Line(f"   the same at {_calls(suspect.again)}")
    if suspect.explained:
        yield Line(f"   explains the wrong output of {_calls(suspect.explained)}", "dim")
    if suspect.reached:
        yield Line(f"   explains what arrives at {_calls(suspect.reached)}", "dim")
    tip = hint(suspect)
    if tip:
        yield Line(f"   {tip}", "dim")


def _arguments(suspect: Suspect) -> Iterator[Line]:
    """Arguments that may be the reason as well as the code."""
    if not suspect.arguments:
        return
    down = f", handed down from {short(suspect.handed_down)}" if suspect.handed_down else ""
    called = short(suspect.owner) if suspect.owner else "it"
    yield Line(f"   {called} is called with other arguments, which may be why: {_told(suspect.arguments)}{down}", "dim")


def _calls(found: Sequence[str]) -> str:
    once = list(dict.fromkeys(map(short, found)))
    return ", ".join(once[:_SHOWN_CALLS]) + (f" and {len(once) - _SHOWN_CALLS} more" if len(once) > _SHOWN_CALLS else "")
