"""Forward calls that a backward pass ran once more: activation checkpointing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable

from msprobe.comparison.alignment.side import Side
from msprobe.comparison.names import forward_of


def recomputed(side: Side) -> dict[str, str]:
    """The forward calls in the middle of a backward pass that took in the very values which an earlier call of the same name took in.

    A forward call lies in the middle of a backward pass when, after it, gradients come out of a call that ran before that pass began; or
    when it requires gradients where its first run, as under a reentrant checkpoint, did not. A second micro-batch, or an optimizer that
    meets equal parameters, is neither. A call whose gradient was there before is not run again.

    What was called inside such a call belongs to them. Without values (task structure), the number of calls is all there is, and none is
    taken for a repetition.

    Returns:
        Name of such a call -> name of the first call that took in the same; "" where that is not known.
    """
    if not side.backwards:
        return {}
    order = {name: index for index, name in enumerate(side.calls)}
    backward = {forward: order[name] for name in side.backwards if (forward := forward_of(name)) is not None}
    passes = _Passes(order, backward)
    seen: dict[Hashable, str] = {}
    again: dict[str, str] = {}
    for name, call in side.calls.items():
        if call.parts.direction != "forward":
            continue
        marks = tuple(side.values(call))
        if not marks:
            continue
        key = call.parts.base, marks
        first = seen.setdefault(key, name)
        if first == name or not passes.began_between(order[first], order[name]) or backward.get(first, len(order)) < order[name]:
            continue
        without_gradients = name in backward and first not in backward and not _requires_grad(side, first)
        if without_gradients or passes.is_within(order[name]):
            again[name] = first
    if not again:
        return {}
    return {name: again.get(name, "") for name in side.forwards if name in again or _is_inside(name, again, side)}


class _Passes:
    """Where the backward passes of a run lie.

    Args:
        order: name -> place in dump.json.
        backward: forward call -> place of its backward entry.
    """

    def __init__(self, order: dict[str, int], backward: dict[str, int]) -> None:
        self._places = sorted(backward.values())
        # Of the backward entries from each place on, the earliest forward call to which one belongs.
        forwards = {place: order.get(name, place) for name, place in backward.items()}
        self._earliest = [forwards[place] for place in self._places]
        for index in range(len(self._places) - 2, -1, -1):
            self._earliest[index] = min(self._earliest[index], self._earliest[index + 1])

    def began_between(self, first: int, second: int) -> bool:
        """Whether there is a backward entry between two places."""
        index = bisect_right(self._places, first)
        return index < len(self._places) and self._places[index] < second

    def is_within(self, place: int) -> bool:
        """Whether a backward entry from here on belongs to a call that ran before the last backward entry up to here."""
        index = bisect_right(self._places, place)
        return 0 < index < len(self._places) and self._earliest[index] < self._places[index - 1]


def _requires_grad(side: Side, name: str) -> bool:
    return any(row.requires_grad == "True" for row in side.calls[name].rows if row.role == "output")


def _is_inside(name: str, again: dict[str, str], side: Side) -> bool:
    seen = {name}
    parent = side.parents.get(name)
    while isinstance(parent, str) and parent not in seen:
        if parent in again:
            return True
        seen.add(parent)
        parent = side.parents.get(parent)
    return False
