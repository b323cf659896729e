"""The places of a script that could be recorded."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import libcst as cst

from msprobe.instrument.accumulation import Accumulation, accumulation, has_modulo
from msprobe.instrument.roles import Roles
from msprobe.instrument.sites import UNKNOWN, Calls, Site
from msprobe.instrument.trainers import Trainer, trainers
from msprobe.instrument.tree import Function, Loop, Tree, dotted, walk


@dataclass(frozen=True)
class Candidate:
    """One place. What each field means for programs: docs/enable.md."""

    kind: str
    purpose: str
    line: int
    end_line: int
    code: str
    function: str | None
    models: tuple[str, ...]
    step: str
    node: cst.CSTNode
    sites: tuple[Site, ...] = ()
    accumulating: Accumulation | None = None
    """When the optimizer steps, where it does not in each iteration."""
    trainer: Trainer | None = None
    recommended: bool = False
    doubtful: bool = False
    """No forward pass would be recorded there."""
    notes: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return str(self.line)

    def as_json(self) -> dict[str, Any]:
        """For the answer to a program."""
        names = ("id", "kind", "purpose", "line", "end_line", "code", "function", "models", "step", "recommended", "notes")
        return {name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in names}


@dataclass
class _Found:
    node: cst.CSTNode
    kind: str
    function: Function | None
    sites: list[Site] = field(default_factory=list)
    in_head: bool = False
    """The head of the loop calls the model, through a generator: outside of what would be recorded."""


def candidates(tree: Tree, roles: Roles, calls: Calls) -> list[Candidate]:
    """All places, in the order of the file; the one that would be taken has `recommended`, where that is clear."""
    found: dict[int, _Found] = {}
    for site in calls.forward:
        for place in _places(calls, site, 0) or [_without_loop(calls, site)]:
            known = found.setdefault(id(place.node), place)
            if known is not place:
                known.sites += place.sites
    for loop, function in _training_loops_without_forward(tree, calls):
        if not any(_is_in(tree, one.node, loop) or _is_in(tree, loop, one.node) for one in found.values()):
            found[id(loop)] = _Found(loop, "loop", function, in_head=_in_head(calls, loop))
    made = [_made(tree, roles, calls, one) for one in _grouped(tree, found)]
    made += [_of_trainer(tree, one) for one in trainers(tree, roles)]
    made = sorted({one.line: one for one in reversed(made)}.values(), key=lambda one: one.line)
    return _recommended(made)


def _places(calls: Calls, site: Site, depth: int) -> list[_Found]:
    """The loops that a call of a model belongs to, functions looked through; empty: it is in none."""
    loops = calls.loops_around(site.node, site.function)
    if loops:
        loop = next((one for one in loops if calls.steps_of(one)), None)
        if loop is not None:
            return [_Found(loop, "loop", site.function, [site])]
        outside = site.function is not None and calls.within(site.function, calls.steps) and not _any_loop(calls, site.function)
        if not outside:
            if calls.within(loops[0].body, calls.all_steps):
                return []  # evaluation after each epoch: not the epoch is what is recorded
            inner = loops[:1]
            if len(loops) > 1 and not calls.within(loops[0].body, calls.backward) and _could_be_one_step(loops[0], loops[1]):
                inner = loops[:2]  # tokens inside, prompts outside: either may be meant
            return [_Found(one, "loop", site.function, [site]) for one in inner]
        around = _in_callers(calls, site, depth)
        return around or [_Found(site.function, "function", site.function, [site])] if site.function is not None else []
    return _in_callers(calls, site, depth)


def _in_callers(calls: Calls, site: Site, depth: int) -> list[_Found]:
    if site.function is None or depth > 6:
        return []
    found: list[_Found] = []
    for call in calls.callers(site.function):
        above = calls.at_caller(site, call)
        if calls.reachable(above):
            found += _places(calls, above, depth + 1)
    return found


def _any_loop(calls: Calls, function: Function) -> bool:
    """Whether an optimizer's step of a function stands in a loop there."""
    return any(calls.loops_around(step, function) for step in calls.within(function, calls.steps))


