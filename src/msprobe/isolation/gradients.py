"""Where the backward pass goes wrong, from the comparison of two dumps: pure logic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msprobe.comparison.calls import Measured, MeasuredCall
from msprobe.format import names

_SHOWN = 3
Shown = Callable[[Measured], str]
"""A value in words if it differs by more than narrower arithmetic may give, "" if it does not."""


def first_wrong(calls: Sequence[MeasuredCall], shown: Shown, place: Callable[[str], str], model: str = "") -> str:
    """The first fault of a backward pass, in words that go on from "gradients are not: "; "" where all gradients agree.

    The backward record of a call holds the gradients that came to it (`input`) and those that it gave on (`output`). Records stand in the
    order in which they were complete, an inner call's before that of the call around it, so the first one that differs tells: gradients
    that came right and went on wrong are the fault of that module; those that came wrong, of the code that used its output. Gradients of
    parameters are asked last: a parameter that two modules share gets its gradient from both.

    Args:
        calls: of the comparison, in the order of the dumps.
        shown: see Shown.
        place: of a record's name, where the module's code is or is called: " (file:line)", or "".
        model: `file:line` of the model's own forward, where a loss may be computed; "" where that is not known.
    """
    backward = [call for call in calls if call.parts.direction == names.BACKWARD]
    sums = [call for call in calls if call.parts.direction == names.PARAMETERS_GRAD]
    if not any(call.pair.target is not None for call in (*backward, *sums)):
        return "there are none, the golden run has a backward pass and this one has not" if backward or sums else ""
    for call in (*backward, *sums):
        if call.pair.target is None:
            return f"none comes to {_named(call.name, place)}, as if what it gives out were detached, or not used"
    before = ""
    for call in backward:
        if not call.matched:
            continue
        named = _named(call.name, place)
        arrived = _differing(call, "input", shown)
        if arrived and not before:
            own = f", or of the model's own forward ({model})" if model else ""
            after = f"the code after {named} is wrong, that of the loss{own}"
            return f"{after}: the gradient that comes from it, the first in the backward pass, differs: {arrived}"
        if arrived:
            used = f"by the code between it and {_named(before, place)}"
            return f"what comes to {named} is wrong and all before that is right, {used}: {arrived}"
        given = _differing(call, "output", shown)
        if given:
            return f"the backward pass of {named} is wrong, what comes to it is right and what it gives on is not: {given}"
        before = call.name
    for call in sums:
        if call.matched and (found := _differing(call, "", shown)):
            return f"those of the parameters of {_named(call.name, place)} are wrong, and what comes to modules is right: {found}"
    extra = next((call for call in (*backward, *sums) if call.pair.golden is None), None)
    return f"there are some for {_named(extra.name, place)}, for which the golden run has none" if extra is not None else ""


def _differing(call: MeasuredCall, role: str, shown: Shown) -> str:
    """The values of a call that differ; of one role, or of any for ""."""
    found: list[str] = []
    for row in call.rows:
        known = row.pair.target or row.pair.golden
        if known is not None and role in ("", known.role) and (text := shown(row)):
            found.append(text)
    return ", ".join(found[:_SHOWN])


def _named(record: str, place: Callable[[str], str]) -> str:
    parts = names.parse(record)
    if not isinstance(parts, names.ModuleName):
        return record
    return f"{parts.path} ({parts.class_name}){place(record)}" if parts.path else f"{parts.class_name}{place(record)}"


def code_or_call(code: Mapping[str, str], frames: Mapping[str, str]) -> Callable[[str], str]:
    """What `first_wrong` needs: ` (file:line)` of a module's own forward, else of the line that calls it.

    Args:
        code: name of a module -> where its forward stands.
        frames: name of a module -> the line that calls it.
    """

    def place(record: str) -> str:
        parts = names.parse(record)
        module = parts.operation if parts is not None else record
        where = code.get(module) or frames.get(module, "")
        return f" ({where})" if where else ""

    return place
