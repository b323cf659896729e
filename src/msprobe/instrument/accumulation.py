"""Gradients that are added up over several iterations before the optimizer steps: in which iterations it does."""

from __future__ import annotations

import re
from dataclasses import dataclass

import libcst as cst

from msprobe.instrument.sites import Calls
from msprobe.instrument.tree import Loop, Tree, assigned, names_in_target, statements, walk

_COUNTED = re.compile(r"sync_gradients|accum|is_update|do_update|update_now|should_step|do_step", re.IGNORECASE)


@dataclass(frozen=True)
class Accumulation:
    """How an iteration is told in which the optimizer steps from one in which gradients are only added up.

    Attributes:
        block: the statements that run in such an iteration alone: `if (i + 1) % 4 == 0:`.
        after: the step itself, where the others have left the iteration before: `if (i + 1) % 4: continue`.
        accelerator: the accelerator whose `accumulate` says it.
    """

    block: cst.BaseSuite | None = None
    after: cst.CSTNode | None = None
    accelerator: str | None = None


def accumulation(tree: Tree, calls: Calls, loop: Loop) -> tuple[Accumulation | None, tuple[str, ...]]:
    """Whether the optimizer steps in some iterations only, and a note where that cannot be told."""
    found: list[Accumulation] = []
    notes: tuple[str, ...] = ()
    for step in calls.within(loop.body, calls.steps):
        function = calls.home(step)
        inside = calls.loops_around(step, function)
        if not inside or inside[0] is not loop or tree.function_of(step) is not function:
            continue
        one, condition = _when(tree, calls, step, loop)
        if one is not None:
            found.append(one)
            continue
        if condition is None:
            return None, ()  # one of the optimizers steps in each iteration: that is the step
        line = tree.start(condition)[0]
        where = f"line {line}: {tree.lines[line - 1].strip()}"
        notes = (f"the optimizer steps under a condition ({where}); each iteration is a step all the same",)
    return (found[0], ()) if found else (None, notes)


def _when(tree: Tree, calls: Calls, step: cst.CSTNode, loop: Loop) -> tuple[Accumulation | None, cst.If | None]:
    """When an optimizer's step is made; if that is not every so many iterations, the condition that it stands under."""
    condition: cst.If | None = None
    block: cst.BaseSuite | None = None
    below = step
    for above in tree.above(step):
        if isinstance(above, cst.If):
            if isinstance(below, cst.Else):
                block = below.body
            elif below is above.body:
                block = above.body
            if block is not None and below is not above.test:
                if _counts(tree, above.test, loop, block):
                    return Accumulation(block=block), None
                other = above.orelse if below is above.body else above.body
                if other is None or not calls.within(other, calls.steps):  # `if amp: scaler.step(optimizer)`, `else: optimizer.step()`
                    condition = above
        if isinstance(above, cst.With):
            for item in above.items:
                made = item.item.func if isinstance(item.item, cst.Call) else None
                if isinstance(made, cst.Attribute) and made.attr.value == "accumulate":
                    return Accumulation(accelerator=tree.code(made.value)), None
        if isinstance(above, cst.BaseSuite) and _is_behind_a_guard(tree, calls, step, above, loop):
            return Accumulation(after=step), None
        if above is loop:
            break
        below = above
    return None, condition


def _is_behind_a_guard(tree: Tree, calls: Calls, step: cst.CSTNode, block: cst.BaseSuite, loop: Loop) -> bool:
    """Whether `if (i + 1) % 4: continue` stands between the backward pass and the step in a block."""
    backward = [tree.start(call) for call in calls.within(loop.body, calls.backward)]
    return any(
        isinstance(one, cst.If)
        and one.orelse is None
        and isinstance(statements(one.body)[-1], cst.Continue)
        and tree.end(one) <= tree.start(step)
        and min(backward, default=tree.end(one)) < tree.start(one)
        and _counts(tree, one.test, loop, one.body)
        for one in statements(block)
    )


def _counts(tree: Tree, test: cst.BaseExpression, loop: Loop, block: cst.BaseSuite) -> bool:
    """Whether a condition is true every so many iterations: by its form, its names, or a counter that starts anew in the block."""
    if has_modulo(test) or _COUNTED.search(tree.code(test)):
        return True
    names = {node.value for node in walk(test) if isinstance(node, cst.Name)}
    counters: set[str] = set()
    for node in walk(loop.body):
        if isinstance(node, cst.Assign) and has_modulo(node.value):
            targets = {target.target.value for target in node.targets if isinstance(target.target, cst.Name)}
            if targets & names:
                return True
        elif isinstance(node, cst.AugAssign):
            counters |= set(names_in_target(node.target))
    reset = {name for node in walk(block) if isinstance(node, cst.Assign) for name in assigned(node)}
    return bool(names & counters & reset)


def has_modulo(node: cst.CSTNode) -> bool:
    """Whether a remainder is taken somewhere in an expression."""
    return any(isinstance(one, cst.Modulo) for one in walk(node))