def _could_be_one_step(inner: Loop, outer: Loop) -> bool:
    def over_range(loop: Loop) -> bool:
        return isinstance(loop, cst.While) or (
            isinstance(loop.iter, cst.Call) and isinstance(loop.iter.func, cst.Name) and loop.iter.func.value in ("range", "trange")
        )

    return over_range(inner) and not over_range(outer)


def _without_loop(calls: Calls, site: Site) -> _Found:
    """A call in no loop: a function that another file calls once a batch, or a statement."""
    function = site.function
    if function is not None and not calls.callers(function) and function.name.value != "main":
        owner = calls.tree.class_of(function)
        if function.params.params and (owner is None or len(function.params.params) > 1):
            return _Found(function, "function", function, [site])
    return _Found(_statement(calls.tree, site.node), "call", function, [site])


def _statement(tree: Tree, node: cst.CSTNode) -> cst.CSTNode:
    """The statement that a node is part of. What is in the head of a compound statement belongs to all of it."""
    here = node
    for above in (node, *tree.above(node)):
        if isinstance(above, cst.SimpleStatementLine | cst.SimpleStatementSuite):
            return here
        if isinstance(above, cst.BaseCompoundStatement):
            return above
        here = above
    return here


def _training_loops_without_forward(tree: Tree, calls: Calls) -> list[tuple[Loop, Function | None]]:
    """Loops with an optimizer's step whose forward pass is in another file."""
    found: dict[int, tuple[Loop, Function | None]] = {}
    for step in calls.steps:
        owner = tree.class_of(step)
        if owner is not None and owner.name.value in calls.roles.lightning_classes | calls.roles.trainer_classes:
            continue
        function = calls.home(step)
        for loop in calls.loops_around(step, function)[:1]:
            found[id(loop)] = (loop, function)
    return list(found.values())


def _in_head(calls: Calls, loop: Loop) -> bool:
    head = loop.iter if isinstance(loop, cst.For) else loop.test
    called = {(dotted(one.func) or "").rpartition(".")[2] for one in walk(head) if isinstance(one, cst.Call)}
    return any(site.function is not None and site.function.name.value in called for site in calls.forward)


def _grouped(tree: Tree, found: dict[int, _Found]) -> list[_Found]:
    """Statements of one block that call models are one place; a place inside another of the same kind goes."""
    blocks: dict[int, _Found] = {}
    result: list[_Found] = []
    for one in found.values():
        if one.kind != "call":
            result.append(one)
            continue
        block = next(
            (node for node in tree.above(one.node) if isinstance(node, cst.IndentedBlock | cst.Module | cst.SimpleStatementSuite)), None
        )
        first = blocks.setdefault(id(block), one)
        if first is one:
            result.append(one)
        else:
            first.sites += one.sites
            if tree.start(one.node) < tree.start(first.node):
                first.node = one.node
    return result


def _made(tree: Tree, roles: Roles, calls: Calls, found: _Found) -> Candidate:
    node = found.node
    body = node.body if found.kind != "call" and isinstance(node, cst.For | cst.While | cst.FunctionDef) else node
    scope: cst.CSTNode = body
    if found.kind == "call":
        scope = tree.parent(found.node) or found.node
        if isinstance(scope, cst.SimpleStatementLine):
            scope = tree.parent(scope) or scope
    trains = bool(calls.within(scope, calls.all_steps) or calls.within(scope, calls.backward))
    models, notes = _models(roles, found)
    accumulating: Accumulation | None = None
    step = "iteration" if found.kind == "loop" else "call"
    if found.kind == "loop" and isinstance(found.node, cst.For | cst.While):
        accumulating, unsure = accumulation(tree, calls, found.node)
        notes += unsure
        if accumulating is not None:
            step = "optimizer step"
        hidden = [one for one in calls.within(body, calls.steps) if one not in calls.direct_steps]
        if trains and hidden and accumulating is None and _steps_now_and_then(tree, calls):
            notes += (
                "the optimizer steps under a condition inside a function that this loop calls: each iteration will be a step of its own",
            )
        if found.sites and not trains and isinstance(found.node, cst.While):
            notes += ("each iteration, such as one generated token, will be a step of its own",)
    if found.kind == "loop" and (handler := _caught_outside(tree, found.node)) is not None:
        notes += (
            f"an exception that is caught in line {handler} leaves its iteration open: what runs until the next stop() is recorded with it",
        )
    line, function = tree.start(found.node, decorators=False)[0], found.function
    if isinstance(found.node, cst.FunctionDef):
        function = tree.function_of(found.node)
    return Candidate(
        kind=found.kind,
        purpose="training" if trains else "inference",
        line=line,
        end_line=tree.end(found.node)[0],
        code=tree.lines[line - 1].strip(),
        function=None if function is None else function.name.value,
        models=models,
        step=step,
        node=found.node,
        sites=tuple(found.sites),
        accumulating=accumulating,
        doubtful=found.in_head,
        notes=notes,
    )


