"""When the last second of a process began that was killed: what it finished earlier must be on the disk."""

from __future__ import annotations

from collections.abc import Sequence

STANDSTILL = 0.02
"""Seconds. A process that says what it does more often than that and is silent for longer waits for a processor or for the disk."""


def began(moments: Sequence[float], end: float, seconds: float = 1.0) -> float:
    """The moment so many seconds before `end`, not counting those in which the whole process stood still: then nothing can be written.

    Args:
        moments: when the process said something, in order.
    """
    left, later = seconds, end
    for moment in reversed(moments):
        left -= min(later - moment, STANDSTILL)
        if left <= 0:
            return moment
        later = moment
    return float("-inf")
