"""Which parameter a value in the optimizer's calls belongs to.

Nothing recorded says so: the calls take parameters, gradients and the optimizer's state, one at a time or as lists. But the values of
parameters and gradients are known from the modules; what a call makes of a value of a parameter is that parameter's too; and lists of one
length hold the parameters in one order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from msprobe.comparison.rows import Call, Row

_NONE: frozenset[Parameter] = frozenset()


class Parameter(NamedTuple):
    """A parameter: the module (`Module.layers.0.fc.Linear`), and `parameters.weight`."""

    base: str
    key: str


class Element(NamedTuple):
    """A value in a list that a call took or gave: which list (`input.0`, `output`), and where in it."""

    place: str
    at: int


class Track:
    """What the lists of one length hold: for each index the parameters that it may be."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.candidates: list[frozenset[Parameter]] = [_NONE] * length

    def refine(self, found: Sequence[frozenset[Parameter]]) -> bool:
        """Takes in what a call tells; False, and nothing changes, where that contradicts what is known: the lists hold other parameters."""
        both = [_both(ours, theirs) for ours, theirs in zip(self.candidates, found, strict=True)]
        if any(one is None for one in both):
            return False
        self.candidates = [one or _NONE for one in both]
        return True

    def labels(self) -> list[Parameter | None]:
        """One parameter for each index, no parameter twice. Of several alike (the same value in all of them) the first left."""
        taken = {next(iter(one)) for one in self.candidates if len(one) == 1}
        found: list[Parameter | None] = []
        for one in self.candidates:
            if len(one) == 1:
                found.append(next(iter(one)))
                continue
            left = sorted(one - taken)
            found.append(left[0] if left else None)
            taken.update(left[:1])
        return found


class Block:
    """Calls, one after the other, for one parameter."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.candidates = _NONE


class Labelled(NamedTuple):
    """The calls under one heading.

    Attributes:
        lists: name of a call that takes lists -> what they hold.
        blocks: the calls that take one parameter each, in their order.
        others: calls of which no parameter is known, with those that take lists, in their order.
    """

    lists: dict[str, Track]
    blocks: list[Block]
    others: list[Call]


def elements(call: Call) -> tuple[int, dict[str, Element]]:
    """How long the lists are that a call takes (0: it takes none), and key of a row -> where it lies in them."""
    found: dict[str, Element] = {}
    for row in call.rows:
        head, _, last = row.key.rpartition(".")
        if row.role == "input" and head.count(".") == 1 and last.isdecimal():
            found[row.key] = Element(head, int(last))
    if not found:
        return 0, {}
    length = max(element.at for element in found.values()) + 1
    outputs = [row for row in call.rows if row.role == "output"]
    for row in outputs:
        head, _, last = row.key.rpartition(".")
        if last.isdecimal() and int(last) < length and (head != "output" or len(outputs) == length):
            found[row.key] = Element(head, int(last))
    return length, found


class Values:
    """Values of one side whose parameter is known."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self._of: dict[Hashable, frozenset[Parameter]] = {}
        for call in calls:
            if not call.parts.is_module:
                continue
            for row in call.rows:
                if row.role == "parameters":
                    self.learn(row, frozenset((Parameter(call.parts.base, row.key),)))
                elif row.role == "parameters_grad":
                    self.learn(row, frozenset((Parameter(call.parts.base, f"parameters.{row.key}"),)))

    def learn(self, row: Row, parameters: frozenset[Parameter]) -> None:
        """Notes that this value is one of these parameters'."""
        key = _key(row)
        if key is not None and parameters:
            self._of[key] = self._of.get(key, _NONE) | parameters

    def of(self, rows: Iterable[Row]) -> frozenset[Parameter]:
        """The parameters that all of these values may belong to; those that a value contradicts are none."""
        found = _NONE
        for row in rows:
            found = _both(found, self._of.get(_key(row), _NONE)) or found
        return found


def labelled(calls: Sequence[Call], values: Values) -> Labelled:
    """Tells the parameters of the calls under one heading (`optimizer`, `clip_grad`). `values` learns what they make."""
    tracks: dict[int, Track] = {}
    lists: dict[str, Track] = {}
    blocks: list[Block] = []
    others: list[Call] = []
    waiting: list[Call] = []  # of no known parameter: they belong to what follows, as a step counter's increment does
    for call in calls:
        length, where = elements(call)
        if length:
            track = _listed(call, length, where, tracks, values)
            lists[call.name] = track
            others += [*waiting, call]
            waiting = []
            for row in call.rows:
                if row.role == "output" and row.key in where:
                    values.learn(row, track.candidates[where[row.key].at])
            continue
        found = values.of(row for row in call.rows if row.kind == "tensor")
        if not found:
            waiting.append(call)
            continue
        both = _both(blocks[-1].candidates, found) if blocks else None
        if not both:
            blocks.append(Block())
        blocks[-1].candidates = both or found
        blocks[-1].calls += [*waiting, call]
        waiting = []
        for row in call.rows:
            if row.role == "output":
                values.learn(row, blocks[-1].candidates)
    return Labelled(lists, blocks, others + waiting)


def _listed(call: Call, length: int, where: dict[str, Element], tracks: dict[int, Track], values: Values) -> Track:
    rows: list[list[Row]] = [[] for _ in range(length)]
    for row in call.rows:
        if row.key in where and row.kind == "tensor":
            rows[where[row.key].at].append(row)
    found = [values.of(group) for group in rows]
    track = tracks.get(length)
    if track is None or not track.refine(found):
        track = tracks[length] = Track(length)
        track.refine(found)
    return track


def _both(ours: frozenset[Parameter], theirs: frozenset[Parameter]) -> frozenset[Parameter] | None:
    """What both allow, where nothing is known everything; None where they contradict each other."""
    if not ours or not theirs:
        return ours or theirs
    return ours & theirs or None


def _key(row: Row) -> Hashable:
    """What tells the value; None for what many values share: zeros, single numbers."""
    if row.kind != "tensor" or row.value in (0, 1):
        return None
    if None not in row.statistics:
        return (row.dtype, row.shape, row.statistics) if row.statistics[3] != 0 else None
    return (row.dtype, row.shape, row.md5) if row.md5 is not None else None


__all__ = ["Block", "Element", "Labelled", "Parameter", "Track", "Values", "elements", "labelled"]
