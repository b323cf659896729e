"""Forward calls that a backward pass ran once more: activation checkpointing."""

from __future__ import annotations

from collections.abc import Hashable

from msprobe.comparison.alignment.side import Side


def recomputed(side: Side) -> dict[str, str]:
    """The forward calls that came after a backward call and took in the very values that an earlier call of the same name took in.

    What was called inside such a call belongs to them. Without values (task structure), the number of calls is all there is, and none is
    taken for a repetition.

    Returns:
        Name of such a call -> name of the first call that took in the same; "" where that is not known.
    """
    seen: dict[Hashable, str] = {}
    again: dict[str, str] = {}
    backward_began = False
    for name, call in side.calls.items():
        direction = call.parts.direction
        if direction == "backward":
            backward_began = True
        if direction != "forward":
            continue
        marks = tuple(side.values(call))
        if not marks:
            continue
        key = call.parts.base, marks
        if backward_began and key in seen:
            again[name] = seen[key]
        seen.setdefault(key, name)
    if not again:
        return {}
    return {name: again.get(name, "") for name in side.forwards if name in again or _is_inside(name, again, side)}


def _is_inside(name: str, again: dict[str, str], side: Side) -> bool:
    seen = {name}
    parent = side.parents.get(name)
    while isinstance(parent, str) and parent not in seen:
        if parent in again:
            return True
        seen.add(parent)
        parent = side.parents.get(parent)
    return False
