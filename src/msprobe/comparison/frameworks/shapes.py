"""The weight of a Conv1d: four-dimensional in MindSpore, where it is a Conv2d of height 1, and three-dimensional in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msprobe.comparison.alignment.places import RowPair
from msprobe.comparison.mapping.arrays import CannotCompose
from msprobe.comparison.mapping.composed import Part, composed_row, shape
from msprobe.comparison.mapping.rules import How
from msprobe.comparison.match import CallPair
from msprobe.comparison.rows import Row

_CLASSES = ("Conv1d", "ConvTranspose1d")
_HEIGHT = 2  # the dimension that one of the two lacks: of one element, between the channels and the width


def same_shapes(pairs: Sequence[CallPair], directories: tuple[Path, Path], notes: list[str]) -> tuple[list[CallPair], bool]:
    """The pairs, with the weights of such layers in three dimensions on both sides; and whether there are any.

    Args:
        pairs: of two frameworks.
        directories: where target and golden dump keep their tensor files.
        notes: gets a sentence about them.
    """
    count = 0
    made: list[CallPair] = []
    for pair in pairs:
        call = pair.target or pair.golden
        if call is not None and call.parts.is_module and call.parts.base.rpartition(".")[2] in _CLASSES:
            rows = tuple(_three_dimensions(row, directories) for row in pair.rows)
            count += sum(row is not before for row, before in zip(rows, pair.rows, strict=True))
            pair = pair._replace(rows=rows)
        made.append(pair)
    if count:
        notes.append(f"weights of Conv1d, which MindSpore keeps in four dimensions, are compared in three: {count}")
    return made, bool(count)


def _three_dimensions(row: RowPair, directories: tuple[Path, Path]) -> RowPair:
    ours, theirs = row
    if ours is None or theirs is None or ours.role not in ("parameters", "parameters_grad"):
        return row
    shapes = shape(ours), shape(theirs)
    for place, (long, short) in enumerate((shapes, shapes[::-1])):
        if long is not None and short is not None and len(long) == 4 and long[_HEIGHT] == 1 and (*long[:_HEIGHT], long[3]) == short:
            flat = _flat(row[place], directories[place], row[1 - place])
            return row if flat is None else RowPair(*((flat, theirs) if place == 0 else (ours, flat)))
    return row


def _flat(row: Row | None, directory: Path, like: Row | None) -> Row | None:
    assert row is not None and like is not None
    try:
        return composed_row([Part(directory, row)], How(flatten=(_HEIGHT, _HEIGHT + 1)), like)
    except CannotCompose:
        return None
