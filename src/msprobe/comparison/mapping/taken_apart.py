"""Calls that take a joined value apart again: `torch.split(qkv, ...)` behind a fused projection. The golden run has no such call, but has
the parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msprobe.comparison.alignment.places import RowPair
from msprobe.comparison.alignment.side import Side
from msprobe.comparison.mapping.composed import Part, absent_row, composed_row
from msprobe.comparison.mapping.fused import Fused
from msprobe.comparison.mapping.rules import How
from msprobe.comparison.match import CallPair
from msprobe.comparison.rows import Call, Row

_APIS = frozenset({"split", "chunk", "tensor_split", "split_with_sizes", "unsafe_split", "unsafe_chunk"})
ONLY_HERE = "it says how the joined value is taken apart, for which the golden run has no call"


def taken_apart(fused: Sequence[Fused], sides: tuple[Side, Side], directory: Path) -> dict[str, CallPair]:
    """Name of such a call, and of its backward call, with the parts that its values are compared with.

    Args:
        fused: see `fused_calls`.
        sides: both dumps.
        directory: that of the golden tensor files.
    """
    splits = [name for name in sides[0].forwards if sides[0].parts(name).api in _APIS]
    if not splits:
        return {}
    by_value: dict[tuple[object, ...], tuple[Row, Fused, How]] = {}
    for one in fused:
        for row in one.target.rows:
            how = one.told[row.key][0].how if row.key in one.told and row.role == "output" else None
            if how is not None and how.concat is not None and row.kind == "tensor" and one.target.parts.is_module:
                by_value[_value(row)] = row, one, how
    backward = {one.target.name: one for one in fused if one.target.parts.direction == "backward"}
    found: dict[str, CallPair] = {}
    for name in splits:
        call = sides[0].calls[name]
        given = next((row for row in call.rows if row.key == "input.0"), None)
        known = by_value.get(_value(given)) if given is not None else None
        if given is None or known is None:
            continue
        row, one, how = known
        parts = _rows(one, row.key)
        pair = _pair(call, _beside(one, fused, sides[1]), given, parts, how, "output", directory)
        if pair is None:
            continue
        found[name] = pair
        behind = sides[0].calls.get(name.removesuffix(".forward") + ".backward")
        module = backward.get(".backward.".join(one.target.name.rsplit(".forward.", 1)))
        whole = next((other for other in behind.rows if other.key == "output.0"), None) if behind is not None else None
        if behind is None or module is None or whole is None:
            continue
        parts = _rows(module, f"input{row.key[6:]}")
        pair = _pair(behind, _beside(module, fused, sides[1]), whole, parts, how, "input", directory)
        if pair is not None:
            found[behind.name] = pair
    return found


def _rows(one: Fused, key: str) -> list[Row]:
    """The values of that key, of each golden call."""
    return [row for call in one.golden for row in call.rows if row.key == key and row.kind == "tensor"]


def _beside(one: Fused, fused: Sequence[Fused], golden: Side) -> Call | None:
    """The call inside the first golden module that computes the part; what is inside a module is no module around others."""
    first = one.golden[0].name
    return next((other.golden[0] for other in fused if golden.parents.get(other.golden[0].name) == first), None)


def _pair(call: Call, beside: Call | None, whole: Row, parts: Sequence[Row], how: How, role: str, directory: Path) -> CallPair | None:
    """None where the pieces are not the parts. `role`: of the pieces, in the call."""
    from msprobe.comparison.mapping.arrays import CannotCompose

    pieces = [row for row in call.rows if row.role == role and row.kind == "tensor"]
    if beside is None or [row.shape for row in pieces] != [row.shape for row in parts]:
        return None
    try:
        joined = composed_row([Part(directory, part) for part in parts], how, whole)
    except CannotCompose:
        return None
    if joined.shape != whole.shape:
        return None
    partners = {id(whole): joined, **{id(piece): part for piece, part in zip(pieces, parts, strict=True)}}
    rows = tuple(RowPair(row, partners[id(row)] if id(row) in partners else absent_row(row, ONLY_HERE)) for row in call.rows)
    return CallPair(call, beside, rows)


def _value(row: Row) -> tuple[object, ...]:
    return row.dtype, row.shape, row.statistics, row.md5
