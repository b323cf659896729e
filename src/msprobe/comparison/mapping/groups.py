"""Which ranks of the one side hold, together, what a rank of the other side holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

Groups = Sequence[Sequence[int]]


class Group(NamedTuple):
    """Directories of the target and of the golden side; one of the two lists has one member."""

    target: tuple[Path, ...]
    golden: tuple[Path, ...]


def grouped(target: Mapping[int, Path], golden: Mapping[int, Path], groups: Groups) -> list[Group] | str:
    """The groups, or a sentence about why there are none.

    Args:
        target, golden: rank -> directory; for a single process without a rank, its directory under any number.
        groups: ranks of the side that has more of them, in the order of their parts; () for all of them in one group.
    """
    many, few = (target, golden) if len(target) > len(golden) else (golden, target)
    lists = [tuple(group) for group in groups] or [tuple(sorted(many))]
    missing = sorted({rank for group in lists for rank in group if rank not in many})
    if missing:
        have = ", ".join(map(str, sorted(many)))
        return f"the mapping file's group names rank {missing[0]}, of which there is no dump; there are: {have}"
    if len(lists) != len(few):
        return (
            f"{len(many)} ranks in {len(lists)} groups on one side and {len(few)} ranks on the other cannot be paired;"
            " list the ranks of each group under `groups:` in the mapping file"
        )
    found: list[Group] = []
    for group, rank in zip(lists, sorted(few), strict=True):
        parts, whole = tuple(many[member] for member in group), (few[rank],)
        found.append(Group(parts, whole) if many is target else Group(whole, parts))
    return found
