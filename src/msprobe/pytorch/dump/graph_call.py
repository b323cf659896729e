"""The gradients of a call that is several nodes of the graph."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.call_gradients import Call
from msprobe.pytorch.dump.graph_pass import GraphPass
from msprobe.pytorch.dump.graph_walk import Boundary

if TYPE_CHECKING:
    from msprobe.pytorch.dump.gradients import GradientObservers

_NoTorchFunction = torch_internals.NoTorchFunction
_graph_task = torch_internals.graph_task


class GraphCall(Call):
    """A call that is several nodes of the graph; its gradients are collected over each backward pass for itself.

    Observers are held by their nodes and must not hold nodes, or the graph would never be freed: edges become numbers here.
    """

    __slots__ = (
        "contributions",
        "dtypes",
        "gives_view",
        "input_nodes",
        "nodes",
        "passed_through",
        "running",
        "slots",
    )

    def __init__(self, observers: GradientObservers, name: str, parent: str | None, boundary: Boundary, outputs: int, inputs: int) -> None:
        super().__init__(observers, name, parent, outputs, inputs)
        self.slots = boundary.slots
        self.contributions = boundary.contributions
        self.dtypes = boundary.dtypes
        self.passed_through = boundary.passed_through
        self.input_nodes = len(boundary.places)
        self.nodes = len(boundary.outputs) + self.input_nodes
        self.gives_view = any(torch_internals.makes_view(node) for node, _ in boundary.outputs)
        self.running: dict[int, GraphPass] = {}
        """Number of a backward pass -> what has come in it. Several run where a hook of the user's begins one, or other threads do."""

    def attach(self, boundary: Boundary, leaves: list[torch.Tensor]) -> list[tuple[bool, Any]]:
        """Put the observers on the graph; gives the handles that remove them, each with whether its node is a leaf's.

        Args:
            boundary: of the call.
            leaves: the outputs, of which some may be leaves of the graph.
        """
        inner = boundary.inner
        handles = []
        wanted = {node for node, _ in boundary.outputs if type(node) is int}
        leaf_nodes = self.observers._leaf_nodes(wanted, leaves) if wanted else {}
        for node, outputs in boundary.outputs:
            is_leaf = type(node) is int  # an input, or something the module keeps
            plan = [(slot, number, inner.get((node, -1 if is_leaf else number), 0)) for slot, number in outputs]
            if is_leaf:
                node = leaf_nodes[node]
            handles.append((is_leaf, node.register_prehook(_OutputNode(self, plan))))
        for node, places in boundary.places:
            handles.append((False, node.register_hook(_InputNode(self, places))))
        return handles

    def begin(self) -> GraphPass | None:
        """The running pass; called by each observer first. None when nothing is to be recorded."""
        observers = self.observers
        if observers.closed and self.is_late():
            return None
        task = observers.task = _graph_task()
        running = self.running.get(task)
        if running is None:
            running = self.running[task] = GraphPass(self, task)
            if self.nodes > 1:
                observers.at_end(task, self.finish)
        return running

    def finish(self, task: int) -> None:
        """The backward pass is over."""
        running = self.running.get(task)
        if running is not None and running.left:
            running.finish()

    def failed(self, error: Exception) -> None:
        """Tell that the gradients could not be recorded; where no further node can complete the entry, it is complete."""
        super().failed(error)
        if self.nodes > 1:
            return
        try:
            self.finish(_graph_task())
        except Exception as caught:
            let_through(caught)
            super().failed(caught)


class _OutputNode:
    """Observer of a node that made one or more of a call's outputs: (slot, number of the node's output, inner edge or 0)."""

    __slots__ = ("call", "outputs")

    def __init__(self, call: GraphCall, outputs: list[tuple[int, int, int]]) -> None:
        self.call, self.outputs = call, outputs

    def __call__(self, grad_outputs: tuple[Any, ...]) -> None:
        call = self.call
        try:
            began = perf_counter()
            with _NoTorchFunction():
                running = call.begin()
                if running is not None:
                    for slot, number, inner in self.outputs:
                        gradient = grad_outputs[number]
                        if call.passed_through is not None and slot in call.passed_through:
                            running.record(gradient, "output", call.passed_through[slot])
                        if inner:
                            gradient = running.from_outside(inner, gradient)
                        running.record(gradient, "input", [slot])
                    running.fired()
            call.observers.spent += perf_counter() - began
        except Exception as error:
            let_through(error)
            call.failed(error)


class _InputNode:
    """Observer of a node that leads to one or more of a call's inputs: (position among its gradients, number of the edge)."""

    __slots__ = ("call", "places")

    def __init__(self, call: GraphCall, places: list[tuple[int, int]]) -> None:
        self.call, self.places = call, places

    def __call__(self, grad_inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> None:
        call = self.call
        try:
            began = perf_counter()
            with _NoTorchFunction():
                running = call.begin()
                if running is not None:
                    for position, edge in self.places:
                        running.contribute(edge, grad_inputs[position])
                    running.inputs_left -= 1
                    running.fired()
            call.observers.spent += perf_counter() - began
        except Exception as error:
            let_through(error)
            call.failed(error)
