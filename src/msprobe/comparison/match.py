"""Third stage: which call of the target belongs to which call of the golden dump, and which value to which value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msprobe.comparison.alignment.partners import Partners, partners
from msprobe.comparison.alignment.places import RowPair, by_keys, pair_rows
from msprobe.comparison.alignment.side import Parents, Rename, Side, Stacks
from msprobe.comparison.rows import Call, Row


class CallPair(NamedTuple):
    """A call and its partner, with their values. One of the calls is None when it is on one side only."""

    target: Call | None
    golden: Call | None
    rows: tuple[RowPair, ...]

    @property
    def name(self) -> str:
        """The call's name in the target, or, where it is missing there, in the golden dump."""
        call = self.target or self.golden
        return call.name if call is not None else ""


def _no_stacks() -> Mapping[str, Sequence[str]]:
    return {}


@dataclass(frozen=True)
class Around:
    """What is known of a side's calls besides their values.

    Attributes:
        parents: construct.json; {} where there is none.
        stacks: reads stack.json; called only where the two sides do not have the same calls.
    """

    parents: Parents = field(default_factory=dict)
    stacks: Stacks = _no_stacks


NOWHERE = Around()


class Matching(NamedTuple):
    """Attributes:
    pairs: one per call, in the order of the target; calls that only the golden dump has stand behind the call they follow there.
    partners: how the calls were paired.
    """

    pairs: list[CallPair]
    partners: Partners


def match(target: Sequence[Call], golden: Sequence[Call], mapping: Mapping[str, str] | None = None) -> list[CallPair]:
    """`align` of two dumps of which the calls alone are known."""
    return align(target, golden, mapping=mapping).pairs


def align(
    target: Sequence[Call],
    golden: Sequence[Call],
    around: tuple[Around, Around] = (NOWHERE, NOWHERE),
    *,
    rename: Rename | None = None,
    mapping: Mapping[str, str] | None = None,
    by_api_alone: bool = False,
) -> Matching:
    """Pairs two dumps, call by call and value by value.

    Args:
        target, golden: the calls of both sides in the order of their dump.json.
        around: what else is known of each side.
        rename: what a call's base is called on the golden side, None where names are not mapped.
        mapping: row names of the target to row names of the golden dump (`-dm`); these rows are paired as told, all others by their calls.
        by_api_alone: see `partners`.
    """
    sides = Side(target, around[0].parents, around[0].stacks, rename), Side(golden, around[1].parents, around[1].stacks)
    found = partners(*sides, by_api_alone=by_api_alone)
    pairs: list[CallPair] = []
    redirect = _Redirect(target, golden, mapping or {})
    if found.one_by_one and not redirect.golden:
        return Matching([CallPair(*both, pair_rows(*both)) for both in zip(target, golden, strict=True)], found)
    by_name = sides[1].calls
    taken: set[str] = set()
    for call in target:
        partner = by_name.get(found.calls.get(call.name, ""))
        if partner is not None:
            taken.add(partner.name)
        rows = _pair_rows(call, partner, redirect)
        pairs.append(CallPair(call, partner if partner is not None else redirect.call_of(rows), rows))
    if len(taken) < len(golden):
        pairs = _with_golden_only(pairs, golden, taken, redirect)
    if any(found.again) and not all(found.again):
        pairs = [_with_gradients(pair, sides, _repetitions(found)) for pair in pairs]
    return Matching(pairs, found)


def _repetitions(found: Partners) -> tuple[dict[str, str], dict[str, str]]:
    """First call -> the call that repeats it, of both sides."""
    ours, theirs = ({first: name for name, first in again.items() if first} for again in found.again)
    return ours, theirs


def _with_gradients(pair: CallPair, sides: tuple[Side, Side], repeated: tuple[dict[str, str], dict[str, str]]) -> CallPair:
    """With requires_grad of the second run: a reentrant checkpoint runs the first one without gradients."""
    flags: list[dict[str, str]] = []
    for call, side, names in zip((pair.target, pair.golden), sides, repeated, strict=True):
        again = side.calls.get(names.get(call.name, "")) if call is not None else None
        flags.append({row.key: row.requires_grad for row in again.rows} if again is not None else {})
    if not any(flags):
        return pair
    rows: list[RowPair] = []
    for both in pair.rows:
        ours, theirs = (
            row._replace(requires_grad=known.get(row.key, row.requires_grad)) if row is not None and known else row
            for row, known in zip(both, flags, strict=True)
        )
        rows.append(RowPair(ours, theirs))
    return pair._replace(rows=tuple(rows))


