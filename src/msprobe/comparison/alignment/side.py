"""One dump as a tree of calls, and what is known of each call besides its name."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property

from msprobe.comparison.alignment.meaning import meaning
from msprobe.comparison.alignment.sequence import Detail
from msprobe.comparison.names import EntryName, parse
from msprobe.comparison.rows import Call
from msprobe.comparison.stacks import frames_of, locate

Parents = Mapping[str, str | None]
Stacks = Callable[[], Mapping[str, Sequence[str]]]
Rename = Callable[[EntryName], str]


class Side:
    """The calls of one dump.

    Args:
        calls: in the order of dump.json.
        parents: construct.json; {} where there is none.
        stacks: reads stack.json; called only where the two sequences of calls differ.
        rename: what a call's base is called on the golden side (`Module.layers.0.fc.Linear`, `Tensor.__add__`); None for the golden side
            itself and where no names are mapped.
    """

    def __init__(self, calls: Sequence[Call], parents: Parents, stacks: Stacks, rename: Rename | None = None) -> None:
        self.parents = parents
        self.calls = {call.name: call for call in calls}
        self.forwards: list[str] = []
        self.backwards: list[str] = []
        self.gradients: list[str] = []
        lists = {"backward": self.backwards, "parameters_grad": self.gradients}
        for call in calls:
            lists.get(call.parts.direction, self.forwards).append(call.name)
        self._stacks = stacks
        self._frames: Mapping[str, Sequence[str]] | None = None
        self._lines: dict[int, Hashable] = {}
        self._rename = rename
        self._bases: dict[str, str] = {}
        self._meanings: dict[str, str] = {}
        self._virtual: dict[str, EntryName] = {}
        self._headings: dict[str, bool] = {}

    def parts(self, name: str) -> EntryName:
        """Of a recorded call, or of a module that construct.json alone knows."""
        call = self.calls.get(name)
        if call is not None:
            return call.parts
        if name not in self._virtual:
            self._virtual[name] = parse(name)
        return self._virtual[name]

    def path(self, name: str) -> str:
        """`layers.0.fc` of a module, in the names of the golden side; "" for what is no module."""
        return path_of(self.base(self.parts(name)))

    def own_path(self, name: str) -> str:
        """The same in the side's own names."""
        parts = self.parts(name)
        return path_of(parts.base) if parts.is_module else ""

    def class_name(self, name: str) -> str:
        """`Linear` of a module, in the names of the golden side."""
        return self.base(self.parts(name)).rpartition(".")[2]

    @property
    def renames(self) -> bool:
        """Whether any of its calls has another base on the golden side."""
        return self._rename is not None and any(self.base(call.parts) != call.parts.base for call in self.calls.values())

    def base(self, parts: EntryName) -> str:
        """The base in the names of the golden side."""
        found = self._bases.get(parts.base)
        if found is None:
            found = self._bases[parts.base] = parts.base if self._rename is None else self._rename(parts)
        return found

    def meaning(self, parts: EntryName) -> str:
        """One name for all APIs that compute the same."""
        found = self._meanings.get(parts.base)
        if found is None:
            found = self._meanings[parts.base] = meaning(self.base(parts))
        return found

    def tree(self, names: Sequence[str], flat: bool) -> dict[str | None, list[str]]:
        """Parent -> children in their order; None -> those without parent. With `flat` all are without parent."""
        if flat:
            return {None: list(names)}
        own = set(names)
        children: dict[str | None, list[str]] = {}
        placed: set[str] = set()
        for name in names:
            child: str | None = name
            while child is not None and child not in placed:
                placed.add(child)
                given = self.parents.get(child)
                parent = given if isinstance(given, str) and given != child and not self._is_heading(given) else None
                children.setdefault(parent, []).append(child)
                child = parent if parent not in own else None  # a module around the call may have no entry of its own
        _mend(children, placed)
        return children

    def _is_heading(self, name: str) -> bool:
        """`optimizer`, `clip_grad`: not a call, but what all of a step's calls of one kind stand under, however often they alternate with
        others."""
        found = self._headings.get(name)
        if found is None:
            found = self._headings[name] = name not in self.calls and not self.parts(name).direction
        return found

    def heading(self, name: str) -> str | None:
        """`optimizer`, `clip_grad` for a call that stands under one."""
        given = self.parents.get(name)
        return given if isinstance(given, str) and self._is_heading(given) else None

    def kind(self, name: str) -> str:
        """What an API call must share with its partner: its meaning, and the heading that it stands under."""
        heading = self.heading(name)
        meaning = self.meaning(self.parts(name))
        return f"{heading}: {meaning}" if heading is not None else meaning

    def detail(self, name: str) -> Detail:
        """What tells this call from others of its kind."""
        call = self.calls.get(name)
        if call is None:
            return Detail()
        like = tuple([(row.shape, row.dtype) for row in call.rows if row.kind == "tensor" and row.role == "input"])
        marks: list[Hashable] = []
        for mark in self.values(call):
            marks.append(mark)
            if mark[1] not in self._made:  # a weight tells more than what earlier calls made, which other layers may take in as well
                marks.append((*mark, "given"))
        return Detail(like, self.line(name), marks)

    @cached_property
    def _made(self) -> set[Hashable]:
        """What says of a value that a recorded call put it out."""
        rows = (row for call in self.calls.values() for row in call.rows if row.role == "output" and row.kind == "tensor")
        says = (row.md5 if row.md5 is not None else row.statistics for row in rows)
        return {one for one in says if _is_plain(one)}

    @staticmethod
    def values(call: Call) -> list[tuple[str, Hashable]]:
        """What the tensors that the call took in say about their values; not those that many calls share: zeros, single numbers."""
        found: list[tuple[str, Hashable]] = []
        for row in call.rows:
            if row.kind != "tensor" or row.role == "output" or row.value == 0 or row.value == 1:
                continue
            if row.md5 is not None:
                found.append((row.key, row.md5))
            elif None not in row.statistics and row.statistics[3] != 0:
                found.append((row.key, row.statistics))
        return [one for one in found if _is_plain(one[1])]

    def line(self, name: str) -> Hashable:
        """The line of code that makes the call, by function and text; None where it is not known."""
        if self._frames is None:
            self._frames = self._stacks()
        if not self._frames:
            return None
        frames = frames_of(name, self._frames)
        if not frames:
            return None
        key = id(frames)
        if key not in self._lines:
            user, library = locate(frames)
            self._lines[key] = None if user is None else (user.function, user.source, library.source if library is not None else "")
        return self._lines[key]


def path_of(base: str) -> str:
    """`layers.0.fc` of `Module.layers.0.fc.Linear`."""
    return base.partition(".")[2].rpartition(".")[0]


def _mend(children: dict[str | None, list[str]], names: set[str]) -> None:
    """What a circle in a damaged construct.json keeps from the root becomes a call without parent."""
    reached: set[str] = set()
    waiting = list(children.get(None, ()))
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting.extend(children.get(name, ()))
    lost = names - reached
    if not lost:
        return
    roots = children.setdefault(None, [])
    for parent in list(children):
        if parent in lost:
            roots.extend(child for child in children.pop(parent) if child in lost)


__all__ = ["Parents", "Rename", "Side", "Stacks", "path_of"]


def _is_plain(says: object) -> bool:
    """Whether it is a checksum or four numbers; a damaged dump may hold a list in their place."""
    return not any(isinstance(one, list | dict) for one in (says if isinstance(says, tuple) else (says,)))
