"""One module of the target that does what several golden modules do: qkv_proj and q_proj, k_proj, v_proj.

Rules say how some of its values are put together. The others follow from their shapes: what has the shape of each part is the same value,
or, as the gradient of a common input, their sum; what is as long as all parts together along one dimension is the parts joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msprobe.comparison.alignment.places import RowPair
from msprobe.comparison.alignment.sequence import align
from msprobe.comparison.alignment.side import Side
from msprobe.comparison.mapping.composed import Part, composed_pair, shape
from msprobe.comparison.mapping.masks import Masks
from msprobe.comparison.mapping.places import Modules, Use, lacks
from msprobe.comparison.mapping.rules import AS_IT_IS, How
from msprobe.comparison.mapping.unfit import Unfit
from msprobe.comparison.names import forward_of
from msprobe.comparison.rows import Call, Row

Tree = Mapping[str | None, Sequence[str]]
_SUM, _SAME = How(sum=True), AS_IT_IS


class Fused(NamedTuple):
    """A call of the target, the golden calls that it stands for, and what the rules say of its values: key -> rule, golden (call, key)."""

    target: Call
    golden: tuple[Call, ...]
    told: Mapping[str, tuple[Use, tuple[tuple[int, str], ...]]] = {}


def fused_calls(found: Sequence[Use], modules: tuple[Modules, Modules], sides: tuple[Side, Side], trees: tuple[Tree, Tree]) -> list[Fused]:
    """Every call that belongs to such a module: its own, what it calls, backward calls, gradients of parameters."""
    groups: dict[str, list[Use]] = {}
    for use in found:
        if len({place.path for place in use.golden}) > 1:
            groups.setdefault(use.target.path, []).append(use)
    calls: list[Fused] = []
    for path, group in groups.items():
        golden_paths = list(dict.fromkeys(place.path for use in group for place in use.golden))
        told = {use.target.key: (use, tuple((golden_paths.index(place.path), place.key) for place in use.golden)) for use in group}
        theirs = [modules[1].forward[other] for other in golden_paths]
        for number, call in enumerate(modules[0].forward[path]):
            if all(number < len(other) for other in theirs):
                top = Fused(call, tuple(other[number] for other in theirs), told)
                calls += [top, *_inside(top, sides, trees)]
    return calls + _of_backward(calls, sides)


def _inside(outer: Fused, sides: tuple[Side, Side], trees: tuple[Tree, Tree]) -> list[Fused]:
    """The calls inside, where all golden modules make a call of that kind."""
    mine = list(trees[0].get(outer.target.name, ()))
    kinds = [sides[0].meaning(sides[0].parts(name)) for name in mine]
    partners: list[dict[int, str]] = []
    for partner in outer.golden:
        names = list(trees[1].get(partner.name, ()))
        pairs = align(kinds, [sides[1].meaning(sides[1].parts(name)) for name in names])
        partners.append({i: names[j] for i, j in pairs})
    found: list[Fused] = []
    for index, name in enumerate(mine):
        call, others = sides[0].calls.get(name), [sides[1].calls.get(other.get(index, "")) for other in partners]
        golden = tuple(other for other in others if other is not None)
        if call is not None and not call.parts.is_module and len(golden) == len(outer.golden):
            found.append(Fused(call, golden))
    return found


def _of_backward(calls: Sequence[Fused], sides: tuple[Side, Side]) -> list[Fused]:
    known = {fused.target.name: fused for fused in calls}
    golden = {(forward_of(name), sides[1].parts(name).suffix): name for name in sides[1].backwards}
    found: list[Fused] = []
    for name in sides[0].backwards:
        fused = known.get(forward_of(name) or "")
        if fused is not None:
            suffix = sides[0].parts(name).suffix
            names = [golden.get((call.name, suffix)) for call in fused.golden]
            others = tuple(sides[1].calls[other] for other in names if other is not None)
            if len(others) == len(names):
                found.append(Fused(sides[0].calls[name], others))
    bases = {fused.target.parts.base: fused for fused in calls if fused.target.parts.is_module}
    for name in sides[0].gradients:
        fused = bases.get(sides[0].parts(name).base)
        if fused is not None:
            number = name.rpartition(".parameters_grad.")[2]
            of_parts = [sides[1].calls.get(f"{call.parts.recorded}.parameters_grad.{number}") for call in fused.golden]
            others = tuple(call for call in of_parts if call is not None)
            if len(others) == len(of_parts):
                found.append(Fused(sides[0].calls[name], others))
    return found


def rows_of(fused: Fused, directories: tuple[Path, Path], masks: Masks, unfit: Unfit) -> tuple[RowPair, ...]:
    """The values of such a call with what they are made of.

    Args:
        directories: where the tensor files of both sides lie.
        masks: finds the masks of rules.
        unfit: gets the rules that cannot be applied.
    """
    used: set[int] = set()
    pairs: list[RowPair] = []
    by_key = [{row.key: row for row in call.rows} for call in fused.golden]
    for row in fused.target.rows:
        use, places = fused.told.get(row.key, (None, tuple((index, row.key) for index in range(len(fused.golden)))))
        parts = [found for index, key in places if (found := by_key[index].get(key)) is not None]
        both, why = RowPair(row, None), ""
        if len(parts) == len(places):
            both, why = _partner(row, parts, use, fused, directories, masks)
        elif use is not None:
            index = next(index for index, (call, key) in enumerate(places) if key not in by_key[call])
            why = lacks(use.golden[index], by_key[places[index][0]], "the golden run")
        if why and use is not None:
            unfit.add(use.rule, row.name, why)
        if both.golden is not None:
            used.update(map(id, parts))
        pairs.append(both)
    left = [row for call in fused.golden for row in call.rows if id(row) not in used]
    return (*pairs, *(RowPair(None, row) for row in left))


def _partner(
    row: Row, parts: Sequence[Row], use: Use | None, fused: Fused, directories: tuple[Path, Path], masks: Masks
) -> tuple[RowPair, str]:
    """What a value is compared with, by a rule or by its shape; or why it cannot be."""
    from msprobe.comparison.mapping.arrays import CannotCompose

    how = use.how if use is not None else inferred(row, parts)
    if how is None:
        return RowPair(row, None), ""
    if how == _SAME:
        return RowPair(row, most_unlike(row, parts)), ""
    mask = masks.of(how.mask, fused.target.name) if how.mask is not None else None
    if how.mask is not None and mask is None:
        return RowPair(row, None), masks.missing(how.mask)
    try:
        return RowPair(*composed_pair(row, [Part(directories[1], part) for part in parts], how, mask, directories[0])), ""
    except CannotCompose as error:
        return RowPair(row, None), str(error)


def most_unlike(row: Row, parts: Sequence[Row]) -> Row:
    """Of values that should all be the one of the target, the first that is not."""
    return next((part for part in parts if (part.statistics, part.value, part.md5) != (row.statistics, row.value, row.md5)), parts[0])


def inferred(row: Row, parts: Sequence[Row]) -> How | None:
    """How a value follows from the values of the parts, by the shapes; None where they do not tell."""
    whole, shapes = shape(row), [shape(part) for part in parts]
    if whole is None:
        return _SAME if row.role != "output" and all(part.kind == row.kind for part in parts) else None
    known = [found for found in shapes if found is not None]
    if len(known) < len(shapes):
        return None
    if all(found == whole for found in known):
        if row.role == "input" or row.role == "parameters":
            return _SAME
        return _SUM if ".backward." in row.name else None
    dim = joined_along(whole, known)
    return How(concat=dim) if dim is not None else None


def joined_along(whole: tuple[int, ...], parts: Sequence[tuple[int, ...]]) -> int | None:
    """The one dimension along which the parts make the whole; None where there is none."""
    if any(len(part) != len(whole) for part in parts):
        return None
    fits = [
        dim
        for dim in range(len(whole))
        if sum(part[dim] for part in parts) == whole[dim]
        and all(size == whole[other] for part in parts for other, size in enumerate(part) if other != dim)
    ]
    return fits[0] if len(fits) == 1 else None
