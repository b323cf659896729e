"""Sums of which four statistics leave much open, and which the golden run recorded elsewhere.

The gradient of what q, k and v take in is a sum on the golden side; what comes into the backward call of the layer before is that very sum.
In the target both are one value: where it is recorded twice, the second place tells the partner of the first.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from msprobe.comparison.alignment.places import RowPair
from msprobe.comparison.mapping.composed import ComposedRow
from msprobe.comparison.match import CallPair
from msprobe.comparison.rows import Row


def with_known_sums(pairs: Sequence[CallPair]) -> list[CallPair]:
    """The pairs, with the recorded value in the place of a sum where there is one. Tensors in files are added up exactly instead."""
    wanted = {_value(both.target) for pair in pairs for both in pair.rows if both.target is not None and _is_open(both)}
    if not wanted:
        return list(pairs)
    known: dict[Hashable, Row] = {}
    for pair in pairs:
        if pair.target is None or pair.target.parts.direction != "backward":
            continue
        for ours, theirs in pair.rows:
            if ours is None or theirs is None or ours.role != "input" or isinstance(theirs, ComposedRow) or theirs.shape != ours.shape:
                continue
            key = _value(ours)
            if key in wanted:
                known.setdefault(key, theirs)
    return [
        pair._replace(rows=tuple(_known(both, known) for both in pair.rows)) if any(map(_is_open, pair.rows)) else pair for pair in pairs
    ]


def _known(both: RowPair, known: dict[Hashable, Row]) -> RowPair:
    if not _is_open(both) or both.target is None:
        return both
    return RowPair(both.target, known.get(_value(both.target), both.golden))


def _is_open(both: RowPair) -> bool:
    ours, theirs = both
    return (
        ours is not None
        and isinstance(theirs, ComposedRow)
        and theirs.composition.how.sum
        and ours.data_name is None
        and None not in ours.statistics
        and ours.statistics[3] != 0
    )


def _value(row: Row) -> Hashable:
    return row.dtype, row.shape, row.statistics
