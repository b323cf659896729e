"""Whose a gradient is: MindSpore has a place for every tensor that a call takes in, PyTorch for those that a gradient is computed of."""

from __future__ import annotations

from collections.abc import Sequence

from msprobe.comparison.alignment.places import by_keys
from msprobe.comparison.gradient_slots import owners_of
from msprobe.comparison.match import CallPair
from msprobe.comparison.names import forward_of
from msprobe.comparison.rows import Call


def of_the_same_inputs(pairs: Sequence[CallPair]) -> list[CallPair]:
    """The pairs, with gradients of inputs that belong together beside each other; as they were where that is not certain.

    Args:
        pairs: of two frameworks.
    """
    forwards = {pair.name: pair for pair in pairs if pair.target is not None and pair.target.parts.direction == "forward"}
    made: list[CallPair] = []
    for pair in pairs:
        target, golden = pair.target, pair.golden
        forward = forwards.get(forward_of(pair.name) or "")
        if target is not None and golden is not None and forward is not None and target.parts.direction == "backward":
            place = 0 if target.parts.own else 1
            ours = _owners(forward, (target, golden)[place], place)
            theirs = owners_of((forward.golden, forward.target)[place], (golden, target)[place])
            if ours and theirs:
                first, second = (ours, theirs) if place == 0 else (theirs, ours)
                pair = pair._replace(rows=by_keys(target.rows, golden.rows, first, second))
        made.append(pair)
    return made


def _owners(forward: CallPair, backward: Call, place: int) -> dict[str, str]:
    """The same of MindSpore's side, by the keys of PyTorch's inputs. `place`: of MindSpore's side in a pair."""
    call = (forward.target, forward.golden)[place]
    inputs = [row.key for row in call.rows if row.role == "input" and row.kind == "tensor"] if call is not None else []
    slots = [row.key for row in backward.rows if row.role == "output"]
    if len(slots) != len(inputs):
        return {}
    both = [(pair.target, pair.golden) for pair in forward.rows if pair.target is not None and pair.golden is not None]
    partners = {pair[place].key: pair[1 - place].key for pair in both}
    return {slot: f"gradient of {partners.get(key, key + ' alone')}" for slot, key in zip(slots, inputs, strict=True)}
