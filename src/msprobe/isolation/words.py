"""Verdicts in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msprobe.comparison.block import Line
from msprobe.comparison.headline import listed
from msprobe.format import names
from msprobe.isolation.verdict import Suspect, Undecided, Verdict

_SHOWN = 20
_SHOWN_VALUES = 4
_SHOWN_CALLS = 6


def short(call: str) -> str:
    """`fc1 (Linear)` for `Module.fc1.Linear.forward.0`, with its number where it is not the module's first call."""
    parts = names.parse(call)
    if not isinstance(parts, names.ModuleName):
        return call
    number = f", call {parts.count}" if parts.count else ""
    return f"{parts.path} ({parts.class_name}{number})" if parts.path else f"{parts.class_name}{number}"


def sentence(suspect: Suspect) -> str:
    """What is wrong, in one sentence without its place."""
    again = len(suspect.again) if suspect.kind not in ("missing", "extra") else 0
    slight = "; the difference is slight, narrower arithmetic may give as much" if suspect.slight else ""
    return _sentence(suspect) + (f"; the same at {again} more call{'s' if again > 1 else ''}" if again else "") + slight


def _sentence(suspect: Suspect) -> str:
    keys = listed([difference.key for difference in suspect.differences])
    one = len(suspect.differences) == 1
    differ, arrive = ("differs", "arrives") if one else ("differ", "arrive")
    call = short(suspect.call)
    owner = short(suspect.owner) if suspect.owner else ""
    if suspect.kind == "module":
        return f"{call} is wrong: its inputs and parameters are right, {keys} {differ}"
    if suspect.kind == "own code":
        return f"the code of {call} itself is wrong: its inputs, parameters and all recorded calls inside it are right, {keys} {differ}"
    if suspect.kind == "between":
        where = f"between {short(suspect.after)} and {call}" if suspect.after else f"before its first call, {call},"
        whose = f"in the forward of {owner}" if owner else "in the model's own forward or outside of it"
        return f"the code {where} {whose} is wrong: {keys} of {call} {arrive} wrong, and all that ran before is right"
    if suspect.kind == "data":
        return f"what the model is given is wrong: {keys} of its first call, {call}, {arrive} wrong (the data, or code before that call)"
    if suspect.kind == "parameter":
        keys = listed([f"its {difference.key.removeprefix('parameters.')}" for difference in suspect.differences])
        if suspect.updated:
            return f"the parameters of {call} were right earlier in the step, an update has made them wrong: {keys} {differ} from golden"
        return f"the parameters of {call} are wrong, its code need not be: {keys} {differ} from golden"
    if suspect.kind == "argument":
        return f"{call} is called with other arguments{f', in the forward of {owner}' if owner else ''}: {keys} {differ}"
    who = "golden run makes" if suspect.kind == "missing" else "script makes"
    count = 1 + len(suspect.again)
    return f"the {who} {count} module call{'s' if count > 1 else ''} that the other run does not, the first: {call}"


def place(suspect: Suspect) -> str:
    """Where that is: lines of code, "" where nothing is known."""
    if suspect.kind == "between" and suspect.frame is not None:
        before = suspect.frame_before
        if before is None or (before.path, before.line) == (suspect.frame.path, suspect.frame.line):
            return f"before {suspect.frame}"
        if (before.path, before.function) == (suspect.frame.path, suspect.frame.function) and before.line < suspect.frame.line:
            return f"{before.path}:{before.line} to {suspect.frame.line} in {suspect.frame.function}"
        return f"after {before.path}:{before.line} in {before.function}, before {suspect.frame}"
    if suspect.kind == "own code" and suspect.frame_before is not None:
        return f"behind {suspect.frame_before}"
    if suspect.kind == "module" and suspect.code:
        return suspect.code
    return f"called at {suspect.frame}" if suspect.frame is not None else ""


def in_one_sentence(verdict: Verdict) -> str:
    """The sentence that stands first."""
    if not verdict.suspects:
        return ""
    first = verdict.suspects[0]
    where = place(first)
    more = len(verdict.suspects) - 1
    others = f"; and {more} more thing{'s' if more > 1 else ''}, listed below" if more else ""
    return sentence(first) + (f" ({where})" if where else "") + others


def details(verdict: Verdict) -> Iterator[Line]:
    """The list, smallest first, and what could not be decided."""
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
    if not isinstance(parts, names.ModuleName) or suspect.kind not in ("module", "own code", "between"):
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


def _suspect(number: int, suspect: Suspect, count: int) -> Iterator[Line]:
    if count > 1:
        yield Line(f"{number}. {sentence(suspect)}", "head")
        if where := place(suspect):
            yield Line(f"   {where}" if where.startswith(("called", "before", "behind", "after")) else f"   at {where}")
    yield Line(f"   {suspect.call}")
    if suspect.kind in ("module", "own code") and suspect.code and suspect.frame is not None:
        yield Line(f"   called at {suspect.frame}")
    for difference in suspect.differences[:_SHOWN_VALUES]:
        yield Line(f"   {difference.key}: {difference.how}{' (slight: narrower arithmetic may give as much)' if difference.slight else ''}")
    if len(suspect.differences) > _SHOWN_VALUES:
        yield Line(f"   ... and {len(suspect.differences) - _SHOWN_VALUES} more values")
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


def _calls(found: Sequence[str]) -> str:
    once = list(dict.fromkeys(map(short, found)))
    return ", ".join(once[:_SHOWN_CALLS]) + (f" and {len(once) - _SHOWN_CALLS} more" if len(once) > _SHOWN_CALLS else "")
