"""The optimizer's calls, where one parameter of the target is made of several golden ones or lies otherwise in memory.

Such calls take parameters, gradients and state, so that what the rules say of a parameter holds for them as well: `exp_avg.mul_` of a fused
weight is held against the same call of each of its parts, and of a list the elements that belong together are put together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msprobe.comparison.alignment.places import RowPair, pair_rows
from msprobe.comparison.alignment.sequence import align
from msprobe.comparison.alignment.side import Side
from msprobe.comparison.mapping.composed import ComposedRow, Part, absent_row, composed_row, shape
from msprobe.comparison.mapping.fused import inferred, most_unlike
from msprobe.comparison.mapping.labels import Block, Element, Labelled, Parameter, Track, Values, elements, labelled
from msprobe.comparison.mapping.rules import AS_IT_IS, How
from msprobe.comparison.match import CallPair
from msprobe.comparison.rows import Call, Row

WHOSE = "which parameter it belongs to is not known, and the two sides have other parameters"
ONE_EACH = "it has one element for each parameter, of which the two sides have different numbers"
NOT_OF_PARTS = "what is computed from a whole parameter does not follow from what is computed from its parts"


class Made(NamedTuple):
    """What a parameter of the target is made of."""

    parts: tuple[Parameter, ...]
    how: How


Parameters = Mapping[Parameter, Made]


def parameters_of(pairs: Sequence[CallPair], golden: Sequence[Call]) -> dict[Parameter, Made]:
    """How the parameters of two models correspond, as far as modules that ran tell; {} where each is one of the other side, as it is."""
    theirs = {id(row): Parameter(call.parts.base, row.key) for call in golden for row in call.rows if row.role == "parameters"}
    found: dict[Parameter, Made] = {}
    for pair in pairs:
        if pair.target is None or pair.golden is None or not pair.target.parts.is_module:
            continue
        for ours, other in pair.rows:
            if ours is None or other is None or ours.role != "parameters" or isinstance(ours, ComposedRow):
                continue
            name = Parameter(pair.target.parts.base, ours.key)
            if isinstance(other, ComposedRow):
                parts = tuple(theirs[id(part.row)] for part in other.composition.parts if id(part.row) in theirs)
                found.setdefault(name, Made(parts, other.composition.how))
            elif id(other) in theirs:
                found.setdefault(name, Made((theirs[id(other)],), AS_IT_IS))
    return found if any(len(made.parts) > 1 or made.how != AS_IT_IS for made in found.values()) else {}


def under_headings(calls: Sequence[Call], side: Side) -> dict[str, list[Call]]:
    """`optimizer`, `clip_grad` -> the forward calls under it."""
    found: dict[str, list[Call]] = {}
    for call in calls:
        heading = side.heading(call.name)
        if heading is not None and call.parts.direction == "forward" and not call.parts.is_module:
            found.setdefault(heading, []).append(call)
    return found


def paired(
    ours: Mapping[str, Sequence[Call]],
    theirs: Mapping[str, Sequence[Call]],
    sides: tuple[Side, Side],
    known: Parameters,
    directory: Path,
) -> list[CallPair]:
    """Pairs the calls under headings that both sides have.

    Args:
        ours, theirs: see `under_headings`.
        sides: both dumps.
        known: see `parameters_of`.
        directory: that of the golden tensor files.
    """
    values = Values(sides[0].calls.values()), Values(sides[1].calls.values())
    pairing = _Pairing(sides, known, directory)
    for heading, calls in ours.items():
        pairing.run(labelled(calls, values[0]), labelled(theirs.get(heading, ()), values[1]))
    order = {name: place for place, name in enumerate(sides[0].calls)}
    pairing.pairs.sort(key=lambda pair: order[pair.target.name] if pair.target is not None else len(order))
    return pairing.pairs


def note(pairs: Sequence[CallPair]) -> list[str]:
    """What could not be compared in these calls, as one sentence."""
    lost = [(both, row) for pair in pairs for both in pair.rows for row in both if isinstance(row, ComposedRow) and row.composition.nothing]
    if not lost:
        return []
    both, row = lost[0]
    known = next(other for other in both if other is not row and other is not None)
    return [
        f"{len(lost)} values of the optimizer's calls are not compared (first: {known.name}: {row.composition.missing});"
        " parameters and their gradients are, in their modules: record the next step too, it begins with what the optimizer made"
    ]


class _Pairing:
    def __init__(self, sides: tuple[Side, Side], known: Parameters, directory: Path) -> None:
        self.sides = sides
        self.known = known
        self.directory = directory
        self.lengths: set[tuple[int, int]] = set()
        self.pairs: list[CallPair] = []

    def run(self, ours: Labelled, theirs: Labelled) -> None:
        """Pairs the calls under one heading."""
        self._blocks(ours.blocks, theirs.blocks)
        found = align(self._kinds(0, ours.others), self._kinds(1, theirs.others))
        for i, j in found:
            mine, other = ours.others[i], theirs.others[j]
            tracks = ours.lists.get(mine.name), theirs.lists.get(other.name)
            if tracks[0] is not None and tracks[1] is not None:
                self.lengths.add((tracks[0].length, tracks[1].length))
                rows = self._lists(mine, other, tracks[0], tracks[1])
            else:
                rows = pair_rows(mine, other)
            self.pairs.append(CallPair(mine, other, tuple(map(self._one_each, rows))))
        self._alone(ours.others, theirs.others, {i for i, _ in found}, {j for _, j in found})

    def _kinds(self, side: int, calls: Sequence[Call]) -> list[str]:
        return [self.sides[side].kind(call.name) for call in calls]

    def _alone(self, ours: Sequence[Call], theirs: Sequence[Call], taken: set[int], taken_there: set[int]) -> None:
        left = [call for place, call in enumerate(ours) if place not in taken]
        self.pairs += [CallPair(call, None, tuple(RowPair(row, None) for row in call.rows)) for call in left]
        left = [call for place, call in enumerate(theirs) if place not in taken_there]
        self.pairs += [CallPair(None, call, tuple(RowPair(None, row) for row in call.rows)) for call in left]

    def _blocks(self, ours: Sequence[Block], theirs: Sequence[Block]) -> None:
        """Calls for one parameter each: with those for its parts, the n-th time with the n-th."""
        waiting: dict[Parameter, list[Block]] = {}
        for label, block in _named(theirs):
            waiting.setdefault(label, []).append(block)
        left: list[Call] = []
        for label, block in _named(ours):
            made = self.known.get(label)
            parts = [waiting[part].pop(0) for part in made.parts if waiting.get(part)] if made is not None else []
            if made is None or len(parts) < len(made.parts):
                left += block.calls
                continue
            partners = [dict(align(self._kinds(0, block.calls), self._kinds(1, part.calls))) for part in parts]
            used: list[set[int]] = [set() for _ in parts]
            for place, call in enumerate(block.calls):
                places = [partner.get(place) for partner in partners]
                golden = [part.calls[at] for part, at in zip(parts, places, strict=True) if at is not None]
                if len(golden) < len(parts):
                    left.append(call)
                    continue
                for one, at in zip(used, places, strict=True):
                    one.add(at if at is not None else -1)
                self.pairs.append(CallPair(call, golden[0], self._together(call, golden, made)))
            for part, one in zip(parts, used, strict=True):
                self._alone((), part.calls, set(), one)
        rest = [call for blocks in waiting.values() for block in blocks for call in block.calls]
        # Of no known parameter, or of one whose module has no partner: in their order, where they take in the same shapes.
        details = (lambda i: self.sides[0].detail(left[i].name)), (lambda j: self.sides[1].detail(rest[j].name))
        found = align(self._kinds(0, left), self._kinds(1, rest), details, only_alike=True)
        self.pairs += [CallPair(left[i], rest[j], pair_rows(left[i], rest[j])) for i, j in found]
        self._alone(left, rest, {i for i, _ in found}, {j for _, j in found})

    def _together(self, call: Call, golden: Sequence[Call], made: Made) -> tuple[RowPair, ...]:
        """The values of a call for one parameter, and of the calls for its parts."""
        if len(golden) == 1 and made.how == AS_IT_IS:
            return pair_rows(call, golden[0])
        by_key = [{row.key: row for row in other.rows} for other in golden]
        rows: list[RowPair] = []
        used: set[int] = set()
        for row in call.rows:
            parts = [found for keys in by_key if (found := keys.get(row.key)) is not None]
            used.update(map(id, parts))
            rows.append(RowPair(row, self._made(row, parts, made)) if len(parts) == len(golden) else RowPair(row, None))
        return (*rows, *(RowPair(None, row) for other in golden for row in other.rows if id(row) not in used))

    def _lists(self, call: Call, golden: Call, mine: Track, other: Track) -> tuple[RowPair, ...]:
        """The values of two calls that take lists."""
        where, there = elements(call)[1], elements(golden)[1]
        partners = self._partners(mine, other)
        by_element = {there[row.key]: row for row in golden.rows if row.key in there}
        by_key = {row.key: row for row in golden.rows if row.key not in there}
        rows: list[RowPair] = []
        used: set[int] = set()
        for row in call.rows:
            element = where.get(row.key)
            if element is None:
                parts, made = [found for found in (by_key.get(row.key),) if found is not None], Made((), AS_IT_IS)
            else:
                indices, made = partners.get(element.at, ((), Made((), AS_IT_IS)))
                parts = [found for at in indices if (found := by_element.get(Element(element.place, at))) is not None]
                if not indices:
                    rows.append(RowPair(row, absent_row(row, WHOSE)))
                    continue
                parts = parts if len(parts) == len(indices) else []
            used.update(map(id, parts))
            rows.append(RowPair(row, self._made(row, parts, made) if parts else None))
        unknown = {index for index, label in enumerate(other.labels()) if label is None}
        for row in golden.rows:
            if id(row) not in used:
                unlabelled = row.key in there and there[row.key].at in unknown
                rows.append(RowPair(absent_row(row, WHOSE) if unlabelled else None, row))
        return tuple(rows)

    def _partners(self, mine: Track, other: Track) -> dict[int, tuple[tuple[int, ...], Made]]:
        """Index in the lists of the target -> indices in the golden ones (-1 where a part is not there), and how they make it. What is not
        known has no entry."""
        ours, theirs = mine.labels(), other.labels()
        at = {label: index for index, label in enumerate(theirs) if label is not None}
        found: dict[int, tuple[tuple[int, ...], Made]] = {}
        for index, label in enumerate(ours):
            made = self.known.get(label) if label is not None else None
            if made is not None:
                found[index] = tuple(at.get(part, -1) for part in made.parts), made
        # What no value tells (all zero): one by one, where both sides have as many of them.
        left = [index for index, label in enumerate(ours) if label is None], [index for index, label in enumerate(theirs) if label is None]
        if len(left[0]) == len(left[1]):
            found.update((i, ((j,), Made((), AS_IT_IS))) for i, j in zip(*left, strict=True))
        return found

    def _made(self, row: Row, parts: Sequence[Row], made: Made) -> Row:
        """What a value is compared with."""
        from msprobe.comparison.mapping.arrays import CannotCompose

        whole = shape(row)
        if len(parts) == 1 and (made.how == AS_IT_IS or whole == ()):
            return parts[0]
        if whole is None or all(part.kind != "tensor" for part in parts):
            return most_unlike(row, parts)
        if len(parts) > 1 and all(shape(part) == whole for part in parts):
            # A step counter is the same for all parts; a norm is not.
            return parts[0] if all(part.statistics == parts[0].statistics for part in parts) else absent_row(row, NOT_OF_PARTS)
        for how in (made.how, inferred(row, parts)):
            try:
                composed = composed_row([Part(self.directory, part) for part in parts], how, row) if how is not None else None
            except CannotCompose:
                continue
            if composed is not None and shape(composed) == whole:
                return composed
        return absent_row(row, NOT_OF_PARTS) if len(parts) > 1 else parts[0]

    def _one_each(self, both: RowPair) -> RowPair:
        """A list of the parameters' norms as one tensor: of other lengths, and no difference that anybody looks for."""
        ours, theirs = both
        shapes = (shape(ours) if ours is not None else None), (shape(theirs) if theirs is not None else None)
        lengths = tuple(known[0] for known in shapes if known is not None and len(known) == 1)
        if ours is not None and len(lengths) == 2 and lengths[0] != lengths[1] and lengths in self.lengths:
            return RowPair(ours, absent_row(ours, ONE_EACH))
        return both


def _named(blocks: Sequence[Block]) -> list[tuple[Parameter, Block]]:
    """The blocks with their parameters; of several that it may be, the first that no block before was given."""
    given: dict[frozenset[Parameter], int] = {}
    found: list[tuple[Parameter, Block]] = []
    for block in blocks:
        options = sorted(block.candidates)
        turn = given[block.candidates] = given.get(block.candidates, -1) + 1
        found.append((options[turn % len(options)], block))
    return found


__all__ = ["Made", "Parameters", "note", "paired", "parameters_of", "under_headings"]