def unknown_names(target: Sequence[Call], golden: Sequence[Call], mapping: Mapping[str, str]) -> list[str]:
    """Names in a mapping that no row has on the side they stand for."""
    ours = {row.name for call in target for row in call.rows}
    theirs = {row.name for call in golden for row in call.rows}
    return [name for name in mapping if name not in ours] + [name for name in mapping.values() if name not in theirs]


def renamed_modules(pairs: Iterable[CallPair], rename: Rename | None = None) -> list[str]:
    """One text for each module that is called otherwise on the two sides: its class, or its place.

    `rename`: names that the user has mapped are not told again.
    """
    found: dict[str, str] = {}
    for target, golden, _ in pairs:
        if target is None or golden is None or not target.parts.is_module or target.parts.base == golden.parts.base:
            continue
        if rename is not None and rename(target.parts) == golden.parts.base:
            continue
        ours, theirs = target.parts.base.rpartition("."), golden.parts.base.rpartition(".")
        if ours[0] == theirs[0]:
            found[ours[0]] = f"{ours[0]} is of class {ours[2]} in the target and of class {theirs[2]} in the golden run"
        elif ours[2] == theirs[2]:
            found[ours[0]] = f"{ours[0]} of the target is {theirs[0]} in the golden run"
        else:
            found[ours[0]] = f"{target.parts.base} of the target is {golden.parts.base} in the golden run"
    return list(found.values())


class _Redirect:
    """The rows that a mapping file pairs by hand."""

    def __init__(self, target: Sequence[Call], golden: Sequence[Call], mapping: Mapping[str, str]) -> None:
        names = {row.name for call in target for row in call.rows} if mapping else set()
        self.mapping = {ours: theirs for ours, theirs in mapping.items() if ours in names}
        wanted = set(self.mapping.values())
        self.golden: dict[str, Row] = {}
        self.calls: dict[str, Call] = {}
        self.used: set[str] = set()
        for call in golden if wanted else ():
            for row in call.rows:
                if row.name in wanted:
                    self.golden[row.name] = row
                    self.calls[row.name] = call

    def rows(self, call: Call) -> dict[str, Row]:
        """Key in `call` -> the golden row it is paired with by hand."""
        if not self.golden:
            return {}
        found: dict[str, Row] = {}
        for row in call.rows:
            partner = self.golden.get(self.mapping.get(row.name, ""))
            if partner is not None:
                found[row.key] = partner
                self.used.add(partner.name)
        return found

    def call_of(self, rows: Sequence[RowPair]) -> Call | None:
        """The golden call that a call without a partner of its name is compared with: that of the first row paired by hand."""
        return next((self.calls[row.golden.name] for row in rows if row.golden is not None), None)


def _pair_rows(call: Call, partner: Call | None, redirect: _Redirect) -> tuple[RowPair, ...]:
    by_hand = redirect.rows(call)
    if by_hand:
        fixed = set(redirect.golden)
        rest = [row for row in partner.rows if row.name not in fixed] if partner is not None else []
        others = tuple(row for row in call.rows if row.key not in by_hand)
        by_name = by_keys(others, tuple(rest), {}, {})
        paired = {id(pair.target): pair for pair in by_name if pair.target is not None}
        rows = [RowPair(row, by_hand[row.key]) if row.key in by_hand else paired[id(row)] for row in call.rows]
        return (*rows, *(pair for pair in by_name if pair.target is None))
    if partner is None:
        return tuple([RowPair(row, None) for row in call.rows])
    return pair_rows(call, partner, frozenset(redirect.golden))


def _with_golden_only(pairs: list[CallPair], golden: Sequence[Call], taken: set[str], redirect: _Redirect) -> list[CallPair]:
    position = {pair.golden.name: index for index, pair in enumerate(pairs) if pair.golden is not None}
    behind: defaultdict[int, list[CallPair]] = defaultdict(list)
    anchor = -1
    for call in golden:
        anchor = position.get(call.name, anchor)
        if call.name in taken:
            continue
        rows = tuple(RowPair(None, row) for row in call.rows if row.name not in redirect.used)
        if rows or not call.rows:
            behind[anchor].append(CallPair(None, call, rows))
    result = list(behind.get(-1, ()))
    for index, pair in enumerate(pairs):
        result.append(pair)
        result.extend(behind.get(index, ()))
    return result


__all__ = ["NOWHERE", "Around", "CallPair", "Matching", "RowPair", "align", "match", "renamed_modules", "unknown_names"]
