"""Calls of one kind that ran in another order: `k = self.k(x)` before `q = self.q(x)`. What they take in tells which is which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from msprobe.comparison.alignment.side import Side
from msprobe.comparison.rows import Call, Row

_SHIFT = 3
_marks: Callable[..., tuple[dict[Hashable, int], dict[Hashable, int]]] | None
try:
    from msprobe.comparison.alignment._marks import differing as _marks
except ImportError:  # installed without a compiler
    _marks = None


def reordered(sides: tuple[Side, Side], ours: Sequence[str], theirs: Sequence[str], kinds: Sequence[Hashable]) -> dict[int, int | None]:
    """Looks for calls that stand at another place among those of the golden dump.

    A call has another partner than the one at its place where that takes in a value which this one does not, and everything else that the
    one at its place has in common with it; two experts that hold each other's weights still take in their own tokens. A line of code that
    is at its place must not be left for another line.

    Args:
        sides: both sides.
        ours, theirs: names of calls, as many on both sides.
        kinds: what the calls at each place are; the same on both sides.

    Returns:
        Places of the target -> places of the golden dump, None for no partner, where it is not the same place; empty nearly always.
    """
    votes: Counter[tuple[int, int]] = Counter()
    mine, places = _differing(sides, ours, theirs)
    for mark, i in mine.items():
        j = places.get(mark, -1)
        if i >= 0 <= j and i != j and kinds[i] == kinds[j]:
            votes[i, j] += 1
    moved: dict[int, int | None] = {}
    taken: set[int] = set()
    for (i, j), _ in votes.most_common():
        if i not in moved and j not in taken and _belongs(sides, ours[i], theirs[i], theirs[j]):
            moved[i] = j
            taken.add(j)
    left = sorted(taken - moved.keys()), sorted(moved.keys() - taken)
    shifted = len(moved) >= _SHIFT and (
        all(j is not None and j > i for i, j in moved.items()) or all(j is not None and j < i for i, j in moved.items())
    )
    for index, i in enumerate(left[0]):  # whose place was taken: what is left over in turn
        other = left[1][index]
        moved[i] = None if shifted or kinds[i] != kinds[other] else other
    return moved


def may_be_reordered(sides: tuple[Side, Side], names: Sequence[str]) -> bool:
    """Whether `reordered` can find anything among calls of equal names: a value that two calls of one base have each other's."""
    mine, places = _differing(sides, names, names)
    calls = sides[0].calls
    for mark in mine.keys() & places.keys():
        i, j = mine[mark], places[mark]
        if i >= 0 <= j and i != j and calls[names[i]].parts.base == calls[names[j]].parts.base:
            return True
    return False


def _differing(sides: tuple[Side, Side], ours: Sequence[str], theirs: Sequence[str]) -> tuple[dict[Hashable, int], dict[Hashable, int]]:
    """What one side takes in and the other does not at the same place, -> the place; -1 where it is not alone. Of both sides."""
    calls = [*map(sides[0].calls.get, ours)]
    others = [*map(sides[1].calls.get, theirs)]
    return _marks(calls, others) if _marks is not None else (_marks_of(calls, others, 0), _marks_of(calls, others, 1))


def _marks_of(calls: Sequence[Call | None], others: Sequence[Call | None], side: int) -> dict[Hashable, int]:
    found: dict[Hashable, int] = {}
    for index, (mine, other) in enumerate(zip(calls, others, strict=True)):
        if mine is other or mine is None or other is None or mine.rows == other.rows:
            continue
        for rows in zip(mine.rows, other.rows):  # noqa: B905 - what one has more of is in no pair
            if rows[0] is rows[1] or (rows[0].statistics == rows[1].statistics and rows[0].md5 == rows[1].md5):
                continue
            row = rows[side]
            if row.kind != "tensor" or row.role == "output" or row.value == 0 or row.value == 1:
                continue
            mark = row.md5 if row.md5 is not None else row.statistics
            if mark is row.statistics and (None in row.statistics or row.statistics[3] == 0):
                continue
            known = found.setdefault(mark, index)
            if known != index:
                found[mark] = -1
    return found


def _belongs(sides: tuple[Side, Side], name: str, here: str, there: str) -> bool:
    call, own, other = sides[0].calls[name], sides[1].calls[here], sides[1].calls[there]
    common, better = _common(call, own), _common(call, other)
    if not common < better:
        return False
    line = sides[0].line(name)
    return line is None or line != sides[1].line(here) or line == sides[1].line(there)


def _common(call: Call, other: Call) -> set[str]:
    """Keys of what both take in alike. Plain values that most calls share count as well."""
    values = {row.key: _value(row) for row in other.rows if row.role != "output"}
    return {row.key for row in call.rows if row.role != "output" and row.key in values and values[row.key] == _value(row)}


def _value(row: Row) -> Hashable:
    if row.kind != "tensor":
        return repr(row.value)
    return row.shape, row.dtype, row.md5 if row.md5 is not None else row.statistics