def _caught_outside(tree: Tree, loop: cst.CSTNode) -> int | None:
    """The line of a handler around a loop, in its function, that lets the script go on; None where there is none."""
    below = loop
    for above in tree.above(loop):
        if isinstance(above, cst.FunctionDef):
            return None
        if isinstance(above, cst.Try | cst.TryStar) and below is above.body:
            for handler in above.handlers:
                caught = set() if handler.type is None else {one.value for one in walk(handler.type) if isinstance(one, cst.Name)}
                if caught != {"KeyboardInterrupt"} and not any(isinstance(one, cst.Raise) for one in walk(handler.body)):
                    return tree.start(handler)[0]
        below = above
    return None


def _models(roles: Roles, found: _Found) -> tuple[tuple[str, ...], tuple[str, ...]]:
    names = list(dict.fromkeys(model for site in found.sites for model in site.models))
    notes: tuple[str, ...] = ()
    if not found.sites:
        names = [name for name, why in roles.models.items() if why == "deepspeed" or name in roles.optimized]
        notes = ("no call of a model was found in this loop; the model is the one whose parameters the optimizer has",)
        if found.in_head:
            notes = ("the model is called in the head of this loop, by a generator: no forward pass would be recorded here",)
    elif UNKNOWN in names:
        notes = ("a model that is called there has no name in this place: name it with --model",)
    names = [name for name in names if name != UNKNOWN]
    return tuple(name for name in names if not any(name.startswith((f"{other}.", f"{other}[")) for other in names)), notes


def _steps_now_and_then(tree: Tree, calls: Calls) -> bool:
    for step in calls.direct_steps:
        for above in tree.above(step):
            if isinstance(above, cst.If) and has_modulo(above.test):
                return True
    return False


def _of_trainer(tree: Tree, trainer: Trainer) -> Candidate:
    line = tree.start(trainer.statement)[0]
    function = tree.function_of(trainer.statement)
    return Candidate(
        kind=trainer.kind,
        purpose="training",
        line=line,
        end_line=tree.end(trainer.statement)[0],
        code=tree.lines[line - 1].strip(),
        function=None if function is None else function.name.value,
        models=(),
        step="optimizer step",
        node=trainer.statement,
        trainer=trainer,
        notes=trainer.notes,
    )


def _recommended(made: list[Candidate]) -> list[Candidate]:
    """Of several, the only trainer, else the only place that trains, else the only one at all; none that would record too little."""
    for chosen in (
        [one for one in made if one.trainer is not None],
        [one for one in made if one.purpose == "training" and one.kind == "loop"],
        [one for one in made if one.purpose == "training"],
        made,
    ):
        if len(chosen) == 1 and not chosen[0].doubtful:
            return [replace(one, recommended=True) if one is chosen[0] else one for one in made]
        if chosen:
            return made
    return made


def _is_in(tree: Tree, node: cst.CSTNode, other: cst.CSTNode) -> bool:
    return node is other or any(one is other for one in tree.above(node))
