"""The calls inside one module on the two sides, and what is inside them in turn."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain

from msprobe.comparison.alignment.numbered import numbered_alike
from msprobe.comparison.alignment.reordered import reordered
from msprobe.comparison.alignment.sequence import Details, Pairs, align, increasing
from msprobe.comparison.alignment.side import Side

Tree = dict[str | None, list[str]]
Around = tuple[str | None, str | None]


class Siblings:
    """Pairs the calls of two trees, level by level.

    A module is known by its path within the module around it, whatever order it runs in; its class may be another. What is no module, and
    modules that no path pairs, are paired by their sequence. What then is left is looked for once more inside the modules that are left
    over themselves: a module that was wrapped into another, or taken apart.
    """

    def __init__(self, target: Side, golden: Side, trees: tuple[Tree, Tree]) -> None:
        self.sides = target, golden
        self.trees = trees
        self.found: dict[str, str] = {}
        self.moved = 0  # calls that ran in another order, where both sides have the same ones

    def run(self) -> dict[str, str]:
        """Name in the target -> name in the golden dump."""
        self.pair(self.trees[0].get(None, []), self.trees[1].get(None, []), (None, None))
        return self.found

    def pair(self, ours: Sequence[str], theirs: Sequence[str], around: Around) -> None:
        """Pairs two lists of siblings, and what is inside them."""
        waiting = [(ours, theirs, around)]
        while waiting:  # modules may be nested deeper than Python's stack
            ours, theirs, around = waiting.pop()
            if not ours or not theirs:
                continue
            for i, j in self._siblings(ours, theirs, around):
                self.found[i] = j
                inside = self.trees[0].get(i), self.trees[1].get(j)
                if inside[0] and inside[1]:
                    waiting.append((inside[0], inside[1], (i, j)))

    def _siblings(self, ours: Sequence[str], theirs: Sequence[str], around: Around) -> list[tuple[str, str]]:
        kinds = self._kinds(ours, theirs, around)
        if kinds[0] == kinds[1]:
            moved = reordered(self.sides, ours, theirs, kinds[0])
            if not moved:
                return _in_order(ours, theirs)
            self.moved += len(moved)
            places = ((i, moved.get(i, i)) for i in range(len(ours)))
            return [(ours[i], theirs[j]) for i, j in places if j is not None]
        numbered_alike(self.sides, (ours, theirs), kinds, self.trees)
        pairs = self._modules(ours, theirs, kinds)
        pairs += self._between(ours, theirs, kinds, pairs)
        pairs += self._moved(ours, theirs, kinds, pairs)
        named = [(ours[i], theirs[j]) for i, j in pairs]
        left = _without(ours, {i for i, _ in pairs}), _without(theirs, {j for _, j in pairs})
        return named + self._taken_apart(*left)

    def _kinds(self, ours: Sequence[str], theirs: Sequence[str], around: Around) -> tuple[list[Hashable], list[Hashable]]:
        target, golden = self.sides
        outer = target.own_path(around[0] or ""), golden.own_path(around[1] or "")
        kinds: tuple[list[Hashable], list[Hashable]] = ([], [])
        for name in ours:
            parts = target.parts(name)
            if not parts.is_module:
                kinds[0].append(target.kind(name))
                continue
            mapped, own = target.path(name), target.own_path(name)
            inner = _inside(mapped, outer[1])
            kinds[0].append(("", inner if inner is not None else _inside(own, outer[0]) or mapped))
        for name in theirs:
            parts = golden.parts(name)
            if not parts.is_module:
                kinds[1].append(golden.kind(name))
                continue
            path = golden.own_path(name)
            kinds[1].append(("", _inside(path, outer[1]) or path))
        return kinds

    def _details(self, ours: Sequence[str], theirs: Sequence[str]) -> tuple[Details, Details]:
        target, golden = self.sides
        return lambda i: target.detail(ours[i]), lambda j: golden.detail(theirs[j])

    def _modules(self, ours: Sequence[str], theirs: Sequence[str], kinds: tuple[list[Hashable], list[Hashable]]) -> Pairs:
        """By path; several calls of one module in their order."""
        places = [_places_of_modules(side) for side in kinds]
        pairs: Pairs = []
        for kind, mine in places[0].items():
            other = places[1].get(kind, [])
            if len(mine) == len(other):
                pairs += zip(mine, other, strict=True)
            elif other:
                details = self._details([ours[i] for i in mine], [theirs[j] for j in other])
                found = align([0] * len(mine), [0] * len(other), details)
                pairs += [(mine[i], other[j]) for i, j in found]
        return sorted(pairs)

    def _between(self, ours: Sequence[str], theirs: Sequence[str], kinds: tuple[list[Hashable], list[Hashable]], modules: Pairs) -> Pairs:
        """What stands between the modules that both sides call in one order: by sequence."""
        taken = {i for i, _ in modules}, {j for _, j in modules}
        pairs: Pairs = []
        start = 0, 0
        for end in [*increasing(modules), (len(ours), len(theirs))]:
            mine = [i for i in range(start[0], end[0]) if i not in taken[0]]
            other = [j for j in range(start[1], end[1]) if j not in taken[1]]
            start = end[0] + 1, end[1] + 1
            if not mine or not other:
                continue
            shown = [self._shown(0, ours[i], kinds[0][i]) for i in mine], [self._shown(1, theirs[j], kinds[1][j]) for j in other]
            found = align(*shown, self._details([ours[i] for i in mine], [theirs[j] for j in other]))
            pairs += [(mine[i], other[j]) for i, j in found]
        return pairs

    def _shown(self, side: int, name: str, kind: Hashable) -> Hashable:
        """The kind for an alignment by sequence: of a module that no path pairs, its class and the shapes of its parameters."""
        if type(kind) is not tuple:
            return kind
        call = self.sides[side].calls.get(name)
        shapes = tuple([(row.key, row.shape) for row in call.rows if row.role == "parameters"]) if call is not None else ()
        return "class", self.sides[side].class_name(name), shapes

    def _moved(self, ours: Sequence[str], theirs: Sequence[str], kinds: tuple[list[Hashable], list[Hashable]], pairs: Pairs) -> Pairs:
        """What ran in another order: alike, and no third call is."""
        taken = {i for i, _ in pairs}, {j for _, j in pairs}
        left = [i for i in range(len(ours)) if i not in taken[0]], [j for j in range(len(theirs)) if j not in taken[1]]
        if not left[0] or not left[1]:
            return []
        groups: dict[Hashable, tuple[list[int], list[int]]] = {}
        for side, names in enumerate((ours, theirs)):
            for index in left[side]:
                kind = kinds[side][index]
                if type(kind) is not tuple:
                    key = kind, self.sides[side].detail(names[index]).like
                    groups.setdefault(key, ([], []))[side].append(index)
        found: Pairs = []
        for mine, other in groups.values():
            if len(mine) == len(other):
                numbers = {ours[i]: i for i in mine}, {theirs[j]: j for j in other}
                found += [(numbers[0][a], numbers[1][b]) for a, b in _in_order(list(numbers[0]), list(numbers[1]))]
        return found

    def _taken_apart(self, ours: list[str], theirs: list[str]) -> list[tuple[str, str]]:
        """What is left over, with that which modules left over hold in their place: on one side, on the other, on both."""
        pairs: list[tuple[str, str]] = []
        while ours and theirs:
            opened = self._open(0, ours), self._open(1, theirs)
            if opened[0] == ours and opened[1] == theirs:
                break
            for mine, other in ((opened[0], theirs), (ours, opened[1]), opened):
                found = self._alike(mine, other)
                if found:
                    break
            pairs += found
            taken = set(chain.from_iterable(found))
            # Only what was looked into is gone from the next round; a module whose content was paired is not looked into again.
            ours = [name for name in opened[0] if name not in taken]
            theirs = [name for name in opened[1] if name not in taken]
            inside = [{inner for name in taken for inner in self.trees[side].get(name, ())} for side in (0, 1)]
            ours = [name for name in ours if name not in inside[0]]
            theirs = [name for name in theirs if name not in inside[1]]
        return pairs

    def _alike(self, ours: list[str], theirs: list[str]) -> list[tuple[str, str]]:
        """Modules of one path; then, by sequence, what has one meaning and takes in the same shapes."""
        paths = [{self.sides[side].path(name) for name in names} - {""} for side, names in enumerate((ours, theirs))]
        common = paths[0] & paths[1]
        kinds = [self._place(0, name, common) for name in ours], [self._place(1, name, common) for name in theirs]
        pairs = self._modules(ours, theirs, kinds) if common else []
        taken = {i for i, _ in pairs}, {j for _, j in pairs}
        left = [i for i in range(len(ours)) if i not in taken[0]], [j for j in range(len(theirs)) if j not in taken[1]]
        shown = [kinds[0][i] for i in left[0]], [kinds[1][j] for j in left[1]]
        details = self._details([ours[i] for i in left[0]], [theirs[j] for j in left[1]])
        pairs += [(left[0][i], left[1][j]) for i, j in align(*shown, details, only_alike=True)]
        return [(ours[i], theirs[j]) for i, j in pairs]

    def _open(self, side: int, names: list[str]) -> list[str]:
        opened: list[str] = []
        for name in names:
            opened.extend(self.trees[side].get(name) or [name])
        return opened

    def _place(self, side: int, name: str, common: set[str]) -> Hashable:
        parts = self.sides[side].parts(name)
        if not parts.is_module:
            return self.sides[side].kind(name)
        path = self.sides[side].path(name)
        return ("", path) if path in common else ("", path.rpartition(".")[2], self.sides[side].class_name(name))


def _in_order(ours: Sequence[str], theirs: Sequence[str]) -> list[tuple[str, str]]:
    """Of equal kinds: by name where the names are the same ones, as those of backward calls in another order; else one by one."""
    if set(ours) == set(theirs):
        return [(name, name) for name in ours]
    return list(zip(ours, theirs, strict=True))


def _inside(path: str, outer: str) -> str | None:
    if not outer:
        return path
    return path[len(outer) + 1 :] if path.startswith(outer + ".") else None


def _places_of_modules(kinds: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    places: dict[Hashable, list[int]] = {}
    for index, kind in enumerate(kinds):
        if type(kind) is tuple:
            places.setdefault(kind, []).append(index)
    return places


def _without(names: Sequence[str], indices: set[int]) -> list[str]:
    return [name for index, name in enumerate(names) if index not in indices]
