"""Whether one dump has every call k times as often as the other: a step() that was forgotten, or other micro-batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msprobe.comparison.rows import Call

_FEWEST = 2  # kinds of calls: of a single one, to be made twice says nothing


class Advice(str):
    """A note that explains most of what is found, and is told below the headline."""

    __slots__ = ()


def times(target: Sequence[Call], golden: Sequence[Call]) -> tuple[int, int]:
    """How often each side makes what the other makes once, (1, 1) for most pairs, (2, 1) where the target makes every call twice.

    Counts the forward calls of modules that both sides have, or, without any, those of APIs.
    """
    if len(target) == len(golden):  # as nearly always; then nothing is counted
        return 1, 1
    for of_modules in (True, False):
        counts = [_counts(calls, of_modules) for calls in (target, golden)]
        both = counts[0].keys() & counts[1].keys()
        if not both:
            continue
        found = {(counts[0][base] / counts[1][base]) for base in both}
        if len(both) < _FEWEST or len(found) != 1:
            return 1, 1
        ratio = found.pop()
        if ratio >= 1:
            return (int(ratio), 1) if ratio == int(ratio) else (1, 1)
        often = round(1 / ratio)
        return (1, often) if all(counts[1][base] == often * counts[0][base] for base in both) else (1, 1)
    return 1, 1


def advice(target: Sequence[Call], golden: Sequence[Call]) -> list[Advice]:
    """What to look at first, where one side has every call several times as often; else nothing."""
    ours, theirs = times(target, golden)
    if ours == theirs:
        return []
    more, fewer, often = ("target", "golden run", ours) if ours > theirs else ("golden run", "target", theirs)
    word = "twice" if often == 2 else f"{often} times"
    return [
        Advice(
            f"In this step the {more} makes every call {word} as often as the {fewer}: either debugger.step() is missing there between"
            f" two iterations, or it takes {often} micro-batches where the {fewer} takes one; record the same number on both sides"
        )
    ]


def _counts(calls: Sequence[Call], of_modules: bool) -> Counter[str]:
    return Counter(call.parts.base for call in calls if call.parts.direction == "forward" and call.parts.is_module is of_modules)


__all__ = ["Advice", "advice", "times"]
