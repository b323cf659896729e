"""Values that lie in parts on several ranks (tensor parallelism), put together before they are compared.

Which values are sharded, and along which dimension, follows from the shapes where one dimension of the parts adds up to that of the whole.
A rule is needed for terms of a sum; those of a linear layer with its input sharded (a row-parallel one) are known without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msprobe.comparison.alignment.places import RowPair
from msprobe.comparison.alignment.side import path_of
from msprobe.comparison.mapping.composed import ComposedRow, Part, composed_row, shape
from msprobe.comparison.mapping.fused import joined_along
from msprobe.comparison.mapping.names import match
from msprobe.comparison.mapping.places import Modules, key_in, key_of
from msprobe.comparison.mapping.rules import How, TensorRules
from msprobe.comparison.mapping.unfit import Unfit
from msprobe.comparison.match import CallPair
from msprobe.comparison.rows import Call, Row


class _Told(NamedTuple):
    """What a rule says: the dimension, or "sum"; and its target in the mapping file."""

    dim: int | str
    rule: str


_Rules = Mapping[tuple[str, str, str], _Told]
_LINEAR = frozenset({"linear", "matmul", "__matmul__", "mm", "addmm", "bmm"})


def joined_ranks(
    pairs: Sequence[CallPair],
    ranks: Sequence[tuple[Path, Mapping[str, Call]]],
    side: int,
    rules: TensorRules,
    directory: Path,
    notes: list[str],
) -> list[CallPair]:
    """The pairs with every sharded value replaced by the whole.

    Args:
        pairs: those of the first rank of the group.
        ranks: of every rank of the group, the first one included: the directory with its tensor files, and its calls by name.
        side: which side is sharded, 0 the target, 1 the golden one.
        rules: what the mapping file says.
        directory: that of the golden tensor files.
        notes: gets a sentence for each rule that cannot be applied.
    """
    told, unfit = _told(rules, pairs), Unfit()
    joined = [_joined(pair, ranks, side, told, directory, unfit) for pair in pairs]
    notes += unfit.notes()
    return joined


def _told(rules: TensorRules, pairs: Sequence[CallPair]) -> _Rules:
    """(path of a module of the target, direction, key there) -> what is said of it."""
    modules = Modules([pair.target for pair in pairs if pair.target is not None])
    found: dict[tuple[str, str, str], _Told] = {}
    for rule in rules.rules:
        if rule.how.shard is None:
            continue
        parts = rule.target.split(".")
        for path in modules.forward:
            own = path.split(".")
            if len(own) < len(parts) and match(parts[: len(own)], own) is not None:
                for direction in ("forward", "backward", "parameters_grad"):
                    key = key_in(key_of(parts[len(own) :]), direction, rule.how.shard != "sum")
                    if key:
                        found[path, direction, key] = _Told(rule.how.shard, rule.target)
    return found


def _joined(
    pair: CallPair, ranks: Sequence[tuple[Path, Mapping[str, Call]]], side: int, told: _Rules, directory: Path, unfit: Unfit
) -> CallPair:
    sharded = (pair.target, pair.golden)[side]
    if pair.target is None or pair.golden is None or sharded is None:
        return pair
    others = [calls.get(sharded.name) for _, calls in ranks]
    by_key = [{row.key: row for row in call.rows} if call is not None else {} for call in others]
    hows: dict[int, How | None] = {}
    for both in pair.rows:
        row = both[side]
        if row is not None:
            hows[id(both)] = _how(pair, both, side, [known.get(row.key) for known in by_key], told)
    terms = _adds_up(pair, hows, side)
    rows: list[RowPair] = []
    for both in pair.rows:
        ours, theirs = both
        if ours is None or theirs is None:
            rows.append(both)
            continue
        how = hows.get(id(both))
        if how is None and terms and ours.role == "output" and ours.shape == theirs.shape and ours.kind == "tensor":
            how = How(sum=True)
        whole = _whole(both, how, side, ranks, by_key) if how is not None else both
        rule = _rule(pair, ours, told)
        if isinstance(whole, str):
            whole = unfit.refused(both, rule.rule, whole, directory) if rule is not None else both
        rows.append(whole)
    return pair._replace(rows=tuple(rows))


def _rule(pair: CallPair, row: Row, told: _Rules) -> _Told | None:
    if pair.target is None or not pair.target.parts.is_module:
        return None
    return told.get((path_of(pair.target.parts.base), pair.target.parts.direction, row.key))


def _how(pair: CallPair, both: RowPair, side: int, parts: Sequence[Row | None], told: _Rules) -> How | None:
    ours, theirs = both
    if ours is None or theirs is None or ours.kind != "tensor":
        return None
    rule = _rule(pair, ours, told)
    if rule is not None:
        return How(sum=True) if rule.dim == "sum" else How(concat=int(rule.dim))
    if any(part is None for part in parts):
        return None
    whole = shape((ours, theirs)[1 - side])
    shapes = [shape(part) for part in parts if part is not None]
    if whole is None or shapes[0] == whole:
        return None
    dim = joined_along(whole, [known for known in shapes if known is not None])
    return How(concat=dim) if dim is not None else None


def _adds_up(pair: CallPair, hows: Mapping[int, How | None], side: int) -> bool:
    """Whether the call multiplies along a dimension that is sharded, so that every rank has a term of the result."""
    assert pair.target is not None
    if pair.target.parts.api not in _LINEAR:
        return False
    inputs = [both for both in pair.rows if both[side] is not None and both[side].role == "input"]  # type: ignore[union-attr]
    how = hows.get(id(inputs[0])) if inputs else None
    known = shape(inputs[0][side]) if how is not None else None  # type: ignore[arg-type]
    return how is not None and known is not None and how.concat == len(known) - 1


def _whole(
    both: RowPair, how: How, side: int, ranks: Sequence[tuple[Path, Mapping[str, Call]]], by_key: Sequence[Mapping[str, Row]]
) -> RowPair | str:
    """The pair with the parts put together, or why they cannot be."""
    from msprobe.comparison.mapping.arrays import CannotCompose

    ours, theirs = both
    assert ours is not None and theirs is not None
    if isinstance(theirs, ComposedRow) and theirs.composition.refused:
        return both
    mine = (ours, theirs)[side]
    if isinstance(mine, ComposedRow):
        return "a rule puts it together otherwise, and that with `shard` works only on the side that is whole"
    lacking = next((path for (path, _), rows in zip(ranks, by_key, strict=True) if mine.key not in rows), None)
    if lacking is not None:
        return f"{lacking.parent.name} has no such value"
    parts = [Part(directory, rows[mine.key]) for (directory, _), rows in zip(ranks, by_key, strict=True)]
    try:
        row = composed_row(parts, how, (ours, theirs)[1 - side])
    except CannotCompose as error:
        return str(error)
    return RowPair(row, theirs) if side == 0 else RowPair(ours, row)
