"""Where models are called, followed through the functions of the file up to the loops around them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from msprobe.instrument.roles import Roles, bound_arguments
from msprobe.instrument.tree import Function, Loop, Tree, assigned, dotted, root_of, walk

_DEEPEST = 8
UNKNOWN = "?"
"""Stands for a model that has no name where it is called from."""


@dataclass(frozen=True)
class Site:
    """A call that runs a model: of the model itself, or of a function of the file that calls it.

    Attributes:
        node: the call.
        function: the function it stands in; None at the top of the file.
        models: how the models are called there; UNKNOWN for one that has no name there.
    """

    node: cst.CSTNode
    function: Function | None
    models: tuple[str, ...]


class Calls:
    """The calls of a script by what they do, functions looked through."""

    def __init__(self, tree: Tree, roles: Roles) -> None:
        self.tree = tree
        self.roles = roles
        self._calls = [node for node in tree.nodes if isinstance(node, cst.Call)]
        self._names: dict[str, list[cst.Name | cst.Attribute]] = defaultdict(list)
        for node in tree.nodes:
            if isinstance(node, cst.Name | cst.Attribute):
                self._names[node.value if isinstance(node, cst.Name) else node.attr.value].append(node)
        self._callers: dict[int, list[cst.CSTNode]] = {}
        self.forward = self._sites()
        self.backward = self._closed([call for call in self._calls if roles.is_backward(call)])
        self.direct_steps: list[cst.CSTNode] = [call for call in self._calls if roles.is_optimizer_step(call)]
        self.all_steps = self._closed(self.direct_steps)
        self.steps = self._closed(self.direct_steps, once=True)
        """Without calls of functions that make several steps: those have loops of their own."""

    def within(self, node: cst.CSTNode, calls: Sequence[cst.CSTNode]) -> list[cst.CSTNode]:
        """Those of `calls` that lie in `node`."""
        return [call for call in calls if call is node or any(one is node for one in self.tree.above(call))]

    def loops_around(self, node: cst.CSTNode, function: Function | None) -> list[Loop]:
        """The loops that repeat a node, innermost first, up to the function that it stands in."""
        found: list[Loop] = []
        below = node
        for one in self.tree.above(node):
            if one is function:
                break
            if isinstance(one, cst.For | cst.While) and below is one.body:
                found.append(one)
            below = one
        return found

    def home(self, node: cst.CSTNode) -> Function | None:
        """The function that a node belongs to. A function made inside a loop belongs to what is around it: a closure for LBFGS."""
        function = self.tree.function_of(node)
        while function is not None and self.loops_around(function, self.tree.function_of(function)):
            function = self.tree.function_of(function)
        return function

    def callers(self, function: Function) -> list[cst.CSTNode]:
        """Places in the file that call a function or give it on, outside of itself."""
        if id(function) not in self._callers:
            self._callers[id(function)] = list(self._find_callers(function))
        return self._callers[id(function)]

    def at_caller(self, site: Site, call: cst.CSTNode) -> Site:
        """The same call of a model, seen from where its function is called."""
        assert site.function is not None
        models = tuple(dict.fromkeys(self._renamed(site.function, call, model) for model in site.models))
        return Site(call, self.home(call), models)

    def reachable(self, site: Site) -> bool:
        """Whether all its models have a name there."""
        return UNKNOWN not in site.models

    def _sites(self) -> list[Site]:
        found = []
        for call in self._calls:
            model = self.roles.model_of(call) or self._itself(call)
            if model is None or self._is_inside_a_model(call):
                continue
            function = self.home(call)
            if self._is_only_defined(call, function):
                continue
            if model == "self" and function is None:
                continue
            inner = self.tree.function_of(call)
            if inner is not function and inner is not None and root_of(model) in _parameters(inner):
                model = UNKNOWN
            found.append(Site(call, function, (model,)))
        return found

    def _itself(self, call: cst.Call) -> str | None:
        """`self` where a model calls itself, in its own training loop."""
        owner = self.tree.class_of(call)
        if dotted(call.func) not in ("self", "self.forward") or owner is None or owner.name.value not in self.roles.module_classes:
            return None
        return "self"

    def _is_only_defined(self, call: cst.Call, function: Function | None) -> bool:
        """Whether the call stands in `name = lambda ...:` outside of all loops: it runs somewhere else."""
        inside = next((one for one in self.tree.above(call) if isinstance(one, cst.Lambda)), None)
        return inside is not None and isinstance(self.tree.parent(inside), cst.Assign) and not self.loops_around(inside, function)

    def _is_inside_a_model(self, call: cst.Call) -> bool:
        """Whether the call is part of a forward pass, or of a trainer that has its own callbacks."""
        owner = self.tree.class_of(call)
        if owner is None:
            return False
        name = owner.name.value
        if name in self.roles.lightning_classes | self.roles.trainer_classes:
            return True
        if name not in self.roles.module_classes:
            return False
        function = self.tree.function_of(call)
        trains: Callable[[cst.CSTNode], bool] = lambda node: (
            isinstance(node, cst.Call) and (self.roles.is_backward(node) or self.roles.is_optimizer_step(node))
        )
        return function is None or not any(trains(node) for node in walk(function))

    def steps_of(self, loop: Loop) -> list[cst.CSTNode]:
        """The optimizer's steps that an iteration of this loop makes, not those of loops inside."""
        return [step for step in self.within(loop.body, self.steps) if self.loops_around(step, self.home(step))[:1] == [loop]]

    def _closed(self, calls: Sequence[cst.CSTNode], once: bool = False) -> list[cst.CSTNode]:
        """The calls, and those of functions in which they are; `once`: unless they stand in a loop there."""
        found: list[cst.CSTNode] = list(calls)
        seen: set[int] = set()
        for _ in range(_DEEPEST):
            more: list[cst.CSTNode] = []
            for call in found:
                function = self.tree.function_of(call)
                if once and self.loops_around(call, function):
                    continue
                if function is not None and id(function) not in seen:
                    seen.add(id(function))
                    more += self.callers(function)
            if not more:
                break
            found += more
        return found

    def _find_callers(self, function: Function) -> Iterator[cst.CSTNode]:
        name = function.name.value
        owner = self.tree.parent(self.tree.parent(function) or function)
        method = isinstance(owner, cst.ClassDef)
        if name in ("__init__", "main") and method:
            return
        for node in self._names[name]:
            if isinstance(node, cst.Attribute) is not method:
                continue
            above = self.tree.parent(node)
            if isinstance(above, cst.FunctionDef | cst.Attribute | cst.Param | cst.AssignTarget | cst.ImportAlias):
                continue
            if any(one is function for one in self.tree.above(node)):
                continue
            if isinstance(above, cst.Arg) and isinstance(self.tree.parent(above), cst.Call) and above.keyword is not node:
                yield self.tree.parent(above) or node
            elif isinstance(above, cst.Call) and above.func is node:
                yield above

    def _renamed(self, function: Function, call: cst.CSTNode, model: str) -> str:
        root = root_of(model)
        rest = model[len(root) :]
        name = dotted(call.func) if isinstance(call, cst.Call) else None
        called_here = name is not None and name.rpartition(".")[2] == function.name.value
        if root in ("self", "cls") and root in _parameters(function):
            base = (name or "").rpartition(".")[0]
            return f"{base}{rest}" if called_here and base else UNKNOWN
        if root in _parameters(function):
            if not isinstance(call, cst.Call) or not called_here:
                return UNKNOWN
            value = bound_arguments(function, call, method="." in (name or "")).get(root)
            given = dotted(value)
            return UNKNOWN if given is None else given + rest
        if model == UNKNOWN or root in _locals(function):
            return UNKNOWN
        return model


def _parameters(function: Function) -> set[str]:
    every = function.params
    return {one.name.value for one in (*every.posonly_params, *every.params, *every.kwonly_params)}


def _locals(function: Function) -> set[str]:
    """Names that a function binds for itself."""
    elsewhere = {item.name.value for node in walk(function.body) if isinstance(node, cst.Global | cst.Nonlocal) for item in node.names}
    return {root_of(name) for name in assigned(function.body) if "." not in name and "[" not in name} - elsewhere
