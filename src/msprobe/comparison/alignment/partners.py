"""Which call of the target is which call of the golden dump."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msprobe.comparison.alignment.recomputed import recomputed
from msprobe.comparison.alignment.reordered import may_be_reordered
from msprobe.comparison.alignment.siblings import Siblings, Tree
from msprobe.comparison.alignment.side import Side
from msprobe.comparison.names import forward_of

Again = Mapping[str, str]


class Partners(NamedTuple):
    """What belongs together.

    Attributes:
        calls: name in the target -> name in the golden dump, one to one.
        again: forward calls of each side that the backward pass ran once more (activation checkpointing), with the calls that they repeat;
            looked for only where the two sides have different numbers of calls.
        moved: how many forward calls both sides have, and in another order.
        one_by_one: the n-th call of the target is the n-th of the golden dump, throughout.
    """

    calls: dict[str, str]
    again: tuple[Again, Again] = ({}, {})
    one_by_one: bool = False
    moved: int = 0


def partners(target: Side, golden: Side, *, by_api_alone: bool = False) -> Partners:
    """Pairs the calls of two dumps.

    Forward calls are paired inside the same module, by their sequence; without construct.json on both sides, over the whole run. Backward
    calls are those of paired forward calls, whatever order they ran in; a backward call whose forward has no partner (it was not recorded,
    or was run again on one side) is paired by sequence, like a forward call. Gradients of parameters are paired by module.

    Args:
        target, golden: both sides.
        by_api_alone: pair what is left over by its API and its order alone, whatever module it is in and whatever it takes (`-fm`).
    """
    same_names = list(target.calls) == list(golden.calls) and target.parents == golden.parents and not target.renames
    if same_names and not may_be_reordered((target, golden), target.forwards):
        return Partners({name: name for name in target.calls}, one_by_one=True)
    flat = not (target.parents and golden.parents)
    again: tuple[Again, Again] = ({}, {})
    if len(target.forwards) != len(golden.forwards):
        again = recomputed(target), recomputed(golden)
    trees = [side.tree(_left(side.forwards, names), flat) for side, names in ((target, again[0]), (golden, again[1]))]
    siblings = Siblings(target, golden, (trees[0], trees[1]))
    found = _both(target, golden, siblings.run())
    if all(again):
        once_more = [side.tree(_only(side.forwards, names), flat) for side, names in ((target, again[0]), (golden, again[1]))]
        found.update(_both(target, golden, Siblings(target, golden, (once_more[0], once_more[1])).run()))
    if by_api_alone:
        found.update(_by_api(target, golden, target.forwards, golden.forwards, found))
    backward = _backward(target, golden, found, again, flat)
    if by_api_alone:
        backward.update(_by_api(target, golden, target.backwards, golden.backwards, backward))
    return Partners({**found, **backward, **_gradients(target, golden, found)}, again, moved=siblings.moved)


def _backward(target: Side, golden: Side, forward: dict[str, str], again: tuple[Again, Again], flat: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    theirs = {(forward_of(name), golden.parts(name).suffix): name for name in golden.backwards}
    for name in target.backwards:
        partner = theirs.get((forward.get(forward_of(name) or ""), target.parts(name).suffix))
        if partner is not None:
            found[name] = partner
    matched = set(forward), set(forward.values())
    # With use_reentrant, the gradients belong to the calls that were run again: to those of the first run on a side that ran them once.
    # Else, of two calls that both have their partners, one recorded no gradient, and that is no reason to take another's.
    for ours, theirs_again in ((again[0], None), (None, again[1]), (None, None)):
        mine = [name for name in _left(target.backwards, found) if _may(name, ours, matched[0], theirs_again)]
        other = [name for name in _left(golden.backwards, found.values()) if _may(name, theirs_again, matched[1], ours)]
        if mine and other:
            found.update(_both(target, golden, Siblings(target, golden, _trees(target, golden, mine, other, flat)).run()))
    return found


def _may(name: str, again: Again | None, matched: set[str], again_there: Again | None) -> bool:
    """Whether a backward call takes part: of the calls that were run again, against all; otherwise, only if its forward has no partner."""
    forward = forward_of(name)
    if again is not None:
        return forward in again
    return again_there is not None or forward not in matched


def _trees(target: Side, golden: Side, mine: list[str], other: list[str], flat: bool) -> tuple[Tree, Tree]:
    return target.tree(mine, flat), golden.tree(other, flat)


def _both(target: Side, golden: Side, found: dict[str, str]) -> dict[str, str]:
    """Without modules that only construct.json knows."""
    return {ours: theirs for ours, theirs in found.items() if ours in target.calls and theirs in golden.calls}


def _gradients(target: Side, golden: Side, forward: dict[str, str]) -> dict[str, str]:
    bases = {target.parts(ours).base: golden.parts(theirs).base for ours, theirs in forward.items() if target.parts(ours).is_module}
    named = {_gradient_key(golden.parts(name).base, name): name for name in golden.gradients}
    placed = {_gradient_key(golden.path(name), name): name for name in golden.gradients}
    found: dict[str, str] = {}
    used: set[str] = set()
    for name in target.gradients:
        base = bases.get(target.parts(name).base)
        partner = named.get(_gradient_key(base, name)) if base is not None else placed.get(_gradient_key(target.path(name), name))
        if partner is not None and partner not in used:
            found[name] = partner
            used.add(partner)
    return found


def _gradient_key(place: str, name: str) -> tuple[str, str]:
    return place, name.rpartition(".parameters_grad.")[2]


def _by_api(target: Side, golden: Side, ours: Iterable[str], theirs: Iterable[str], found: dict[str, str]) -> dict[str, str]:
    waiting: dict[tuple[str, str], list[str]] = {}
    for name in reversed(_left(theirs, found.values())):
        parts = golden.parts(name)
        waiting.setdefault((golden.meaning(parts), parts.suffix), []).append(name)
    pairs: dict[str, str] = {}
    for name in _left(ours, found):
        parts = target.parts(name)
        names = waiting.get((target.meaning(parts), parts.suffix))
        if names:
            pairs[name] = names.pop()
    return pairs


def _left(names: Iterable[str], taken: Iterable[str]) -> list[str]:
    taken = taken if isinstance(taken, (dict, set)) else set(taken)
    return [name for name in names if name not in taken]


def _only(names: Iterable[str], wanted: Again) -> list[str]:
    return [name for name in names if name in wanted]
