"""From the calls that the search named to lines of code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msprobe.comparison.first_difference import Findings, FirstDifference
from msprobe.comparison.names import parse
from msprobe.comparison.outcome import Location
from msprobe.comparison.stacks import Frame, frames_of, locate

Stacks = Mapping[str, Sequence[str]]


def location(difference: FirstDifference | None, stacks: Stacks, golden_stacks: Stacks) -> Location:
    """Where a difference starts.

    Args:
        stacks, golden_stacks: entry name -> frames, of the target and of the golden dump.
    """
    if difference is None:
        return Location()
    call, around = difference.call, difference.module
    user, library = locate(frames_of(call.name, stacks))
    partner = call.pair.golden
    golden = locate(frames_of(partner.name, golden_stacks))[0] if partner is not None else None
    same = golden is None or user is None or golden.source == user.source
    named = _line(call.name, around, stacks)
    inner = _line(difference.last_inner, call.name, stacks) if difference.last_inner is not None else None
    return Location(
        user,
        library,
        None if same else golden,
        inner if inner not in (user, named) else None,
        _cause(difference, stacks, golden_stacks),
        named != user,
    )


def unmatched_frame(findings: Findings, stacks: Stacks, golden_stacks: Stacks) -> Frame | None:
    """The line of the first call that one side lacks, on the side that has it."""
    call = findings.unmatched
    if call is None:
        return None
    return _line(call.name, findings.unmatched_in or None, stacks if call.pair.target is not None else golden_stacks)


def _cause(difference: FirstDifference, stacks: Stacks, golden_stacks: Stacks) -> Frame | None:
    cause = difference.cause
    if cause is None:
        return None
    around = difference.call.name if difference.kind == "output" else difference.module
    if cause.pair.target is not None:
        return _line(cause.name, around, stacks)
    partner = difference.call.pair.golden if difference.kind == "output" else None
    return _line(cause.name, partner.name if partner is not None else around, golden_stacks)


def _line(name: str, around: str | None, stacks: Stacks) -> Frame | None:
    """The line that makes a call: the user's; or that of an installed package, where it makes the call and the user's line lies outside
    of the module around it, so that it says no more than that the model was called.

    Args:
        name: of the call.
        around: the module around it, None when there is none.
    """
    user, library = locate(frames_of(name, stacks))
    if user is None or library is None:
        return user
    if around is not None:
        outside = locate(frames_of(around, stacks))[0] == user
    else:  # of a module, another one must have called it that was not recorded itself
        parts = parse(name)
        outside = parts.is_module and parts.direction == "forward"
    return library if outside else user
