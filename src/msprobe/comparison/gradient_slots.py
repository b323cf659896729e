"""Backward entries whose gradients stand in other places on the two sides.

A backward entry lists only the gradients that exist. When an input of the call requires a gradient in one run only, the lists are of
different lengths, and place n of one side and place n of the other belong to different inputs: to measure one against the other would
give numbers that mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from msprobe.comparison.calls import requires_grad_differs
from msprobe.comparison.match import CallPair
from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.names import forward_of
from msprobe.comparison.rows import Call

REASON = "requires_grad of the inputs of this call differs, so that its gradients stand in other places on the two sides"


def shifted(pairs: Sequence[CallPair]) -> set[str]:
    """Names of the backward calls whose outputs must not be measured against each other."""
    forwards = {
        pair.name
        for pair in pairs
        if pair.target is not None
        and pair.target.parts.direction == "forward"
        and any(requires_grad_differs(row) and row.target is not None and row.target.role == "input" for row in pair.rows)
    }
    if not forwards:
        return set()
    return {
        pair.name
        for pair in pairs
        if pair.target is not None
        and pair.golden is not None
        and pair.target.parts.direction == "backward"
        and forward_of(pair.name) in forwards
        and _slots(pair.target) != _slots(pair.golden)
    }


def not_measured(columns: Sequence[str], text: str) -> Measure:
    """The measure of such a pair. `columns`: the metric columns of the mode; `text`: what their cells say."""
    return Measure((text,) * len(columns), Agreement.UNKNOWN, reason=REASON, lost=True)


def _slots(call: Call) -> list[tuple[str, str]]:
    return [(row.key, row.shape) for row in call.rows if row.role == "output"]
