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
    inner = locate(frames_of(difference.last_inner, stacks))[0] if difference.last_inner is not None else None
    return Location(user, library, None if same else golden, inner if inner != user else None)


def unmatched_frame(findings: Findings, stacks: Stacks, golden_stacks: Stacks) -> Frame | None:
    """The user's line of the first call that one side lacks, on the side that has it."""
    call = findings.unmatched
    if call is None:
        return None
    return locate(frames_of(call.name, stacks if call.pair.target is not None else golden_stacks))[0]
