"""The rules about tensors, applied to two dumps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msprobe.comparison.alignment.places import RowPair
from msprobe.comparison.alignment.side import Side, path_of
from msprobe.comparison.mapping import optimizer
from msprobe.comparison.mapping.composed import ComposedRow, Part, composed_row, without_dims
from msprobe.comparison.mapping.fused import fused_calls, rows_of
from msprobe.comparison.mapping.known_sums import with_known_sums
from msprobe.comparison.mapping.places import Modules, Use, key_in, uses
from msprobe.comparison.mapping.rules import How, TensorRules
from msprobe.comparison.mapping.taken_apart import taken_apart
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
    made = {name: CallPair(one.target, one.golden[0], rows_of(one, directories[1])) for name, one in ours.items()}
    pairs = _with_made(matching.pairs, calls[0], made | apart)
    single = [use for use in found if use.target.path not in {path_of(one.target.parts.base) for one in fused}]
    pairs = _with_rules(pairs, single, modules, calls, directories, notes)
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
    pairs: list[CallPair],
    found: Sequence[Use],
    modules: tuple[Modules, Modules],
    calls: tuple[Sequence[Call], Sequence[Call]],
    directories: tuple[Path, Path],
    notes: list[str],
) -> list[CallPair]:
    """Rules of which one golden module is the source: its calls are paired already, some of their values are put together otherwise."""
    by_path: dict[str, list[Use]] = {}
    for use in found:
        if use.how.shard is None:
            by_path.setdefault(use.target.path, []).append(use)
    if not by_path:
        return pairs
    masks = _Masks(modules, calls, directories)
    elsewhere: set[str] = set()
    result: list[CallPair] = []
    for pair in pairs:
        rules = by_path.get(path_of(pair.target.parts.base), ()) if pair.target is not None and pair.target.parts.is_module else ()
        for use in rules:
            if pair.golden is None or path_of(pair.golden.parts.base) != use.golden[0].path:
                elsewhere.add(f"{use.target.path}.{use.target.key}")
                continue
            pair = _with_rule(pair, use, masks, directories)
        result.append(pair)
    notes += [f"the mapping file's rule for {name} was not used: its golden module is paired with another" for name in sorted(elsewhere)]
    return result


def _with_rule(pair: CallPair, use: Use, masks: _Masks, directories: tuple[Path, Path]) -> CallPair:
    from msprobe.comparison.mapping.arrays import CannotCompose

    assert pair.target is not None and pair.golden is not None
    direction = pair.target.parts.direction
    key, golden_keys = _keys(use, direction)
    row = next((row for row in pair.target.rows if row.key == key), None)
    by_key = {row.key: row for row in pair.golden.rows}
    parts = [by_key[name] for name in golden_keys if name in by_key]
    if row is None or not parts or len(parts) < len(golden_keys):
        return pair
    forward = pair.name if direction == "forward" else forward_of(pair.name) or ""
    mask = masks.of(use.how, forward) if use.how.mask is not None else (None, None)
    try:
        theirs = composed_row([Part(directories[1], part) for part in parts], use.how, row, mask[1])
        ours: Row = row
        if use.how.mask is not None or (use.how.flatten is not None and _dims(theirs) < _dims(row)):
            ours = composed_row([Part(directories[0], row)], without_dims(use.how), theirs, mask[0])
            if use.how.mask is not None:  # how many elements are left of each is seen when the masks are read
                ours = ours._replace(shape=theirs.shape, value=theirs.value)
    except CannotCompose:
        return pair
    if use.how.mask is not None and mask[1] is None:
        return pair
    used = {id(part) for part in parts}
    rows = [RowPair(ours, theirs) if both.target is row else both for both in pair.rows]
    lost = [both.target for both in rows if both.golden is not None and id(both.golden) in used and both.target is not None]
    kept = [both for both in rows if both.golden is None or id(both.golden) not in used]
    return pair._replace(rows=(*kept, *(RowPair(other, None) for other in lost)))


def _dims(row: Row) -> int:
    return len(row.shape.split(",")) if row.shape != "[]" else 0


def _keys(use: Use, direction: str) -> tuple[str, list[str]]:
    """Where the values lie in a call of this direction."""
    keys = [key_in(key, direction, not use.how.sum) for key in (use.target.key, *(place.key for place in use.golden))]
    return keys[0], keys[1:]


class _Masks:
    """Finds the tensors that rules name as masks: a row's full name, or a module's path and a key."""

    def __init__(
        self, modules: tuple[Modules, Modules], calls: tuple[Sequence[Call], Sequence[Call]], directories: tuple[Path, Path]
    ) -> None:
        self._modules, self._calls, self._directories = modules, calls, directories
        self._rows: list[dict[str, Row]] | None = None

    def of(self, how: How, forward: str) -> tuple[Part | None, Part | None]:
        """The masks of target and golden side; where one side has none, it is the other's."""
        assert how.mask is not None
        found = [self._one(side, how.mask, forward) for side in (0, 1)]
        return found[0] or found[1], found[1] or found[0]

    def _one(self, side: int, name: str, forward: str) -> Part | None:
        place = self._modules[side].place(name)
        calls = self._modules[side].forward.get(place.path, ()) if place is not None else ()
        number = forward.rpartition(".")[2]
        of_number = [call for call in calls if call.name.rpartition(".")[2] == number] or list(calls)
        if place is not None and of_number:
            row = next((row for row in of_number[0].rows if row.key == place.key and row.kind == "tensor"), None)
            return Part(self._directories[side], row) if row is not None else None
        if self._rows is None:
            self._rows = [{row.name: row for call in calls for row in call.rows if row.kind == "tensor"} for calls in self._calls]
        row = self._rows[side].get(name)
        return Part(self._directories[side], row) if row is not None else None


def composes(pairs: Sequence[CallPair]) -> bool:
    """Whether any value is made of several."""
    return any(isinstance(row, ComposedRow) for pair in pairs for both in pair.rows for row in both)
