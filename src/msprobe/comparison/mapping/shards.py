"""Values that lie in parts on several ranks (tensor parallelism), put together before they are compared.

Which values are sharded, and along which dimension, follows from the shapes where one dimension of the parts adds up to that of the whole.
A rule is needed for terms of a sum; those of a linear layer with its input sharded (a row-parallel one) are known without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msprobe.comparison.alignment.places import RowPair
from msprobe.comparison.alignment.side import path_of
from msprobe.comparison.mapping.composed import Part, composed_row, shape
from msprobe.comparison.mapping.fused import joined_along
from msprobe.comparison.mapping.names import match
from msprobe.comparison.mapping.places import Modules, key_in, key_of
from msprobe.comparison.mapping.rules import How, TensorRules
from msprobe.comparison.match import CallPair
from msprobe.comparison.rows import Call, Row

_Told = dict[tuple[str, str, str], int | str]
_LINEAR = frozenset({"linear", "matmul", "__matmul__", "mm", "addmm", "bmm"})


def joined_ranks(
    pairs: Sequence[CallPair], ranks: Sequence[tuple[Path, Mapping[str, Call]]], side: int, rules: TensorRules
) -> list[CallPair]:
    """The pairs with every sharded value replaced by the whole.

    Args:
        pairs: those of the first rank of the group.
        ranks: of every rank of the group, the first one included: the directory with its tensor files, and its calls by name.
        side: which side is sharded, 0 the target, 1 the golden one.
        rules: what the mapping file says.
    """
    told = _told(rules, pairs)
    return [_joined(pair, ranks, side, told) for pair in pairs]


def _told(rules: TensorRules, pairs: Sequence[CallPair]) -> _Told:
    """(path of a module of the target, direction, key there) -> dimension, or "sum"."""
    modules = Modules([pair.target for pair in pairs if pair.target is not None])
    found: _Told = {}
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
                        found[path, direction, key] = rule.how.shard
    return found


def _joined(pair: CallPair, ranks: Sequence[tuple[Path, Mapping[str, Call]]], side: int, told: _Told) -> CallPair:
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
        rows.append(_whole(both, how, side, ranks, by_key) if how is not None else both)
    return pair._replace(rows=tuple(rows))


def _how(pair: CallPair, both: RowPair, side: int, parts: Sequence[Row | None], told: _Told) -> How | None:
    ours, theirs = both
    if ours is None or theirs is None or ours.kind != "tensor" or any(part is None for part in parts):
        return None
    assert pair.target is not None
    if pair.target.parts.is_module:
        dim = told.get((path_of(pair.target.parts.base), pair.target.parts.direction, ours.key))
        if dim is not None:
            return How(sum=True) if dim == "sum" else How(concat=int(dim))
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
) -> RowPair:
    from msprobe.comparison.mapping.arrays import CannotCompose

    ours, theirs = both
    assert ours is not None and theirs is not None
    mine = (ours, theirs)[side]
    if any(mine.key not in rows for rows in by_key):
        return both
    parts = [Part(directory, rows[mine.key]) for (directory, _), rows in zip(ranks, by_key, strict=True)]
    try:
        row = composed_row(parts, how, (ours, theirs)[1 - side])
    except CannotCompose:
        return both
    return RowPair(row, theirs) if side == 0 else RowPair(ours, row)
