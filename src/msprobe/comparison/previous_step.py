"""When the parameters of a step differ first, the step before made them: what its gradients say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from msprobe.comparison.calls import MeasuredCall
from msprobe.comparison.first_difference import FirstDifference
from msprobe.comparison.measure import Agreement
from msprobe.comparison.stacks import Frame, frames_of, locate

if TYPE_CHECKING:
    from msprobe.comparison.outcome import PairReport

_JUMP = 10.0
_AFTER_BACKWARD = (
    "it was made after the backward pass, by the optimizer (its settings, its state) or by code around it that was not recorded:"
    " what scales, clips or averages gradients before the optimizer's step, or changes parameters after it"
)
"""The gradients of a dump are those that the backward pass gave: what a script makes of them before the optimizer takes them shows in the
parameters alone."""


class Gradient(NamedTuple):
    """The gradient of a parameter that is not the same in every bit: its entry, and the relative size of the difference."""

    call: str
    size: float


class Start(NamedTuple):
    """A backward call whose results are not the same in every bit, the size of the difference, and the user's line."""

    call: str
    size: float
    frame: Frame | None


@dataclass(frozen=True)
class Gradients:
    """The gradients of one step of one rank.

    Attributes:
        compared: how many gradients of parameters were measured.
        backward: how many backward calls were.
        differing: (module, parameter) -> its gradient, of those that are not the same in every bit.
        start: the backward call or gradient where that began.
    """

    compared: int = 0
    backward: int = 0
    differing: Mapping[tuple[str, str], Gradient] = field(default_factory=dict)
    start: Start | None = None


def gradients_of(order: Sequence[MeasuredCall], exact: bool, stacks: Mapping[str, Sequence[str]]) -> Gradients:
    """Gathers them.

    Args:
        order: the measured calls in execution order.
        exact: bits can be expected to agree: then the first call that is not the same is the start. Otherwise all are a little different,
            and the start is the one that adds most, if it multiplies what came in by ten at least.
        stacks: entry name -> frames.
    """
    compared = backward = 0
    differing: dict[tuple[str, str], Gradient] = {}
    start: tuple[str, float] | None = None
    jump = _JUMP
    for call in order:
        direction = call.parts.direction
        if direction not in ("backward", "parameters_grad") or not call.matched:
            continue
        backward += direction == "backward"
        if max(call.inputs, call.outputs) is Agreement.SAME:
            compared += len(call.rows) if direction == "parameters_grad" else 0
            continue
        size = came_in = 0.0
        for row in call.rows:
            ours, measure = row.pair.target, row.measure
            if ours is None or measure is None or measure.agreement is Agreement.UNKNOWN:
                continue
            if ours.role == "input":
                came_in = max(came_in, measure.size)
                continue
            size = max(size, measure.size)
            if ours.role == "parameters_grad":
                compared += 1
                if measure.agreement is not Agreement.SAME:
                    differing[call.parts.base, ours.key] = Gradient(call.name, measure.size)
        if exact:
            if start is None and max(call.inputs, call.outputs) > Agreement.SAME:
                start = call.name, max(size, came_in)
        elif direction == "backward" and 0 < came_in < math.inf and size / came_in > jump:
            start, jump = (call.name, size), size / came_in
    found = Start(*start, locate(frames_of(start[0], stacks))[0]) if start is not None else None
    return Gradients(compared, backward, differing, found)


def look_back(reports: Sequence[PairReport], report: PairReport, difference: FirstDifference) -> list[str]:
    """What the step before says of a difference that is there when `report`'s step begins, in lines; none where that is not the case."""
    step = report.pair.step
    if step is None or not _is_there_at_the_start(difference):
        return []
    before = [r for r in reports if r.pair.label == report.pair.label and r.pair.step is not None and r.pair.step < step]
    if not before:
        return [] if step == 0 else [f"step {step} is the first that was compared: what made its parameters lies before, or they began so"]
    previous = max(before, key=lambda r: -1 if r.pair.step is None else r.pair.step)
    gradients, number = previous.gradients, previous.pair.step
    if number is not None and number < step - 1:
        return [f"the step before is step {step - 1} and was not compared: record it to see which gradient differs there"]
    if not gradients.compared and not gradients.backward:
        return [f"of step {number} no gradient was compared: record its backward pass to see where this began"]
    lines: list[str] = []
    for row in difference.rows:
        key = row.pair.target.key.removeprefix("parameters.") if row.pair.target is not None else ""
        gradient = gradients.differing.get((difference.call.parts.base, key))
        if gradient is not None and difference.kind == "parameter":
            lines.append(f"it comes from step {number}: the gradient {gradient.call}.{key} differs there{_sized(gradient.size)}")
            break
    if not lines and gradients.differing:
        (_, key), gradient = next(iter(gradients.differing.items()))
        lines.append(f"gradients of step {number} differ, the first {gradient.call}.{key}{_sized(gradient.size)}")
    if gradients.start is not None:
        at = f", at {gradients.start.frame}" if gradients.start.frame is not None else ""
        lines.append(f"in step {number} it began in {gradients.start.call}{_sized(gradients.start.size)}{at}")
    if not lines:
        what, count = ("gradient of a parameter", gradients.compared) if gradients.compared else ("backward call", gradients.backward)
        lines.append(f"every {what} of step {number} agrees in every bit ({count} compared): {_AFTER_BACKWARD}")
    return lines


def _is_there_at_the_start(difference: FirstDifference) -> bool:
    """Whether it is a parameter. Where modules were recorded, theirs are; elsewhere a weight is known by being trained and not what the
    call transforms, its first argument: an activation needs a gradient, too, and was made in this step."""
    if difference.kind == "parameter":
        return True
    if difference.kind not in ("first input", "input") or difference.module is not None or difference.call.parts.is_module:
        return False
    rows = [row.pair.target for row in difference.rows]
    return any(row is not None and row.requires_grad == "True" and row.key != "input.0" for row in rows)


def _sized(size: float) -> str:
    return f" (relative size {size:.2g})" if 0 < size < math.inf else ""
