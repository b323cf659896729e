"""Weights and data that come in with another dtype on each side: which are casts of each other, and which are not.

A weight that no cast explains is another weight, unless the two runs were trained before the recording, each in its own dtype: then all
of them drift, by about a rounding in a few steps, by anything in many. What tells the two apart are the other weights. Of two runs that
nobody trained they are casts of each other to the bit; after training some still are, by chance or since a narrow dtype swallows small
updates. What else drifts then, and by many roundings of itself, is what begins at zero and has only just grown: a bias, of which the
difference is small beside the other weights. So a difference is taken in roundings of a weight of usual size (`Seen.beyond`).

Where the others do not tell, a weight is neither passed nor blamed: it is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msprobe.comparison import thresholds
from msprobe.comparison.arguments import argument_name
from msprobe.comparison.calls import Measured, MeasuredCall, execution_order, measured_anew
from msprobe.comparison.judging.accepted import is_acceptable
from msprobe.comparison.judging.casts import is_rounded, moved
from msprobe.comparison.judging.values import sizes_of, unit_of
from msprobe.comparison.measure import Agreement
from msprobe.comparison.rows import Row

Identity = tuple[object, ...]
"""The same for the same value under another name; a view of it has the same statistics."""

NOT_JUDGED = "no cast explains it, and whether the two runs were trained apart or it is another weight cannot be told"
"""The reason of a measure whose weight was not judged."""


class NotJudged(NamedTuple):
    """How many weights were not judged, of how many, and the first of them."""

    weights: int = 0
    of: int = 0
    example: str = ""


ALL_JUDGED = NotJudged()


class Weights(NamedTuple):
    """What is known of the weights that have another dtype on each side.

    Attributes:
        total: how many there are.
        other: those that are other weights.
        unjudged: those that training apart would explain as well; `example` names the first as it stands in dump.json.
    """

    total: int = 0
    other: frozenset[Identity] = frozenset()
    unjudged: frozenset[Identity] = frozenset()
    example: str = ""

    def said(self, accept_dtype: bool) -> list[str]:
        """One sentence on those that were not judged; none where there are none.

        Args:
            accept_dtype: a change of the floating-point dtype is no error by itself.
        """
        some = len(self.unjudged)
        if not some:
            return []
        words = "; none passes: within what training apart explains a row is warning, beyond it not compared" if accept_dtype else ""
        return [
            f"{some} of {self.total} {'weight' if self.total == 1 else 'weights'} {'is no cast' if some == 1 else 'are no casts'} of the"
            f" other side's (first: {self.example}): either the two runs were trained apart, each in its own dtype, or they hold other"
            f" weights, and that cannot be told{words}"
        ]

    @property
    def not_judged(self) -> NotJudged:
        """What a report keeps."""
        return NotJudged(len(self.unjudged), self.total, self.example)


class _Seen(NamedTuple):
    """One weight.

    Attributes:
        trained: it requires a gradient in one of the runs.
        rounded: whether it is a cast as far as Max and Min tell, None where they do not tell.
        by: how many roundings of itself it is away from a cast, 0 where a cast explains it.
        unit: what a rounding is, relative to its elements.
        typical: root mean square of its elements, on the larger side.
        wide: it has two dimensions or more.
        name: of the row where it was first seen.
    """

    trained: bool
    rounded: bool | None
    by: float
    unit: float
    typical: float
    wide: bool
    name: str


def weights_of(calls: Sequence[MeasuredCall]) -> Weights:
    """Judges the weights of two dumps.

    Args:
        calls: measured, in the order of dump.json.
    """
    if not any(call.dtype_differs for call in calls):
        return Weights()
    seen = _seen(execution_order(calls))
    other: set[Identity] = set()
    unjudged: list[Identity] = []
    for trained in (True, False):  # that frozen weights did not move says nothing about those that an optimizer has
        group = {identity: one for identity, one in seen.items() if one.trained is trained}
        blamed = _blamed(group)
        other |= blamed
        unjudged += [identity for identity, one in group.items() if one.by and identity not in blamed]
    found = frozenset(unjudged)
    example = next((one.name for identity, one in seen.items() if identity in found), "")
    return Weights(len(seen), frozenset(other), found, example)


def _blamed(group: Mapping[Identity, _Seen]) -> set[Identity]:
    """Those of the weights of one group that training cannot have moved."""
    usual = _usual(group.values())
    beyond = {identity: one.by * min(1.0, one.typical / usual if usual else 1.0) for identity, one in group.items() if one.by}
    casts = sum(one.rounded is True for one in group.values() if not one.by)
    if len(beyond) + casts == len(group):  # none has drifted by less than a rounding
        for for_each, least in thresholds.BESIDE_CASTS:
            if casts >= for_each * len(beyond):
                return {identity for identity, by in beyond.items() if by >= least}
    few, share = thresholds.BESIDE_FEW_CASTS, thresholds.BESIDE_FEW_CASTS_RELATIVE
    far = {identity for identity, by in beyond.items() if by >= max(few, share / group[identity].unit)}
    likely = casts + sum(one.rounded is None for one in group.values() if not one.by)
    is_rare = len(far) <= max(1, likely // 4)
    return far if is_rare and likely and 4 * likely >= 3 * (len(group) - len(far)) else set()


def _usual(group: Iterable[_Seen]) -> float:
    """Size of the elements of a weight: the upper quartile of matrices, since biases begin at zero; of all where there are none."""
    found = [*group]
    sizes = sorted(one.typical for one in found if one.wide) or sorted(one.typical for one in found)
    return sizes[(3 * len(sizes)) // 4 if len(sizes) > 1 else 0] if sizes else 0.0


def _seen(order: Sequence[MeasuredCall]) -> dict[Identity, _Seen]:
    """The weights that have another dtype on each side."""
    seen: dict[Identity, _Seen] = {}
    put_out: set[Identity] = set()
    for call in order:
        if call.parts.direction != "forward":
            continue
        for row in call.rows:
            ours, theirs = row.pair
            if ours is None or theirs is None or not is_acceptable(ours.dtype, theirs.dtype) or not _are_finite(ours, theirs):
                continue
            identity = _identity(row)
            if not _comes_in(row):
                put_out.add(identity)
            elif identity not in seen and _is_weight(call, ours) and (ours.role == "parameters" or identity not in put_out):
                seen[identity] = _looked_at(ours, theirs)
    return seen


def _are_finite(ours: Row, theirs: Row) -> bool:
    return all(type(value) is float and math.isfinite(value) for value in (*ours.statistics, *theirs.statistics)) and bool(ours.value)


def _looked_at(ours: Row, theirs: Row) -> _Seen:
    found = moved(ours, theirs)
    return _Seen(
        "True" in (ours.requires_grad, theirs.requires_grad),
        is_rounded(ours, theirs),
        0.0 if found is None else found.by / found.most if found.most else math.inf,
        max(unit_of(ours.dtype), unit_of(theirs.dtype)),
        max(abs(ours.statistics[3]), abs(theirs.statistics[3])) / math.sqrt(ours.value),
        len(sizes_of(ours.shape)) > 1,
        ours.name,
    )


def hold_to_casts(
    calls: Sequence[MeasuredCall], parents: Mapping[str, str | None], accept_dtype: bool
) -> tuple[list[MeasuredCall], Weights]:
    """The calls with other weights and other data as different, and with weights that were not judged as such.

    Args:
        calls: weighed, in the order of dump.json.
        parents: construct.json of the target.
        accept_dtype: a change of the floating-point dtype is no error by itself.
    """
    if not any(call.dtype_differs for call in calls):
        return [*calls], Weights()
    weights = weights_of(calls)
    others = {*weights.other, *_other_data(execution_order(calls), parents)}
    if not others and not weights.unjudged:
        return [*calls], weights
    return [_marked(call, others, weights.unjudged, accept_dtype) for call in calls], weights


def _marked(call: MeasuredCall, others: set[Identity], unjudged: frozenset[Identity], accept_dtype: bool) -> MeasuredCall:
    rows = list(call.rows)
    for index, row in enumerate(rows):
        measure = row.measure
        if measure is None or measure.agreement < Agreement.ROUNDING or not _comes_in(row):
            continue
        identity = _identity(row)
        if identity in others:
            if measure.agreement is Agreement.ROUNDING:
                rows[index] = Measured(row.pair, measure._replace(agreement=Agreement.DIFFERENT, expected=0.0))
        elif identity in unjudged and not measure.reason:
            lost = accept_dtype and measure.agreement is Agreement.DIFFERENT
            rows[index] = Measured(row.pair, measure._replace(reason=NOT_JUDGED, lost=lost))
    return measured_anew(call, rows)


def _other_data(order: Sequence[MeasuredCall], parents: Mapping[str, str | None]) -> Iterator[Identity]:
    """The same of what goes into the first call of the model, or the first call of all where no module was recorded, and that no recorded
    call put out."""
    forward = [call for call in order if call.parts.direction == "forward"]
    root = next((call for call in forward if call.parts.is_module and call.matched and parents.get(call.name, "") is None), None)
    if root is None and any(call.parts.is_module for call in forward):
        return
    first = root or next((call for call in forward if call.matched), None)
    if first is None:
        return
    put_out: set[Identity] = set()
    for call in forward:
        if call is first:
            break
        put_out.update(_identity(row) for row in call.rows if not _comes_in(row))
    for row in first.rows:
        ours, theirs = row.pair
        if ours is None or theirs is None or ours.role != "input" or _identity(row) in put_out or _is_weight(first, ours):
            continue
        if moved(ours, theirs) is not None:
            yield _identity(row)


def _is_weight(call: MeasuredCall, row: Row) -> bool:
    if row.role == "parameters":
        return True
    return row.role == "input" and not call.parts.is_module and (argument_name(call.parts.base, row.key) or "") in ("weight", "bias")


def _comes_in(row: Measured) -> bool:
    return row.pair.target is not None and row.pair.target.role in ("input", "parameters")


def _identity(row: Measured) -> Identity:
    ours, theirs = row.pair
    return identity_of(ours, theirs) if ours is not None and theirs is not None else (id(row),)


def identity_of(ours: Row, theirs: Row) -> Identity:
    """See Identity."""
    if {*map(type, (*ours.statistics, *theirs.statistics))} != {float}:
        return (id(ours), id(theirs))
    return (ours.dtype, theirs.dtype, ours.statistics, theirs.statistics, ours.value)
