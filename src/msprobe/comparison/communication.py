"""What a dump tells of the communication between ranks: who gave values to whom, in which call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from msprobe.comparison.calls import Measured, MeasuredCall
from msprobe.comparison.compared import Compared
from msprobe.comparison.measure import Agreement
from msprobe.comparison.rows import Row

PREFIX = "Distributed."
Role = Literal["gives", "gets", "both"]
Channel = tuple[object, ...]


class _Operation(NamedTuple):
    """Where the signature of a collective (documentation of torch.distributed) has what a rank gives, and the one rank at its centre."""

    given: tuple[str, str]
    root: tuple[str, str] | None = None
    from_root: bool = False


_COLLECTIVES: dict[str, _Operation] = {
    "all_reduce": _Operation(("0", "tensor")),
    "broadcast": _Operation(("0", "tensor"), ("1", "src"), True),
    "reduce": _Operation(("0", "tensor"), ("1", "dst")),
    "all_gather": _Operation(("1", "tensor")),
    "all_gather_into_tensor": _Operation(("1", "input_tensor")),
    "_all_gather_base": _Operation(("1", "input_tensor")),
    "gather": _Operation(("0", "tensor"), ("2", "dst")),
    "scatter": _Operation(("1", "scatter_list"), ("2", "src"), True),
    "reduce_scatter": _Operation(("1", "input_list")),
    "reduce_scatter_tensor": _Operation(("1", "input")),
    "_reduce_scatter_base": _Operation(("1", "input")),
    "all_to_all": _Operation(("1", "input_tensor_list")),
    "all_to_all_single": _Operation(("1", "input")),
}
_SENDS = {"send": "send", "isend": "send", "recv": "receive", "irecv": "receive"}


class Link(NamedTuple):
    """One rank's part in one communication.

    Attributes:
        call: name of the entry.
        at: its place in execution order.
        channel: what the parts of all ranks in one kind of communication share; the n-th on one rank meets the n-th on the others.
        members: the ranks that take part, None for all there are.
        role: whether the rank gives values, gets them, or both.
        sources: the ranks whose values it gets, None for all members.
        given: agreement of what it gives.
        got: agreement of what it gets; UNKNOWN where that was not recorded.
        target, golden: which side has this call.
    """

    call: str
    at: int
    channel: Channel
    members: tuple[int, ...] | None
    role: Role
    sources: tuple[int, ...] | None
    given: Agreement
    got: Agreement
    target: bool = True
    golden: bool = True


@dataclass(frozen=True)
class Trail:
    """What the search over the ranks needs to know of one rank.

    Attributes:
        rank: its number, None for a process without one.
        bound: agreement from which on values count as different.
        position: place in execution order of the first difference (or of the first call without partner, where that is earlier).
        links: its communication, in execution order.
    """

    rank: int | None = None
    bound: Agreement = Agreement.DIFFERENT
    position: int | None = None
    links: tuple[Link, ...] = ()


def trail_of(compared: Compared, order: Sequence[MeasuredCall]) -> Trail:
    """The trail of one pair of dumps.

    Args:
        order: its measured calls in execution order.
    """
    findings = compared.findings
    bound = Agreement.ROUNDING if findings.exact else Agreement.DIFFERENT
    label = compared.pair.label
    rank = int(label[4:]) if label.startswith("rank") and label[4:].isdecimal() else None
    starts = {findings.first.shows_at} if findings.first is not None else set[str]()
    if findings.unmatched is not None:
        starts.add(findings.unmatched.name)
    position = next((index for index, call in enumerate(order) if call.name in starts), None) if starts else None
    return Trail(rank, bound, position, links_of(order, rank) if rank is not None else ())


def links_of(order: Sequence[MeasuredCall], rank: int) -> tuple[Link, ...]:
    """The communication of one rank.

    Args:
        order: its measured calls in execution order.
        rank: its number.
    """
    found: list[Link] = []
    for index, call in enumerate(order):
        if call.name.startswith(PREFIX) and call.parts.direction == "forward":
            found.extend(_links(call, index, rank))
    return tuple(found)


def _links(call: MeasuredCall, index: int, rank: int) -> Iterator[Link]:
    rows = [(row, known) for row in call.rows if (known := row.pair.target or row.pair.golden) is not None]
    values = {known.key: known for _, known in rows}
    sides = call.pair.target is not None, call.pair.golden is not None
    api = call.parts.api
    if api == "batch_isend_irecv":
        yield from _batch(call, index, rank, rows, values, sides)
        return
    group = _group(known for _, known in rows)
    if api in _SENDS:
        sends = _SENDS[api] == "send"
        peer = _rank_at(values, ("1", "dst" if sends else "src"), group)
        tag = _number(values, ("3", "tag")) or 0
        agreement = _worst(row for row, known in rows if known.kind == "tensor" and known.role == ("input" if sends else "output"))
        yield _point_to_point(call.name, index, sends, rank, peer, tag, agreement, sides)
        return
    operation = _COLLECTIVES.get(api, _Operation(("", "")))
    root = _rank_at(values, operation.root, group, default=0) if operation.root is not None else None
    keys = tuple(f"input.{place}" for place in operation.given if place)
    given = _worst(row for row, known in rows if known.role == "input" and known.kind == "tensor" and (not keys or _is_at(known.key, keys)))
    got = _worst(row for row, known in rows if known.role == "output" and known.kind == "tensor")
    role: Role = "both"
    if root is not None:
        role = "gives" if (root == rank) == operation.from_root else "gets"
        if root == rank and not operation.from_root:
            role = "both"  # the centre of a reduce gives its own share too
    sources = (root,) if root is not None and operation.from_root else None
    yield Link(call.name, index, ("group", group, api), group, role, sources, given, got, *sides)


def _batch(
    call: MeasuredCall, index: int, rank: int, rows: list[tuple[Measured, Row]], values: Mapping[str, Row], sides: tuple[bool, bool]
) -> Iterator[Link]:
    prefixes = [key.rpartition(".")[0] for key in values if key.startswith("input.") and key.endswith(".op")]
    for prefix in prefixes:
        sends = str(values[f"{prefix}.op"].value).rpartition(".")[2] in ("isend", "send")
        peer = _as_int(values[f"{prefix}.peer"].value) if f"{prefix}.peer" in values else None
        tag = _as_int(values[f"{prefix}.tag"].value) if f"{prefix}.tag" in values else 0
        tensor = f"{prefix}.tensor" if sends else f"output{prefix.removeprefix('input')}.tensor"
        agreement = _worst(row for row, known in rows if known.key == tensor)
        yield _point_to_point(call.name, index, sends, rank, peer, tag or 0, agreement, sides)


def _point_to_point(
    name: str, index: int, sends: bool, rank: int, peer: int | None, tag: int, agreement: Agreement, sides: tuple[bool, bool]
) -> Link:
    ends = (rank, peer) if sends else (peer, rank)
    members = tuple(end for end in ends if end is not None)
    if sends:
        return Link(name, index, ("pair", *ends, tag), members, "gives", (), agreement, Agreement.UNKNOWN, *sides)
    known = None if peer is None else members
    sources = None if peer is None else (peer,)
    return Link(name, index, ("pair", *ends, tag), known, "gets", sources, Agreement.UNKNOWN, agreement, *sides)


def _worst(rows: Iterator[Measured]) -> Agreement:
    return max((row.measure.agreement for row in rows if row.measure is not None), default=Agreement.UNKNOWN)


def _is_at(key: str, places: tuple[str, ...]) -> bool:
    return any(key == place or key.startswith(place + ".") for place in places)


def _group(rows: Iterator[Row]) -> tuple[int, ...] | None:
    for row in rows:
        if row.dtype == "torch.ProcessGroup" and isinstance(row.value, list) and all(type(one) is int for one in row.value):
            return tuple(row.value)
    return None


def _rank_at(values: Mapping[str, Row], places: tuple[str, str], group: tuple[int, ...] | None, default: int | None = None) -> int | None:
    """The rank given at a place, by position or keyword; `group_src` and `group_dst` count inside the group."""
    found = _number(values, places)
    if found is not None:
        return found
    inside = _number(values, (f"group_{places[1]}",))
    if inside is None:
        return default
    if group is None:
        return inside
    return group[inside] if 0 <= inside < len(group) else default


def _number(values: Mapping[str, Row], places: tuple[str, ...]) -> int | None:
    for place in places:
        row = values.get(f"input.{place}")
        if row is not None and (number := _as_int(row.value)) is not None:
            return number
    return None


def _as_int(value: object) -> int | None:
    if type(value) is int:
        return value
    return int(value) if isinstance(value, str) and value.isdecimal() else None
