"""Which part of a training step a call belongs to: entries of the optimizer's step are `forward` by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from msprobe.comparison.calls import MeasuredCall
from msprobe.comparison.compared import Compared
from msprobe.comparison.stacks import frames_of, kind_of, parse_frame

Part = Literal["forward", "backward", "optimizer"]

_OPTIMIZER = "optimizer"
"""The parent that construct.json gives what an optimizer calls."""
_OPTIM = re.compile(r"/torch/optim/")
_WRAPPER = re.compile(r"/torch/optim/optimizer\.py$")
"""torch wraps `step` of every optimizer in a function that stands there."""


def part_of(call: MeasuredCall, parents: Mapping[str, str | None], stacks: Mapping[str, Sequence[str]]) -> Part:
    """The part that a call belongs to; `forward` is whatever is known to be no other.

    Args:
        parents, stacks: construct.json and stack.json of the side whose name the call has.
    """
    if call.parts.direction in ("backward", "parameters_grad"):
        return "backward"
    return "optimizer" if _stands_under_optimizer(call.name, parents) or _is_made_by_optim(frames_of(call.name, stacks)) else "forward"


def by_optimizer(compared: Compared) -> frozenset[str]:
    """Of the calls that the search has named, those that an optimizer makes."""
    found = compared.findings
    named = [difference.call for difference in (found.first, found.value, found.beyond_rounding) if difference is not None]
    sides = [(call, compared.parents, compared.frames) for call in named]
    if (alone := found.unmatched) is not None:
        golden = compared.golden_parents, compared.golden_stacks
        sides.append((alone, *((compared.parents, compared.frames) if alone.pair.target is not None else golden)))
    return frozenset(call.name for call, parents, stacks in sides if part_of(call, parents, stacks) == "optimizer")


def _stands_under_optimizer(name: str, parents: Mapping[str, str | None]) -> bool:
    seen: set[str] = set()
    parent: str | None = name
    while isinstance(parent, str) and parent not in seen:  # a damaged construct.json may hold a circle
        seen.add(parent)
        parent = parents.get(parent)
        if parent == _OPTIMIZER:
            return True
    return False


def _is_made_by_optim(frames: Sequence[str]) -> bool:
    """Whether an optimizer of torch's own makes the call in its step. At level L1 there are no parents, and the stack alone tells.

    What a closure calls that the step was given (LBFGS) has torch.optim in its stack as well, but stands in a function of the user's.
    """
    for text in frames:
        frame = parse_frame(text)
        if frame is None:
            continue
        path = frame.path.replace("\\", "/")
        if _OPTIM.search(path):
            return any(_WRAPPER.search(other.path.replace("\\", "/")) for other in map(parse_frame, frames) if other is not None)
        if kind_of(frame) != "framework":
            return False
    return False
