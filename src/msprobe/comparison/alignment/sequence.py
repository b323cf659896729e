"""Two sequences of calls that ran in order -> which belongs to which. Knows nothing of modules and files.

First what is alone of its kind on both sides (a call with this weight) is taken as an anchor, as patience diff does; then, between the
anchors, equal beginnings and ends; what is left is small, and is aligned by dynamic programming (Needleman and Wunsch, 1970) that rewards
likeness. A remainder too large for its quadratic table is walked through once, with a short look ahead at each mismatch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

Pairs = list[tuple[int, int]]

_CELLS = 250_000
_LOOK_AHEAD = 48
_AGREE = 3
_KIND, _LIKE, _LINE, _MARK = 8, 3, 4, 4
_MOST_MARKS = 3


class Detail(NamedTuple):
    """What is known of an item besides its kind.

    Attributes:
        like: shapes and dtypes; equal for partners unless the two runs had other data.
        line: the line of code; equal for partners unless the two runs have other code. None where it is not known.
        marks: what an item shares with its partner and hardly with any other: the values of its inputs.
    """

    like: Hashable = None
    line: Hashable = None
    marks: Sequence[Hashable] = ()


Details = Callable[[int], Detail]


def align(
    ours: Sequence[Hashable], theirs: Sequence[Hashable], details: tuple[Details, Details] | None = None, *, only_alike: bool = False
) -> Pairs:
    """Pairs of indices, ascending on both sides; every index at most once. Only items of one kind pair.

    Args:
        ours, theirs: the kinds of the items in the order in which they ran.
        details: what else is known of the item at an index; asked for only where the two sequences of kinds differ.
        only_alike: items whose `like` differs do not pair.
    """
    if not only_alike and len(ours) == len(theirs) and list(ours) == list(theirs):
        return [(index, index) for index in range(len(ours))]
    if details is None:
        details = (_nothing, _nothing)
    aligner = _Aligner(ours, theirs, list(map(details[0], range(len(ours)))), list(map(details[1], range(len(theirs)))), only_alike)
    return aligner.run()


def _nothing(_: int) -> Detail:
    return Detail()


def increasing(pairs: Pairs) -> Pairs:
    """The longest part of `pairs` (sorted by their first number) whose second numbers ascend."""
    tails: list[int] = []
    at: list[int] = []
    before: list[int] = []
    for index, (_, j) in enumerate(pairs):
        place = bisect_left(tails, j)
        if place == len(tails):
            tails.append(j)
            at.append(index)
        else:
            tails[place] = j
            at[place] = index
        before.append(at[place - 1] if place else -1)
    chosen: Pairs = []
    index = at[-1] if at else -1
    while index >= 0:
        chosen.append(pairs[index])
        index = before[index]
    return chosen[::-1]


class _Aligner:
    def __init__(
        self, ours: Sequence[Hashable], theirs: Sequence[Hashable], our: Sequence[Detail], their: Sequence[Detail], only_alike: bool
    ) -> None:
        self.only_alike = only_alike
        if only_alike:
            ours = [(kind, detail.like) for kind, detail in zip(ours, our, strict=True)]
            theirs = [(kind, detail.like) for kind, detail in zip(theirs, their, strict=True)]
        self.ours, self.theirs = ours, theirs
        self.our, self.their = our, their
        # In two runs on other data no shape is equal, in two code bases no line: then they tell nothing.
        likes = _mostly_common([d.like for d in our], [d.like for d in their])
        lines = _mostly_common([d.line for d in our], [d.line for d in their])
        self.our_key, self.their_key = (
            [(kind, d.like if likes else None, d.line if lines else None) for kind, d in zip(kinds, side, strict=True)]
            for kinds, side in ((ours, our), (theirs, their))
        )
        self.pairs: Pairs = []

    def run(self) -> Pairs:
        start_a = start_b = 0
        for i, j in [*self._anchors(), (len(self.ours), len(self.theirs))]:
            self._gap(start_a, i, start_b, j)
            if i < len(self.ours):
                self.pairs.append((i, j))
            start_a, start_b = i + 1, j + 1
        return self.pairs

    def _anchors(self) -> Pairs:
        """Items that share a mark which no other item of their side has; where marks disagree, the pair with most of them."""
        unique = [_unique(side) for side in (self.our, self.their)]
        votes: Counter[tuple[int, int]] = Counter()
        for mark, i in unique[0].items():
            j = unique[1].get(mark)
            if j is not None and self.ours[i] == self.theirs[j]:
                votes[i, j] += 1 + (self.our_key[i] == self.their_key[j])
        if not votes:
            return []
        best: dict[int, tuple[int, int]] = {}
        best_back: dict[int, tuple[int, int]] = {}
        for (i, j), count in votes.items():
            best[i] = max(best.get(i, (0, 0)), (count, -j))
            best_back[j] = max(best_back.get(j, (0, 0)), (count, -i))
        mutual = [(i, -j) for i, (_, j) in best.items() if best_back[-j][1] == -i]
        return increasing(sorted(mutual))

    def _gap(self, a: int, a_end: int, b: int, b_end: int) -> None:
        """Aligns what lies between two anchors."""
        ours, theirs = self.our_key, self.their_key
        while a < a_end and b < b_end and ours[a] == theirs[b]:
            self.pairs.append((a, b))
            a, b = a + 1, b + 1
        tail: Pairs = []
        while a < a_end and b < b_end and ours[a_end - 1] == theirs[b_end - 1]:
            a_end, b_end = a_end - 1, b_end - 1
            tail.append((a_end, b_end))
        if a < a_end and b < b_end:
            if (a_end - a) * (b_end - b) <= _CELLS:
                self._best(a, a_end, b, b_end)
            else:
                self._walk(a, a_end, b, b_end)
        self.pairs.extend(reversed(tail))

    def _score(self, i: int, j: int) -> int:
        ours, theirs = self.our[i], self.their[j]
        score = _KIND
        if ours.like == theirs.like:
            score += _LIKE
        if ours.line is not None and ours.line == theirs.line:
            score += _LINE
        if ours.marks and theirs.marks:
            score += _MARK * min(len(set(ours.marks).intersection(theirs.marks)), _MOST_MARKS)
        return score

    def _best(self, a: int, a_end: int, b: int, b_end: int) -> None:
        rows, columns = a_end - a, b_end - b
        kinds = self.theirs[b:b_end]
        table = [[0] * (columns + 1) for _ in range(rows + 1)]
        scores: dict[tuple[int, int], int] = {}
        # From the end, so that going forward ties are broken towards the first.
        for i in range(rows - 1, -1, -1):
            below, row, kind, last = table[i + 1], table[i], self.ours[a + i], 0
            for j in range(columns - 1, -1, -1):
                if below[j] > last:
                    last = below[j]
                if kinds[j] == kind:
                    score = scores[i, j] = self._score(a + i, b + j)
                    if below[j + 1] + score > last:
                        last = below[j + 1] + score
                row[j] = last
        i = j = 0
        while i < rows and j < columns:
            score = scores.get((i, j), 0)
            if score and table[i][j] == table[i + 1][j + 1] + score:
                self.pairs.append((a + i, b + j))
                i, j = i + 1, j + 1
            elif table[i][j] == table[i + 1][j]:
                i += 1
            else:
                j += 1

    def _walk(self, a: int, a_end: int, b: int, b_end: int) -> None:
        while a < a_end and b < b_end:
            if self.our_key[a] == self.their_key[b]:
                self.pairs.append((a, b))
                a, b = a + 1, b + 1
                continue
            step = self._resume(a, a_end, b, b_end)
            if step is None:  # nothing alike near by: one kind is enough, else both go on
                if self.ours[a] == self.theirs[b]:
                    self.pairs.append((a, b))
                a, b = a + 1, b + 1
            else:
                a, b = a + step[0], b + step[1]

    def _resume(self, a: int, a_end: int, b: int, b_end: int) -> tuple[int, int] | None:
        ours, theirs = self.our_key, self.their_key
        for total in range(1, _LOOK_AHEAD + 1):
            for skip in range(total + 1):
                i, j = a + skip, b + total - skip
                if i >= a_end or j >= b_end or ours[i] != theirs[j]:
                    continue
                run = min(_AGREE, a_end - i, b_end - j)
                if ours[i : i + run] == theirs[j : j + run]:
                    return skip, total - skip
        return None


def _unique(side: Sequence[Detail]) -> dict[Hashable, int]:
    found: dict[Hashable, int] = {}
    for index, detail in enumerate(side):
        for mark in detail.marks:
            found[mark] = -1 if mark in found else index
    return {mark: index for mark, index in found.items() if index >= 0}


def _mostly_common(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> bool:
    common = Counter(ours) & Counter(theirs)
    return 2 * sum(count for value, count in common.items() if value is not None) >= min(len(ours), len(theirs))
