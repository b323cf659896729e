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


def sentence(suspect: Suspect) -> str:
    """What is wrong, in one sentence without its place."""
    keys = listed([difference.key for difference in suspect.differences])
    verb = "differs" if len(suspect.differences) == 1 else "differ"
    if suspect.kind == "module":
        return f"{suspect.call} computes something else: inputs and parameters are right, {keys} {verb}"
    if suspect.kind == "own code":
        return f"the code of {suspect.call} computes something else: inputs, parameters and all calls inside it are right, {keys} {verb}"
    if suspect.kind == "between":
        where = f"between {suspect.after} and {suspect.call}" if suspect.after else f"before {suspect.call}, its first call,"
        owner = f"in the forward of {suspect.owner}" if suspect.owner else "in the model's own forward or outside of it"
        return f"the code {where} {owner} is wrong: {keys} of {suspect.call} arrives wrong, and all that ran before is right"
    if suspect.kind == "data":
        return f"what the model is given is wrong: {keys} of {suspect.call}, the first call, arrives wrong (the data, or code before the model)"
    if suspect.kind == "parameter":
        keys = listed([difference.key.removeprefix("parameters.") for difference in suspect.differences])
        return f"{keys} of {suspect.call} {verb} from golden: the parameters are wrong, its code need not be"
    if suspect.kind == "argument":
        owner = f", in the forward of {suspect.owner}" if suspect.owner else ""
        return f"{suspect.call} is called with other arguments{owner}: {keys} {verb}"
    who = "golden run makes" if suspect.kind == "missing" else "script makes"
    count = 1 + len(suspect.again)
    return f"the {who} {count} module call{'s' if count > 1 else ''} that the other run does not, the first: {suspect.call}"


def place(suspect: Suspect) -> str:
    """Where that is: lines of code, "" where nothing is known."""
    if suspect.kind == "between" and suspect.frame is not None:
        before = suspect.frame_before
        if before is not None and before.path == suspect.frame.path and before.line != suspect.frame.line:
            return f"{before.path}:{before.line} to {suspect.frame.line} in {suspect.frame.function}"
        return f"before {suspect.frame}"
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
    others = f"; and {more} more thing{'s' if more > 1 else ''} listed below" if more else ""
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
    what = f"{keys} {'arrives' if item.arrived else 'is'} otherwise at {item.call}" if item.arrived else f"{keys} of {item.call} differs"
    if item.mutators:
        return (
            f"this run cannot tell: {what}, but {listed(item.mutators)} changed an input in place, and that was the copy it was given, not "
            "the tensor that the code around it goes on with"
        )
    return f"this run cannot tell: {what}, but inputs around it could not be given ({listed([given.key for given in item.not_given])})"


def hint(suspect: Suspect) -> str:
    """What is worth a look before the code is."""
    parts = names.parse(suspect.call)
    if not isinstance(parts, names.ModuleName) or suspect.kind != "module":
        return ""
    if "dropout" in parts.class_name.lower():
        return "it draws random numbers: are both runs seeded alike (seed_all), or without dropout?"
    if parts.count > 0:
        return f"its {parts.count} earlier calls in this step are right: does it keep something between calls?"
    return ""


def _suspect(number: int, suspect: Suspect, count: int) -> Iterator[Line]:
    title = sentence(suspect)
    yield Line(f"{number}. {title}" if count > 1 else title, "head")
    where = place(suspect)
    if where:
        yield Line(f"   at {where}" if suspect.kind in ("module", "between") and not where.startswith(("called", "before")) else f"   {where}")
    if suspect.kind == "module" and suspect.code and suspect.frame is not None:
        yield Line(f"   called at {suspect.frame}")
    for difference in suspect.differences[:_SHOWN_VALUES]:
        yield Line(f"   {difference.key}: {difference.how}{' (slight: narrower arithmetic may give as much)' if difference.slight else ''}")
    if len(suspect.differences) > _SHOWN_VALUES:
        yield Line(f"   ... and {len(suspect.differences) - _SHOWN_VALUES} more values")
    if suspect.ranks and not (len(suspect.ranks) == 1 and suspect.ranks[0].startswith("proc")):
        yield Line(f"   on {listed(suspect.ranks)}")
    if suspect.again and suspect.kind not in ("missing", "extra"):
        yield Line(f"   also at {_calls(suspect.again)}")
    if suspect.explained:
        yield Line(f"   explains the wrong output of {_calls(suspect.explained)}", "dim")
    if suspect.reached:
        yield Line(f"   explains what arrives at {_calls(suspect.reached)}", "dim")
    tip = hint(suspect)
    if tip:
        yield Line(f"   {tip}", "dim")


def _calls(found: Sequence[str]) -> str:
    shown = ", ".join(dict.fromkeys(found[:_SHOWN_CALLS]))
    return shown + (f" and {len(found) - _SHOWN_CALLS} more" if len(found) > _SHOWN_CALLS else "")
