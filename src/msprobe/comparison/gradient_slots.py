"""Backward entries whose gradients stand in other places on the two sides.

A backward entry lists only the gradients that exist. When an input of the call requires a gradient in one run only, the lists are of
different lengths, and place n of one side and place n of the other belong to different inputs. Where it can be told which gradient is
whose, they are paired so; where it cannot, to measure one against the other would give numbers that mean nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msprobe.comparison.alignment.places import by_keys
from msprobe.comparison.calls import requires_grad_differs
from msprobe.comparison.match import CallPair
from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.names import forward_of
from msprobe.comparison.rows import Call, Row

REASON = "requires_grad of the inputs of this call differs, so that its gradients stand in other places on the two sides"


def realigned(pairs: Sequence[CallPair]) -> tuple[list[CallPair], set[str]]:
    """Pairs the gradients of such calls anew.

    Returns:
        All pairs, and the names of the backward calls whose outputs must not be measured against each other.
    """
    forwards = {
        pair.name: pair
        for pair in pairs
        if pair.target is not None
        and pair.target.parts.direction == "forward"
        and any(requires_grad_differs(row) and row.target is not None and row.target.role == "input" for row in pair.rows)
    }
    result = list(pairs)
    shifted: set[str] = set()
    for index, pair in enumerate(pairs) if forwards else ():
        target, golden = pair.target, pair.golden
        forward = forwards.get(forward_of(pair.name) or "") if target is not None and target.parts.direction == "backward" else None
        if forward is None or target is None or golden is None or _slots(target) == _slots(golden):
            continue
        ours, theirs = owners_of(forward.target, target), owners_of(forward.golden, golden)
        if not (ours and theirs):
            ours, theirs = _by_shape(target), _by_shape(golden)
        if ours and theirs:
            result[index] = pair._replace(rows=by_keys(target.rows, golden.rows, ours, theirs))
        else:
            shifted.add(pair.name)
    return result, shifted


def not_measured(columns: Sequence[str], text: str) -> Measure:
    """The measure of such a pair. `columns`: the metric columns of the mode; `text`: what their cells say."""
    return Measure((text,) * len(columns), Agreement.UNKNOWN, reason=REASON, lost=True)


def _outputs(call: Call) -> list[Row]:
    return [row for row in call.rows if row.role == "output"]


def _slots(call: Call) -> list[tuple[str, str]]:
    return [(row.key, row.shape) for row in _outputs(call)]


def owners_of(forward: Call | None, backward: Call) -> dict[str, str]:
    """Key of a gradient -> `gradient of` and the key of the input it belongs to; {} where that is not certain.

    There is one place for each tensor of the inputs, positional ones first, that requires a gradient; each has the shape of its input.
    """
    slots = _outputs(backward)
    owners = [row for row in forward.rows if row.role == "input" and row.requires_grad == "True"] if forward is not None else []
    if len(slots) != len(owners) or any(slot.kind == "tensor" and slot.shape != row.shape for slot, row in zip(slots, owners, strict=True)):
        return {}
    return {slot.key: f"gradient of {row.key}" for slot, row in zip(slots, owners, strict=True)}


def _by_shape(backward: Call) -> dict[str, str]:
    """Key of a gradient -> its shape; {} where two gradients have the same."""
    slots = _outputs(backward)
    if any(count > 1 for count in Counter(row.shape for row in slots).values()):
        return {}
    return {row.key: f"gradient of shape {row.shape}" for row in slots}
