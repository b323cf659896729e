"""Which value of a call is which value of its partner: by place, and where a place was named otherwise, by what the argument is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from msprobe.comparison.alignment.meaning import EXCHANGED
from msprobe.comparison.arguments import NAMES
from msprobe.comparison.rows import Call, Row


class RowPair(NamedTuple):
    """A value and its partner; exactly one side is None where there is no partner."""

    target: Row | None
    golden: Row | None


# Both run once for each of a million rows, in C: a NamedTuple's own constructor is Python code.
_key = attrgetter("key")
_pair: Callable[[tuple[Row, Row]], RowPair] = partial(tuple.__new__, RowPair)


def pair_rows(target: Call, golden: Call, without: frozenset[str] = frozenset()) -> tuple[RowPair, ...]:
    """The values of two calls that belong together, in the order of the target; what only the golden call has follows.

    Args:
        target, golden: the two calls.
        without: names of golden rows that are paired elsewhere.
    """
    theirs = golden.rows
    if without:
        theirs = tuple(row for row in theirs if row.name not in without)
    if target.parts.base == golden.parts.base and [*map(_key, target.rows)] == [*map(_key, theirs)]:
        return tuple(map(_pair, zip(target.rows, theirs)))  # noqa: B905 - equal lengths
    ours_named, theirs_named = _renamed(target), _renamed(golden)
    if bool(target.parts.own) != bool(golden.parts.own):  # of two frameworks
        from msprobe.comparison.frameworks.places import places

        ours_named, theirs_named = places(target, golden, ours_named, theirs_named), places(golden, target, theirs_named, ours_named)
    return by_keys(target.rows, theirs, ours_named, theirs_named)


def by_keys(target: tuple[Row, ...], golden: tuple[Row, ...], ours: dict[str, str], theirs: dict[str, str]) -> tuple[RowPair, ...]:
    """Pairs rows whose keys are equal, after `ours` and `theirs` have told other names of keys."""
    waiting: defaultdict[str, list[Row]] = defaultdict(list)
    for other in golden:
        waiting[theirs.get(other.key, other.key)].append(other)
    pairs: list[RowPair] = []
    for row in target:
        found = waiting.get(ours.get(row.key, row.key))
        pairs.append(RowPair(row, found.pop(0) if found else None))
    left = {id(other) for rows in waiting.values() for other in rows}
    pairs += [RowPair(None, other) for other in golden if id(other) in left]
    return tuple(pairs)


def _renamed(call: Call) -> dict[str, str]:
    """Key of a row -> the key it has when every argument is given by position, in the usual order."""
    parts = call.parts
    if parts.is_module or parts.direction != "forward":
        return {}
    if parts.base in EXCHANGED:
        return {"input.0": "input.1", "input.1": "input.0"}
    places = {name: f"input.{place}" for place, name in enumerate(argument_names(call))}
    keys = {row.key for row in call.rows}
    return {key: place for name, place in places.items() if (key := f"input.{name}") in keys and place not in keys}


def argument_names(call: Call) -> list[str]:
    """What the arguments of a call are called, in their usual order; [] where that is not known."""
    return NAMES.get(call.parts.base, "").split() or _COMMON.get(call.parts.api, [])


_BINARY = ("add", "sub", "mul", "div", "matmul", "pow", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge")
_COMMON = {name: ["input", "other"] for name in _BINARY}


__all__ = ["RowPair", "argument_names", "by_keys", "pair_rows"]
