"""Layers with numbers for names, of which one side has more: a layer that was added in the middle moves the numbers of those behind it.

Their parameters tell which layer is which, where both runs began with the same ones. Otherwise the numbers hold.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence

from msprobe.comparison.alignment.sequence import align
from msprobe.comparison.alignment.side import Side

_NUMBERED = re.compile(r"(?:.*\.)?([0-9]+)\Z", re.DOTALL)


def numbered_alike(
    sides: tuple[Side, Side],
    names: tuple[Sequence[str], Sequence[str]],
    kinds: tuple[list[Hashable], list[Hashable]],
    trees: tuple[Mapping[str | None, Sequence[str]], Mapping[str | None, Sequence[str]]],
) -> None:
    """Gives the layers of the target the kinds of those golden layers that hold the same parameters.

    Args:
        sides, names, trees: both sides, the siblings there, and what is inside them.
        kinds: of the siblings; those of modules are ("", path). Changed in place.
    """
    groups = _groups(kinds[0]), _groups(kinds[1])
    for group, ours in groups[0].items():
        theirs = groups[1].get(group, [])
        if not theirs or {kinds[0][i] for i in ours} == {kinds[1][j] for j in theirs}:
            continue
        held = [_parameters(sides[0], names[0][i], trees[0]) for i in ours], [_parameters(sides[1], names[1][j], trees[1]) for j in theirs]
        pairs = [(i, j) for i, j in align(*held) if held[0][i] and held[0][i] == held[1][j]]
        by_kind = {kinds[1][j]: held[1][index] for index, j in enumerate(theirs)}
        by_number = [i for index, i in enumerate(ours) if held[0][index] and by_kind.get(kinds[0][i]) == held[0][index]]
        if len(pairs) <= len(by_number):
            continue
        moved = {ours[i]: kinds[1][theirs[j]] for i, j in pairs}
        used = set(moved.values())
        for i in ours:
            kind = moved.get(i, kinds[0][i])
            kinds[0][i] = ("added", kind) if i not in moved and kind in used else kind


def _groups(kinds: Sequence[Hashable]) -> dict[str, list[int]]:
    """Everything before the number -> indices, for modules that are called once."""
    groups: dict[str, list[int]] = {}
    for index, kind in enumerate(kinds):
        if type(kind) is tuple and (match := _NUMBERED.match(kind[1])):
            groups.setdefault(kind[1][: match.start(1)], []).append(index)
    return groups


def _parameters(side: Side, name: str, tree: Mapping[str | None, Sequence[str]]) -> Hashable:
    found: list[Hashable] = []
    waiting = [name]
    while waiting:
        name = waiting.pop()
        call = side.calls.get(name)
        if call is not None:
            found.extend((row.shape, row.md5, row.statistics) for row in call.rows if row.role == "parameters")
        waiting.extend(tree.get(name, ()))
    return tuple(found)
