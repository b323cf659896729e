"""From a place to the edits: where start, stop and step go so that each iteration is recorded whole, whatever way it ends."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from msprobe.instrument.candidates import Candidate
from msprobe.instrument.edits import Edit, Insert, Splice
from msprobe.instrument.header import Names
from msprobe.instrument.sites import Calls
from msprobe.instrument.tree import Statement, Tree, assigned, children, names_in, names_in_target, statements, walk

_ENDS = (cst.Continue, cst.Break, cst.Return, cst.Raise)
_Exit = cst.Continue | cst.Break | cst.Return


@dataclass(frozen=True)
class Region:
    """Statements of one block that are recorded, `first` to `last`, both included."""

    block: cst.BaseSuite | cst.Module
    first: int
    last: int


class Placing:
    """Makes the edits for one candidate."""

    def __init__(self, tree: Tree, calls: Calls, candidate: Candidate, names: Names) -> None:
        self._tree = tree
        self._calls = calls
        self._candidate = candidate
        self._names = names

    def unbound(self, models: Sequence[str]) -> list[str]:
        """Those of the models that have no value, or none yet, where start() will stand."""
        if self._candidate.trainer is not None:
            return []
        region = self._region(models)
        first = statements(region.block)[region.first]
        here, function = self._tree.start(first), self._tree.function_of(first)
        return [model for model in models if not all(self._has_value(name, function, here) for name in names_in(model))]

    def _has_value(self, name: str, function: cst.FunctionDef | None, here: tuple[int, int]) -> bool:
        """Whether a name is bound before a place in this function, or anywhere in the functions around it and the module."""
        inside: cst.FunctionDef | None = function
        while True:
            scope: cst.CSTNode = self._tree.module if inside is None else inside
            if inside is not None and any(parameter.name.value == name for parameter in _parameters(inside)):
                return True
            bound = [node for node in _in_scope(scope) if name in _binds(node)]
            if bound:
                local = inside is function and not any(isinstance(node, cst.Global | cst.Nonlocal) for node in bound)
                return not local or any(self._tree.start(node) < here for node in bound)
            if inside is None:
                return name in dir(builtins) or any(isinstance(node, cst.ImportStar) for node in _in_scope(scope))
            inside = self._tree.function_of(inside)

    def edits(self, models: Sequence[str]) -> list[Edit]:
        """The edits that record the place with these models; none of them: start() without a model."""
        trainer = self._candidate.trainer
        if trainer is not None:
            assert trainer.name is not None
            made = f"{self._names.callback}(debugger={self._names.debugger})"
            how = "add_callback({})" if trainer.kind == "transformers" else "callbacks.append({})"
            return self._after(trainer.statement, [f"{trainer.name}.{how.format(made)}"])
        region = self._region(models)
        inside = statements(region.block)[region.first : region.last + 1]
        given = "" if not models else models[0] if len(models) == 1 else f"[{', '.join(models)}]"
        edits = self._before(inside[0], [f"{self._names.debugger}.start({given})"])
        for leaving in _exits(inside, isinstance(self._candidate.node, cst.FunctionDef)):
            edits += self._leaving(leaving)
        accumulating = self._candidate.accumulating
        if accumulating is not None and accumulating.block is not None:
            edits += self._at_optimizer_step(accumulating.block)
        if not isinstance(inside[-1], _ENDS):
            edits += self._after(inside[-1], self._closing(), order=1)
        return edits

    def _closing(self) -> list[str]:
        stop, step = self._stop_and_step()
        accumulating = self._candidate.accumulating
        if accumulating is not None and accumulating.block is not None:
            return [stop]
        if accumulating is not None and accumulating.accelerator is not None:
            return [stop, f"if {accumulating.accelerator}.sync_gradients: {step}"]
        return [stop, step]

    def _stop_and_step(self) -> tuple[str, str]:
        return f"{self._names.debugger}.stop()", f"{self._names.debugger}.step()"

    def _leaving(self, leaving: _Exit) -> list[Edit]:
        """Recording ends before an iteration is left, and after the value of a `return` that still calls the model is there."""
        ending = list(self._stop_and_step())
        accumulating = self._candidate.accumulating
        if accumulating is not None:
            after = accumulating.after
            if after is None or self._tree.start(leaving) < self._tree.start(after):
                ending = ending[:1]
        if not (isinstance(leaving, cst.Return) and leaving.value is not None and self._works(leaving.value)):
            return self._before(leaving, ending)
        line, column = self._tree.start(leaving)
        keyword = Splice(line, column, column + len("return"), f"{self._names.result} =", self._tree.logical(line)[0])
        return [keyword, *self._after(leaving, [*ending, f"return {self._names.result}"])]

    def _works(self, value: cst.BaseExpression) -> bool:
        """Whether a model, a backward pass or an optimizer runs in an expression."""
        sites: list[cst.CSTNode] = [site.node for site in self._candidate.sites]
        return bool(self._calls.within(value, sites) or self._calls.within(value, self._calls.steps + self._calls.backward))

    def _at_optimizer_step(self, block: cst.BaseSuite) -> list[Edit]:
        inside = statements(block)
        ending = list(self._stop_and_step())
        if not any(True for _ in _exits(inside, False)) and not isinstance(inside[-1], _ENDS):
            return self._after(inside[-1], ending)
        last = [one for one in inside if self._calls.within(one, self._calls.steps)][-1]
        return self._after(last, ending)

    def _region(self, models: Sequence[str]) -> Region:
        node = self._candidate.node
        sites: list[cst.CSTNode] = [site.node for site in self._candidate.sites]
        if self._candidate.kind != "call" and isinstance(node, cst.For | cst.While | cst.FunctionDef):
            block: cst.BaseSuite | cst.Module = node.body
            first = self._first(block, sites, models, isinstance(node, cst.FunctionDef))
            while (inner := self._deeper(block, first, sites, models)) is not None:
                block, first = inner, self._first(inner, sites, models, isinstance(node, cst.FunctionDef))
            return Region(block, first, len(statements(block)) - 1)
        block = next(one for one in self._tree.above(node) if isinstance(one, cst.IndentedBlock | cst.Module | cst.SimpleStatementSuite))
        inside = statements(block)
        first = next(number for number, one in enumerate(inside) if one is node)
        work = sites + self._calls.steps + self._calls.backward
        last = max(number for number, one in enumerate(inside) if number == first or (number > first and self._calls.within(one, work)))
        return Region(block, first, last)

    def _first(self, block: cst.BaseSuite | cst.Module, sites: list[cst.CSTNode], models: Sequence[str], function: bool) -> int:
        """The statement to start before: the first, unless the model gets its value, or the iteration may be left, before it is called."""
        inside = statements(block)
        forward = next((number for number, one in enumerate(inside) if self._calls.within(one, sites)), 0)
        begin = 0
        if function and isinstance(inside[0], cst.Expr) and isinstance(inside[0].value, cst.SimpleString | cst.ConcatenatedString):
            begin = 1
        for number, one in enumerate(inside[:forward]):
            if _rebinds(one, models) or isinstance(one, cst.Global | cst.Nonlocal) or any(True for _ in _exits([one], function)):
                begin = number + 1
        return min(begin, len(inside) - 1)

    def _deeper(
        self, block: cst.BaseSuite | cst.Module, first: int, sites: list[cst.CSTNode], models: Sequence[str]
    ) -> cst.BaseSuite | None:
        """The block inside a statement that gives the model its value itself: `with load() as model:`."""
        for one in statements(block)[first:]:
            if not self._calls.within(one, sites):
                continue
            if not _rebinds(one, models) or isinstance(one, cst.For | cst.While | cst.FunctionDef):
                return None
            for inner in children(one):
                if isinstance(inner, cst.IndentedBlock) and self._calls.within(inner, sites):
                    return inner
            return None
        return None

    def _before(self, node: Statement, code: list[str]) -> list[Edit]:
        line, column = self._tree.start(node)
        if self._tree.logical(line)[0] == line and not self._tree.lines[line - 1][:column].strip(" \t\f"):
            return [Insert(line - 1, self._tree.indent(line), tuple(code), order=2)]
        return [Splice(line, column, column, "; ".join(code) + "; ", self._tree.logical(line)[0])]

    def _after(self, node: cst.CSTNode, code: list[str], order: int = 0) -> list[Edit]:
        line, column = self._tree.end(node)
        parent = self._tree.parent(node)
        if isinstance(parent, cst.SimpleStatementSuite) or (isinstance(parent, cst.SimpleStatementLine) and parent.body[-1] is not node):
            return [Splice(line, column, column, "".join(f"; {one}" for one in code), self._tree.logical(line)[0])]
        first = self._tree.logical(self._tree.start(node)[0])[0]
        return [Insert(self._tree.logical(line)[1], self._tree.indent(first), tuple(code), order)]


def _exits(inside: Sequence[cst.CSTNode], function: bool) -> Iterator[_Exit]:
    """What leaves an iteration (or, with `function`, the function) from these statements: not what only leaves a loop inside."""

    def visit(node: cst.CSTNode, depth: int) -> Iterator[_Exit]:
        if isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Lambda):
            return
        if isinstance(node, cst.Return) or (isinstance(node, cst.Continue | cst.Break) and depth == 0 and not function):
            yield node
        for child in children(node):
            inner = isinstance(node, cst.For | cst.While) and child is node.body
            yield from visit(child, depth + inner)

    for one in inside:
        yield from visit(one, 0)


def _rebinds(node: cst.CSTNode, models: Sequence[str]) -> bool:
    names = set(assigned(node))
    return any(model == name or model.startswith((f"{name}.", f"{name}[")) for model in models for name in names)


def _in_scope(scope: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The nodes of a function, or of a module, that share its names: comprehensions, functions and classes inside have their own."""
    own = cst.FunctionDef | cst.ClassDef | cst.Lambda
    yield from walk(scope, lambda node: node is scope or not isinstance(node, own))


def _binds(node: cst.CSTNode) -> set[str]:
    """Names that a node binds itself, not through what is inside it."""
    if isinstance(node, cst.Global | cst.Nonlocal):
        return {item.name.value for item in node.names}
    if isinstance(node, cst.FunctionDef | cst.ClassDef):
        return {node.name.value}
    if isinstance(node, cst.ExceptHandler):
        return set() if node.name is None else set(names_in_target(node.name.name))
    if isinstance(node, cst.MatchAs | cst.MatchStar):
        return set() if node.name is None else {node.name.value}
    if isinstance(node, cst.For):
        return set(names_in_target(node.target))
    if isinstance(node, cst.BaseSmallStatement | cst.WithItem | cst.FunctionDef | cst.ClassDef | cst.NamedExpr):
        return set(assigned(node))
    return set()


def _parameters(function: cst.FunctionDef) -> list[cst.Param]:
    every = function.params
    extra = [one for one in (every.star_arg, every.star_kwarg) if isinstance(one, cst.Param)]
    return [*every.posonly_params, *every.params, *every.kwonly_params, *extra]
