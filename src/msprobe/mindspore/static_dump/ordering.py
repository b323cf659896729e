"""The order of a step's entries: that of the program, as in dynamic collection. Values come as the kernels of the graph happen to run."""

from __future__ import annotations

from collections.abc import Iterable

from msprobe.writer.entry import Entry

_Place = tuple[int, int, float]
"""Which run of the graph, 0 forward or 1 backward, which place in it."""


def in_order(entries: Iterable[Entry], forward: list[str], backward: list[str]) -> list[Entry]:
    """Entries in the order of the program: of each run of the graph the calls in the order of their ends, then the gradients.

    Args:
        entries: in the order in which their values came. What the two lists do not have stays behind the one before it.
        forward: cells in the order in which their calls end in a run of the graph, each as often as it is called.
        backward: the same of the backward part.
    """
    places = [_places(forward), _places(backward)]
    keyed: list[tuple[_Place, Entry]] = []
    last: _Place = (0, 0, -1)
    for entry in entries:
        base, direction, text = entry.name.rsplit(".", 2)
        of_cell = places[direction != "forward"].get(base)
        if of_cell:
            number, calls = int(text), len(of_cell)
            if direction == "forward":
                last = (number // calls, 0, of_cell[number % calls])
            elif direction == "backward":
                last = (number // calls, 1, of_cell[calls - 1 - number % calls])
            else:
                last = (number, 1, of_cell[-1] + 0.5)
        elif direction != "forward" and last[1] == 0:
            last = (last[0], 1, -1)
        keyed.append((last, entry))
    keyed.sort(key=lambda item: item[0])
    return [entry for _, entry in keyed]


def _places(run: list[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, cell in enumerate(run):
        found.setdefault(cell, []).append(place)
    return found
