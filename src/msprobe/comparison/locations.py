"""From the calls that the search named to lines of code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msprobe.comparison.first_difference import Findings, FirstDifference
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
    user, library = locate(frames_of(difference.call.name, stacks))
    partner = difference.call.pair.golden
    golden = locate(frames_of(partner.name, golden_stacks))[0] if partner is not None else None
    same = golden is None or user is None or golden.source == user.source
    outside = user is not None and difference.module is not None and locate(frames_of(difference.module, stacks))[0] == user
    inner = _line(difference.last_inner, stacks, outside) if difference.last_inner is not None else None
    cause = difference.cause
    side = stacks if cause is None or cause.pair.target is not None else golden_stacks
    return Location(
        user,
        library,
        None if same else golden,
        inner if inner != user else None,
        _line(cause.name, side, outside) if cause is not None else None,
        outside,
    )


def _line(name: str, stacks: Stacks, outside: bool) -> Frame | None:
    """The line of a call: the user's, or where user code only calls the model, that of the library."""
    user, library = locate(frames_of(name, stacks))
    return library if outside and library is not None else user


def unmatched_frame(findings: Findings, stacks: Stacks, golden_stacks: Stacks) -> Frame | None:
    """The user's line of the first call that one side lacks, on the side that has it."""
    call = findings.unmatched
    if call is None:
        return None
    return locate(frames_of(call.name, stacks if call.pair.target is not None else golden_stacks))[0]
