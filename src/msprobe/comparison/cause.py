"""The call that only one side has, and that makes what differs: `return out * 0.999` in a patched forward.

Where a module's inputs, weights and recorded calls agree and its output does not, a call without partner that lies in between is the
likely cause. It is found by following the value that differs back through such calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msprobe.comparison.calls import Measured, MeasuredCall
from msprobe.comparison.findings import Kind
from msprobe.comparison.rows import Row

_EXPLAINED: tuple[Kind, ...] = ("output", "own code", "input")
_NUMBERS = {float, int, bool}
_Parents = Mapping[str, str | None]


def find_cause(
    kind: Kind,
    call: MeasuredCall,
    rows: Sequence[Measured],
    inside: tuple[str | None, str | None],
    before: Sequence[MeasuredCall],
    parents: tuple[_Parents, _Parents],
) -> tuple[MeasuredCall | None, int, MeasuredCall | None]:
    """The first of the calls without partner that lead to a value that differs, how many there are in a row, and what stands in its place
    on the golden side.

    Args:
        kind: of the difference; only those of a forward call that agreeing calls do not explain can have such a cause.
        call: the call at fault.
        rows: its rows that differ.
        inside: the module whose code is at fault, by its names in the target and in the golden dump; None: code outside of modules.
        before: the calls before the one at which the difference shows, in execution order.
        parents: construct.json of the target and of the golden dump.
    """
    if kind not in _EXPLAINED or call.parts.direction != "forward" or (kind == "output" and not call.parts.is_module):
        return None, 0, None
    chains: list[list[MeasuredCall]] = []
    for side in (0, 1):
        if inside[side] is None and inside[0] is not None:
            continue
        alone = [one for one in before if not one.matched and one.pair[side] is not None and _lies_in(one, inside[side], parents[side])]
        if found := _chain(alone, rows, side):
            chains.append(found)
    if chains:
        instead = chains[1][-1] if len(chains) > 1 else None
        return chains[0][-1], len(chains[0]), instead
    found = _last(before, inside, parents) if kind == "output" else []
    return (found[-1], len(found), None) if found else (None, 0, None)


def _lies_in(call: MeasuredCall, module: str | None, parents: _Parents) -> bool:
    """Whether a forward call is made directly in a module; with None, outside of all."""
    return call.parts.direction == "forward" and parents.get(call.name) == module


def _chain(alone: Sequence[MeasuredCall], rows: Sequence[Measured], side: int) -> list[MeasuredCall]:
    """The calls that lead to the value, the last first."""
    wanted = {_identity(row.pair[side]) for row in rows} - {None}
    found: list[MeasuredCall] = []
    for call in reversed(alone):
        own = [row.pair[side] for row in call.rows]
        if wanted & {_identity(row) for row in own if row is not None and row.role == "output"}:
            found.append(call)
            wanted |= {_identity(row) for row in own if row is not None and row.role == "input"} - {None}
    return found


def _last(before: Sequence[MeasuredCall], inside: tuple[str | None, str | None], parents: tuple[_Parents, _Parents]) -> list[MeasuredCall]:
    """The calls without partner behind the last one that both sides make in the module, the last first. They are what is left where the
    result of a call was not recorded as it left the module (changed in place)."""
    found: list[MeasuredCall] = []
    for call in reversed(before):
        side = 0 if call.pair.target is not None else 1
        if not _lies_in(call, inside[side], parents[side]):
            continue
        if call.matched:
            break
        found.append(call)
    return found


def _identity(row: Row | None) -> tuple[object, ...] | None:
    """The same for the same value under another name or in another shape; None for what is no tensor, and for zeros."""
    if row is None or row.kind != "tensor":
        return None
    if row.md5 is not None:
        return (str(row.md5), row.value)
    highest, lowest, _, norm = row.statistics
    return (highest, lowest, row.value) if norm and {type(highest), type(lowest)} <= _NUMBERS else None
