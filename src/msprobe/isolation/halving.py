"""How many calls must be given their inputs for the end to be right."""

from __future__ import annotations

from collections.abc import Callable


def smallest(count: int, holds: Callable[[int], bool]) -> int:
    """The smallest k of 1..count for which `holds(k)`, known to be true for `count` and false for 0, neither of which is asked.

    Asks at most ceil(log2(count)) times. Where `holds` is not monotonic, a k for which it holds while it does not for k - 1.
    """
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def at_most(count: int) -> int:
    """Runs that a search over `count` calls takes at most: one with everything given, a plain one, and the halving."""
    return 2 + max(count - 1, 0).bit_length()
