"""Third stage: which call of the target belongs to which call of the golden dump, and which value to which value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from msprobe.comparison.aliases import canonical
from msprobe.comparison.names import forward_of
from msprobe.comparison.rows import Call, Row
from msprobe.format.names import ModuleName
from msprobe.format.names import parse as parse_name


class RowPair(NamedTuple):
    """A value and its partner; exactly one side is None where there is no partner."""

    target: Row | None
    golden: Row | None


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


def match(target: Sequence[Call], golden: Sequence[Call], mapping: Mapping[str, str] | None = None) -> list[CallPair]:
    """Pairs two dumps, by name; what is left over of modules, by their place in the model, whatever their class is called.

    Args:
        target, golden: the calls of both sides in the order of their dump.json.
        mapping: row names of the target to row names of the golden dump (`-dm`); these rows are paired as told, all others by name.

    Returns:
        One pair per call, in the order of the target; calls that only the golden dump has stand behind the call they follow there.
    """
    partners = _partners(target, golden)
    by_name = {call.name: call for call in golden}
    taken: set[str] = set()
    pairs: list[CallPair] = []
    redirect = _Redirect(target, golden, mapping or {})
    for call in target:
        partner = by_name.get(partners.get(call.name, ""))
        if partner is not None:
            taken.add(partner.name)
        rows = _pair_rows(call, partner, redirect)
        pairs.append(CallPair(call, partner if partner is not None else redirect.call_of(rows), rows))
    if len(taken) == len(golden):
        return pairs
    return _with_golden_only(pairs, golden, taken, redirect)


def unknown_names(target: Sequence[Call], golden: Sequence[Call], mapping: Mapping[str, str]) -> list[str]:
    """Names in a mapping that no row has on the side they stand for."""
    ours = {row.name for call in target for row in call.rows}
    theirs = {row.name for call in golden for row in call.rows}
    return [name for name in mapping if name not in ours] + [name for name in mapping.values() if name not in theirs]


def _partners(target: Sequence[Call], golden: Sequence[Call]) -> dict[str, str]:
    """Name in the target -> name in the golden dump, for every call that has a partner."""
    golden_names = {call.name for call in golden}
    found = {call.name: call.name for call in target if call.name in golden_names}
    for group_target, group_golden in _respelled(target, golden):
        for call in group_target:
            found.pop(call.name, None)
        found.update(_in_order(group_target, group_golden))
    found.update(_of_another_class(target, golden, found))
    return found


def _of_another_class(target: Sequence[Call], golden: Sequence[Call], found: Mapping[str, str]) -> dict[str, str]:
    """Calls of modules at the same place of which only the class is called otherwise, among those that have no partner yet."""
    taken = set(found.values())
    theirs = _places(call for call in golden if call.parts.is_module and call.name not in taken)
    ours = _places(call for call in target if call.parts.is_module and call.name not in found) if theirs else {}
    return {name: theirs[place] for place, name in ours.items() if name and theirs.get(place)}


def _places(calls: Iterable[Call]) -> dict[str, str]:
    """Name without the class -> name; "" where several calls share one place."""
    places: dict[str, str] = {}
    for call in calls:
        parts = parse_name(call.name)
        if isinstance(parts, ModuleName):
            place = str(replace(parts, class_name=""))
            places[place] = "" if place in places else call.name
    return places


def renamed_classes(pairs: Iterable[CallPair]) -> list[str]:
    """One text for each module whose class is called otherwise on the two sides."""
    found: dict[str, str] = {}
    for target, golden, _ in pairs:
        if target is None or golden is None or not target.parts.is_module or target.parts.base == golden.parts.base:
            continue
        ours, theirs = target.parts.base.rpartition("."), golden.parts.base.rpartition(".")
        if ours[0] == theirs[0]:
            found[ours[0]] = f"{ours[0]} is of class {ours[2]} in the target and of class {theirs[2]} in the golden run"
    return list(found.values())


def _respelled(target: Sequence[Call], golden: Sequence[Call]) -> Iterable[tuple[list[Call], list[Call]]]:
    """Groups of calls that go by several names (aliases.py) and are not named alike on both sides."""
    groups: dict[str, tuple[list[Call], list[Call]]] = {}
    for side, calls in ((0, target), (1, golden)):
        leaders: dict[str, str] = {}
        for call in calls:
            base = call.parts.base
            if base not in leaders:
                leaders[base] = "" if call.parts.is_module else canonical(base)
            leader = leaders[base]
            if leader:
                groups.setdefault(leader, ([], []))[side].append(call)
    for ours, theirs in groups.values():
        if ours and theirs and {call.parts.base for call in ours} != {call.parts.base for call in theirs}:
            yield ours, theirs


def _in_order(target: Sequence[Call], golden: Sequence[Call]) -> dict[str, str]:
    """Pairs the n-th forward call with the n-th, whatever the count in its name says, and backward calls by their forward."""
    numbers = (_numbered(target), _numbered(golden))
    by_number = {number: name for name, number in numbers[1].items()}
    return {name: by_number[number] for name, number in numbers[0].items() if number in by_number}


def _numbered(calls: Sequence[Call]) -> dict[str, tuple[int, str]]:
    order: dict[str, int] = {}
    for call in calls:
        if call.parts.direction != "backward":
            order.setdefault(call.name, len(order))
    numbers: dict[str, tuple[int, str]] = {name: (number, "") for name, number in order.items()}
    for call in calls:
        if call.parts.direction == "backward":
            number = order.setdefault(forward_of(call.name) or call.name, len(order))
            numbers[call.name] = (number, "backward" + call.parts.suffix)
    return numbers


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
        by_name = _zip_rows(others, tuple(rest))
        paired = {id(pair.target): pair for pair in by_name if pair.target is not None}
        rows = [RowPair(row, by_hand[row.key]) if row.key in by_hand else paired[id(row)] for row in call.rows]
        return (*rows, *(pair for pair in by_name if pair.target is None))
    if partner is None:
        return tuple([RowPair(row, None) for row in call.rows])
    golden_rows = partner.rows
    if redirect.golden:
        golden_rows = tuple(row for row in golden_rows if row.name not in redirect.golden)
    return _zip_rows(call.rows, golden_rows)


def _zip_rows(target: tuple[Row, ...], golden: tuple[Row, ...]) -> tuple[RowPair, ...]:
    if len(target) == len(golden):
        for row, other in zip(target, golden):  # noqa: B905 - equal lengths
            if row.key != other.key:
                break
        else:
            return tuple(map(RowPair, target, golden))
    waiting: defaultdict[str, list[Row]] = defaultdict(list)
    for other in golden:
        waiting[other.key].append(other)
    pairs = [RowPair(row, waiting[row.key].pop(0) if waiting.get(row.key) else None) for row in target]
    pairs += [RowPair(None, other) for other in golden if any(other is left for left in waiting.get(other.key, ()))]
    return tuple(pairs)


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
