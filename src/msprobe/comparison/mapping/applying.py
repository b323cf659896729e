"""The rules about tensors, applied to two dumps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msprobe.comparison.alignment.places import RowPair
from msprobe.comparison.alignment.side import Side, path_of
from msprobe.comparison.mapping import optimizer
from msprobe.comparison.mapping.composed import ComposedRow, Part, composed_pair
from msprobe.comparison.mapping.fused import fused_calls, rows_of
from msprobe.comparison.mapping.known_sums import with_known_sums
from msprobe.comparison.mapping.masks import Masks
from msprobe.comparison.mapping.places import Modules, Place, Use, key_in, lacks, uses
from msprobe.comparison.mapping.rules import AS_IT_IS, TensorRules
from msprobe.comparison.mapping.taken_apart import taken_apart
from msprobe.comparison.mapping.unfit import Unfit
from msprobe.comparison.match import Around, CallPair, Matching
from msprobe.comparison.names import forward_of
from msprobe.comparison.rows import Call, Row

Align = Callable[[Sequence[Call], Sequence[Call]], Matching]


def align_by_rules(
    calls: tuple[Sequence[Call], Sequence[Call]],
    around: tuple[Around, Around],
    rules: TensorRules,
    directories: tuple[Path, Path],
    align: Align,
    notes: list[str],
) -> tuple[Matching, set[str]]:
    """Pairs two dumps of which the rules speak. With it, the names of the calls of the target that stand for several golden ones.

    Args:
        calls, around: of both sides.
        rules: what the mapping file says of tensors.
        directories: where the tensor files of both sides lie.
        align: pairs calls of which no rule speaks.
        notes: gets a sentence for each rule that holds nowhere.
    """
    modules = Modules(calls[0]), Modules(calls[1])
    found: list[Use] = []
    for use in uses(rules.rules, *modules):
        if isinstance(use, str):
            notes.append(use)
        else:
            found.append(use)
    sides = tuple(Side(side, known.parents, known.stacks) for side, known in zip(calls, around, strict=True))
    trees = [side.tree(side.forwards, False) for side in sides]
    fused = fused_calls(found, modules, (sides[0], sides[1]), (trees[0], trees[1]))
    ours = {one.target.name: one for one in fused}
    theirs = {call.name for one in fused for call in one.golden}
    headed = optimizer.under_headings(calls[0], sides[0]), optimizer.under_headings(calls[1], sides[1])
    apart = taken_apart(fused, (sides[0], sides[1]), directories[1])
    matching = align(
        [call for call in calls[0] if call.name not in ours and call.name not in apart],
        [call for call in calls[1] if call.name not in theirs],
    )
    masks, unfit = Masks(modules, calls, directories), Unfit()
    made = {name: CallPair(one.target, one.golden[0], rows_of(one, directories, masks, unfit)) for name, one in ours.items()}
    pairs = _with_made(matching.pairs, calls[0], made | apart)
    single = [use for use in found if use.target.path not in {path_of(one.target.parts.base) for one in fused}]
    pairs = _with_rules(pairs, single, masks, unfit, directories, notes)
    notes += unfit.notes()
    known = optimizer.parameters_of(pairs, calls[1]) if all(headed) else {}
    if known:
        pairs = _with_headed(pairs, calls[0], headed, optimizer.paired(*headed, (sides[0], sides[1]), known, directories[1]))
        notes += optimizer.note(pairs)
    return matching._replace(pairs=with_known_sums(pairs)), set(made)


def _with_headed(
    pairs: Sequence[CallPair], target: Sequence[Call], headed: tuple[dict[str, list[Call]], dict[str, list[Call]]], anew: Sequence[CallPair]
) -> list[CallPair]:
    """With the calls under headings paired anew; what the golden dump alone has of them follows the last one."""
    names = [{call.name for calls in side.values() for call in calls} for side in headed]
    kept = [
        pair
        for pair in pairs
        if not (pair.target is not None and pair.target.name in names[0])
        and not (pair.target is None and pair.golden is not None and pair.golden.name in names[1])
    ]
    result = _with_made(kept, target, {pair.target.name: pair for pair in anew if pair.target is not None})
    last = max(
        (place for place, pair in enumerate(result) if pair.target is not None and pair.target.name in names[0]), default=len(result)
    )
    alone = [pair for pair in anew if pair.target is None]
    return [*result[: last + 1], *alone, *result[last + 1 :]]


def _with_made(pairs: Sequence[CallPair], target: Sequence[Call], made: Mapping[str, CallPair]) -> list[CallPair]:
    """At their places in the order of the target."""
    behind: dict[str, list[CallPair]] = {}
    before = ""
    for call in target:
        one = made.get(call.name)
        if one is None:
            before = call.name
        else:
            behind.setdefault(before, []).append(one)
    result = list(behind.get("", ()))
    for pair in pairs:
        result.append(pair)
        if pair.target is not None:
            result += behind.get(pair.target.name, ())
    return result


def _with_rules(
    pairs: list[CallPair], found: Sequence[Use], masks: Masks, unfit: Unfit, directories: tuple[Path, Path], notes: list[str]
) -> list[CallPair]:
    """Rules of which one golden module is the source: its calls are paired already, some of their values are put together otherwise."""
    by_path: dict[str, list[Use]] = {}
    for use in found:
        how = replace(use.how, shard=None, over="")
        if use.how.shard is None or how != AS_IT_IS:  # parts of several ranks are put together later
            by_path.setdefault(use.target.path, []).append(use._replace(how=how))
    if not by_path:
        return pairs
    elsewhere: set[str] = set()
    met: set[str] = set()
    result: list[CallPair] = []
    for pair in pairs:
        rules = by_path.get(path_of(pair.target.parts.base), ()) if pair.target is not None and pair.target.parts.is_module else ()
        for use in rules:
            if pair.golden is None or path_of(pair.golden.parts.base) != use.golden[0].path:
                elsewhere.add(f"{use.target.path}.{use.target.key}")
                met.add(use.rule)
                continue
            changed = _with_rule(pair, use, masks, unfit, directories)
            if changed is not None:
                pair = changed
                met.add(use.rule)
        result.append(pair)
    notes += [f"the mapping file's rule for {name} was not used: its golden module is paired with another" for name in sorted(elsewhere)]
    idle = {use.rule: use for uses in by_path.values() for use in reversed(uses) if use.rule not in met}
    notes += [f"the mapping file's rule for {rule} was not used: {_without_gradient(use, pairs)}" for rule, use in idle.items()]
    return result


def _with_rule(pair: CallPair, use: Use, masks: Masks, unfit: Unfit, directories: tuple[Path, Path]) -> CallPair | None:
    """None where the call has no such value."""
    from msprobe.comparison.mapping.arrays import CannotCompose

    assert pair.target is not None and pair.golden is not None
    key, golden_keys = _keys(use, pair.target.parts.direction)
    row = next((row for row in pair.target.rows if row.key == key), None)
    if row is None:
        return None
    by_key = {row.key: row for row in pair.golden.rows}
    missing = next((place for place, name in zip(use.golden, golden_keys, strict=True) if name not in by_key), None)
    if missing is not None:
        return _refused(pair, row, use, _lacks(missing, pair, by_key), unfit, directories[1])
    parts = [by_key[name] for name in golden_keys]
    forward = pair.name if pair.target.parts.direction == "forward" else forward_of(pair.name) or ""
    mask = masks.of(use.how.mask, forward) if use.how.mask is not None else None
    if use.how.mask is not None and mask is None:
        return _refused(pair, row, use, masks.missing(use.how.mask), unfit, directories[1])
    try:
        ours, theirs = composed_pair(row, [Part(directories[1], part) for part in parts], use.how, mask, directories[0])
    except CannotCompose as error:
        return _refused(pair, row, use, str(error), unfit, directories[1])
    used = {id(part) for part in parts}
    rows = [RowPair(ours, theirs) if both.target is row else both for both in pair.rows]
    lost = [both.target for both in rows if both.golden is not None and id(both.golden) in used and both.target is not None]
    kept = [both for both in rows if both.golden is None or id(both.golden) not in used]
    return pair._replace(rows=(*kept, *(RowPair(other, None) for other in lost)))


def _refused(pair: CallPair, row: Row, use: Use, why: str, unfit: Unfit, directory: Path) -> CallPair:
    rows = tuple(unfit.refused(both, use.rule, why, directory) if both.target is row else both for both in pair.rows)
    return pair._replace(rows=rows)


def _lacks(place: Place, pair: CallPair, known: Iterable[str]) -> str:
    """Which value the golden call does not have."""
    if pair.golden is not None and pair.golden.parts.direction == "forward":
        return lacks(place, known, "the golden run")
    key = place.key if place.key.startswith("grad.") else f"gradient of {place.key.removeprefix('parameters.')}"
    return f"{place.path} of the golden run has no {key}"


def _without_gradient(use: Use, pairs: Sequence[CallPair]) -> str:
    """Why a rule about a gradient met nothing."""
    calls = [pair.target for pair in pairs if pair.target is not None and pair.target.parts.is_module]
    backward = [call for call in calls if call.parts.direction == "backward" and path_of(call.parts.base) == use.target.path]
    if not backward:
        return f"no backward call of {use.target.path} was recorded"
    keys = [row.key for row in backward[0].rows]
    return lacks(use.target, [f"grad.output{key[5:]}" if key.startswith("input") else f"grad.input{key[6:]}" for key in keys], "the target")


def _keys(use: Use, direction: str) -> tuple[str, list[str]]:
    """Where the values lie in a call of this direction."""
    keys = [key_in(key, direction, not use.how.sum) for key in (use.target.key, *(place.key for place in use.golden))]
    return keys[0], keys[1:]


def composes(pairs: Sequence[CallPair]) -> bool:
    """Whether any value is made of several."""
    return any(isinstance(row, ComposedRow) for pair in pairs for both in pair.rows for row in both)
