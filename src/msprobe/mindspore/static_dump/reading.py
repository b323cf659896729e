"""What the sources of a model say: how often its cells run, and where a tap may change the last bits of a gradient.

The gradient of a tensor that is used several times is a sum, in the order in which MindSpore looks at the uses. A tap on an input of a
cell adds up the uses inside of the cell first. Where there are others outside, and three or more in all, that may be another order. No tap
can do without: in `(inside1 + outside) + inside2` the cell's own part, which is to be recorded, is no number of the graph. The same holds
for one of several results that the cell goes on using.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

from typing import Any, NamedTuple

from mindspore import nn

from msprobe.contain import let_through
from msprobe.mindspore.dump.cell_dump.naming import RECOMPUTED
from msprobe.mindspore.static_dump.source import MANY, Path, counted, paths
from msprobe.mindspore.static_dump.source_items import Value

ONCE, CHAINED, FREE = 0, 1, 2
"""How often a cell runs in a run of the graph: once; more often, each run after the one before; in whatever order, or that is not known."""

_DEEPEST = 100
_LONGEST = 100_000


class _Own(NamedTuple):
    """What one cell's source says; `passes`: it gives an argument back as it is; `calls`: the cells that it calls, in
    order; without those that it may call more often or less often."""

    calls: list[Any]
    terms: dict[Any, int]
    order: dict[int, int]
    inputs: set[int]
    outputs: bool
    passes: bool


class Reading:
    """What is found.

    Attributes:
        inputs: ids of the cells of which a tap on an input may change bits.
        outputs: ids of the cells of which a tap on an output may change bits.
        unread: ids of the cells whose source cannot be followed.
    """

    def __init__(self, roots: list[Any]) -> None:
        self._roots = roots
        self.inputs: set[int] = set()
        self.outputs: set[int] = set()
        self.unread: set[int] = set()
        self._known: dict[int, _Own | None] = {}
        self._order = {id(root): ONCE for root in roots}
        self._parents: dict[int, list[tuple[int, int]]] = {}
        for root in roots:
            for cell in _called(root):
                own = self._own(cell)
                if own is None:
                    self.unread.add(id(cell))
                    continue
                self.inputs |= own.inputs
                if own.outputs:
                    self.outputs.add(id(cell))
                for child, order in own.order.items():
                    self._parents.setdefault(child, []).append((id(cell), order))

    def program(self, backward: bool = False) -> list[int]:
        """Ids of cells in the order in which their calls end in a run of the graph, as far as the sources tell; a cell stands there as
        often as it is called. `backward`: in which the first gradient of each comes."""
        found: list[int] = []
        for root in self._roots:
            if backward:
                found.append(id(root))
            self._walk(root, found, backward, 0)
            if not backward:
                found.append(id(root))
        return found

    def _walk(self, cell: Any, found: list[int], backward: bool, depth: int) -> None:
        own = self._known.get(id(cell))
        if own is None or depth > _DEEPEST or len(found) > _LONGEST:
            return
        for child in reversed(own.calls) if backward else own.calls:
            if backward:
                found.append(id(child))
            self._walk(child, found, backward, depth + 1)
            if not backward:
                found.append(id(child))

    def order(self, cell: int) -> int:
        """ONCE, CHAINED or FREE, of a cell's id."""
        if cell not in self._order:
            self._order[cell] = FREE  # for a cell inside of itself
            parents = self._parents.get(cell, [])
            if not parents and not self.unread:
                self._order[cell] = ONCE  # nobody calls it
            elif len(parents) == 1:
                (parent, inside) = parents[0]
                self._order[cell] = max(inside, self.order(parent))
        return self._order[cell]

    def _own(self, cell: Any) -> _Own | None:
        identity = id(cell)
        if identity not in self._known:
            self._known[identity] = None  # for a cell inside of itself
            try:
                self._known[identity] = _summed_up(paths(cell, self._terms))
            except Exception as error:  # it cannot be followed, whatever the reason
                let_through(error)
        return self._known[identity]

    def _terms(self, cell: Any, place: Any) -> int:
        """How often the gradient of a cell's argument is contributed to from inside, at most."""
        own = self._own(cell)
        return MANY if own is None or own.passes else own.terms.get(place, MANY)


def _called(root: Any) -> list[Any]:
    """The cells that are called; containers of cells are not."""
    found = [cell for path, cell in root.cells_and_names() if RECOMPUTED not in path.split(".")]
    return [cell for cell in found if not isinstance(cell, nn.CellList | nn.CellDict | nn.Optimizer)]


def _summed_up(found: list[Path]) -> _Own:
    counts = [counted(path) for path in found]
    sure = {id(cell) for path in found for cell, _, _ in path.calls}
    sure -= {cell for path in found for cell in path.uncertain} | {cell for cell in sure if len({count[cell] for count in counts}) > 1}
    own = _Own([cell for cell, _, _ in found[0].calls if id(cell) in sure], {}, {}, set(), False, False)
    outputs = passes = False
    for path in found:
        for place, value in path.arguments.items():
            own.terms[place] = max(own.terms.get(place, 0), value.terms)
        returned = _returned(path.result)
        arguments = list(path.arguments.values())
        passes = passes or any(value in arguments for value in returned)
        if isinstance(path.result, tuple):
            outputs = outputs or any(value.uses or returned.count(value) > 1 for value in returned)
        for value in path.values:
            others = MANY if value in returned else 0
            for use in value.uses:
                if use.cell is not None and _splits(use.terms, value.terms - use.terms + others, use.alone):
                    own.inputs.add(id(use.cell))
        for cell, times in counted(path).items():
            calls = [(number, after) for one, number, after in path.calls if id(one) == cell]
            chained = all(after is not None and calls[at][0] in after for at, (_, after) in enumerate(calls[1:]))
            own.order[cell] = max(own.order.get(cell, ONCE), ONCE if times == 1 else CHAINED if chained else FREE)
    return own._replace(outputs=outputs, passes=passes)


def _splits(inside: int, outside: int, alone: bool) -> bool:
    """Whether a sum of these terms may come out otherwise when those inside are added up first."""
    return outside > 0 and inside + outside >= MANY and not (alone and inside == 1)


def _returned(result: Any) -> list[Value]:
    if isinstance(result, Value):
        return [result]
    return [value for one in result for value in _returned(one)] if type(result) is tuple else []
