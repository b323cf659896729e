"""What a mapping file says of one side alone, done before anything is paired: an engine computes the tokens of several requests in one
tensor, hands the residual on beside the hidden states, and has modules that the other side does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from msprobe.comparison.alignment.places import RowPair
from msprobe.comparison.alignment.side import path_of
from msprobe.comparison.mapping.arrays import CannotCompose
from msprobe.comparison.mapping.composed import ComposedRow, Part, absent_row, composed_row, shape
from msprobe.comparison.mapping.names import match
from msprobe.comparison.mapping.nearest import hint
from msprobe.comparison.mapping.requests import Request, chosen_request, refuse_parts, sequence_length
from msprobe.comparison.mapping.rules import How, Preparation, Select
from msprobe.comparison.match import CallPair
from msprobe.comparison.rows import Call, Row

REPACKED = "the engine keeps no readable copy of this weight: it was repacked for its kernels"


def prepared(
    calls: tuple[Sequence[Call], Sequence[Call]],
    how: tuple[Preparation, Preparation],
    dumps: tuple[Path, Path],
    directories: tuple[Path, Path],
    notes: list[str],
) -> tuple[list[Call], list[Call]]:
    """The calls of both sides, prepared.

    Args:
        calls: of target and golden side.
        how: what the mapping file says of each.
        dumps: their dump.json.
        directories: where their tensor files lie.
        notes: gets what the reader should know, one sentence each.

    Raises:
        UsageError: there is no such request, or the step holds parts of values.
    """
    length = [sequence_length(known) for known in calls]
    request: Request | None = None
    for place, name in enumerate(("target", "golden run")):
        if how[place].whole:
            refuse_parts(dumps[place])
        if how[place].request is not None:
            request = chosen_request(dumps[place], how[place].request, calls[1 - place], directories[1 - place], how[1 - place].sequence)
            of = f"of the {request.requests} requests of the {name}'s step, number {request.number} is compared"
            notes.append(f"{of}: rows {request.rows[0]} to {request.rows[1] - 1}")
            if request.doubt:
                notes.append(request.doubt)
    sides = [_Side(one, directory, request, size) for one, directory, size in zip(how, directories, length, strict=True)]
    made = [side.prepared(known) for side, known in zip(sides, calls, strict=True)]
    for side, known, name in zip(sides, calls, ("the target", "the golden run"), strict=True):
        unknown = _unknown(side.how, known)
        if unknown:
            more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
            notes.append(f"the mapping file prepares what {name} does not have: {unknown[0]}{more}")
        if side.left_out:
            some = ", ".join(list(side.left_out)[:2]) + (" ..." if len(side.left_out) > 2 else "")
            notes.append(f"the mapping file leaves out {sum(side.left_out.values())} values of {name}: {some}")
    return made[0], made[1]


def _unknown(how: Preparation, calls: Sequence[Call]) -> list[str]:
    """Modules whose values are named and that there are not, and values that no such module has; with the nearest names.

    Not what is left out, nor parameters: a file for several models names what some of them lack.
    """
    keys: dict[str, set[str]] = {}
    for call in calls:
        if call.parts.is_module and call.parts.direction == "forward":
            keys.setdefault(path_of(call.parts.base), set()).update(row.key for row in call.rows)
    found: list[str] = []
    for pattern, values in how.values.items():
        parts = pattern.split(".")
        held = [known for path, known in keys.items() if len(path.split(".")) == len(parts) and match(parts, path.split(".")) is not None]
        if not values:
            continue
        if not held:
            found.append(f"no module {pattern}{hint(pattern, keys)}")
            continue
        known = set().union(*held)
        wanted = dict.fromkeys(part for named in values.values() for part in named if not part.startswith("parameters."))
        found += [f"{pattern} has no {part}{hint(part, sorted(known), stars=False)}" for part in wanted if part not in known]
    return found


def like_partners(pairs: Sequence[CallPair]) -> list[CallPair]:
    """Values that stand for what an engine does not keep have the shape of what they are paired with: that is no difference."""
    return [pair._replace(rows=tuple(_alike(both) for both in pair.rows)) if any(map(_is_absent, pair.rows)) else pair for pair in pairs]


def _is_absent(both: RowPair) -> bool:
    return isinstance(both.target, ComposedRow) and both.target.composition.nothing and both.golden is not None


def _alike(both: RowPair) -> RowPair:
    if both.target is None or both.golden is None or not _is_absent(both):
        return both
    return both._replace(target=both.target._replace(shape=both.golden.shape, value=both.golden.value))


class _Side:
    """One dump."""

    def __init__(self, how: Preparation, directory: Path, request: Request | None, length: int | None) -> None:
        self.how, self.directory, self.request, self.length = how, directory, request, length
        self.patterns = [(pattern.split("."), values) for pattern, values in how.values.items()]
        self.left_out: dict[str, int] = {}
        """Call -> how many of its values."""

    def prepared(self, calls: Sequence[Call]) -> list[Call]:
        """The calls that are left, with other values."""
        found: list[Call] = []
        for call in calls:
            rows = self._chosen(call)
            if len(rows) < len(call.rows):
                self.left_out[call.name] = len(call.rows) - len(rows)
            if rows or not call.rows:
                found.append(call._replace(rows=tuple(self._cut(row) for row in rows)))
        return found

    def _chosen(self, call: Call) -> list[Row]:
        """The values that are compared; some are sums of what was recorded."""
        if not call.parts.is_module:
            return [] if self.how.modules_only else list(call.rows)
        path = path_of(call.parts.base).split(".")
        values: Mapping[str, tuple[str, ...]] | None = {}
        for pattern, named in self.patterns:
            if match(pattern, path) is not None and (named is None or len(pattern) == len(path)):
                values = named
                if named is None:
                    return []
        if not values or call.parts.direction != "forward":
            return list(call.rows)
        by_key = {row.key: row for row in call.rows}
        rows = [self._sum(key, [by_key[part] for part in parts if part in by_key]) for key, parts in values.items()]
        return [row for row in rows if row is not None]

    def _sum(self, key: str, rows: Sequence[Row]) -> Row | None:
        tensors = [row for row in rows if row.kind == "tensor"]
        if not tensors:
            return None
        made = tensors[0]
        if len(tensors) > 1:
            try:
                made = composed_row([Part(self.directory, row) for row in tensors], How(sum=True), made)
            except CannotCompose:
                return None
        return made._replace(key=key)

    def _cut(self, row: Row) -> Row:
        """The rows of the request, or its positions."""
        size = shape(row)
        if not size or self.request is None:
            return row
        if row.role == "parameters":
            row = row._replace(requires_grad="N/A")  # an engine computes no gradients, whatever the other side does
            return absent_row(row, REPACKED)._replace(name=row.name) if self.how.request is not None and 0 in size else row
        how: How | None = None
        if self.how.request is not None:
            if size[0] == self.request.tokens:
                how = _rows(self.request.rows, size[0])
            elif size[0] == self.request.requests:
                how = _rows((self.request.number, self.request.number + 1), size[0])
            like = row
        elif self.how.sequence and len(size) > 1 and size[0] == 1 and size[1] == self.length:
            first, last = self.request.positions
            how = How(flatten=(0, 1), select=None if (first, last) == (0, size[1]) else Select(1, start=first, stop=last))
            like = row._replace(shape=json.dumps(list(size[1:])))
        if how is None:
            return row
        key = row.key
        return composed_row([Part(self.directory, row)], how, like)._replace(key=key)


def _rows(between: tuple[int, int], size: int) -> How | None:
    """None where these are all rows: then nothing is cut, and statistics stay what they are."""
    return None if between == (0, size) else How(select=Select(0, start=between[0], stop=between[1]))
