"""The gradients of a call that is several nodes of the graph."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.call_gradients import Call, total
from msprobe.pytorch.dump.encoder import Side
from msprobe.pytorch.dump.graph_walk import Boundary

if TYPE_CHECKING:
    from msprobe.pytorch.dump.gradients import GradientObservers

_NoTorchFunction = torch_internals.NoTorchFunction
_graph_task = torch_internals.graph_task


class GraphCall(Call):
    """A call that is several nodes of the graph; its gradients are collected over one backward pass at a time.

    Observers are held by their nodes and must not hold nodes, or the graph would never be freed: edges become numbers here.
    """

    __slots__ = (
        "_sums",
        "contributions",
        "dtypes",
        "entry",
        "gives_view",
        "input_nodes",
        "inputs_left",
        "left",
        "nodes",
        "passed_on",
        "passed_through",
        "received",
        "slots",
        "task",
        "tensors",
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
        self.inputs_left = 0
        self.entry: Any = None
        self.task = -1
        self.left = 0
        self.tensors = 0
        self.received: list[Any] = []
        self.passed_on: list[Any] = []
        self._sums: dict[Any, tuple[list[torch.Tensor], int]] = {}

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

    def begin(self) -> bool:
        """Called by each observer first; False when nothing is to be recorded."""
        observers = self.observers
        if observers.closed and self.is_late():
            return False
        task = observers.task = _graph_task()
        if task != self.task or self.left == 0:
            if self.left:
                self.finish(self.task)
            self.task = task
            self.passes += 1
            self.left = self.nodes
            self.inputs_left = self.input_nodes
            self.entry = None
            self.tensors = 0
            self.received = [None] * self.outputs
            self.passed_on = [None] * self.inputs
            if self._sums:
                self._sums.clear()
            if self.nodes > 1:
                observers.at_end(task, self.finish)
        return True

    def record(self, gradient: Any, role: str, slots: list[int]) -> None:
        """Record one gradient in its slots."""
        if gradient is None:
            return
        observers = self.observers
        name = self.name if self.passes == 1 else self.entry_name()
        side = Side(name, role, observers.saving and observers.sink.saves(name))
        into = self.received if role == "input" else self.passed_on
        for slot in slots:
            into[slot] = observers.encoder.gradient(gradient, slot, side)
        self.tensors += side.tensors

    def contribute(self, edge: int, gradient: Any) -> None:
        """One place's contribution to an input's gradient; the sum is recorded when all places have given theirs.

        Contributions to the call's own outputs (`edge` below zero) are kept until that output's gradient arrives.
        """
        if self.dtypes is not None and gradient is not None and edge in self.dtypes:
            gradient = in_dtype(gradient, self.dtypes[edge])
        places = self.contributions[edge] if edge >= 0 else 0
        if places == 1:
            self.record(gradient, "output", self.slots[edge])
            return
        given, count = self._sums.get(edge, ([], 0))
        if gradient is not None:
            given.append(gradient)
        if count + 1 == places:
            self._sums.pop(edge, None)
            self.record(total(given), "output", self.slots[edge])
        else:
            self._sums[edge] = (given, count + 1)

    def from_outside(self, inner: int, gradient: Any) -> Any:
        """The part of an output's gradient that comes from outside the call, None where nothing does."""
        given, _ = self._sums.pop(inner, ([], 0))
        return part_from_outside(given, gradient) if given and gradient is not None else gradient

    def fired(self) -> None:
        """One node is through; the last one completes the entry.

        When all nodes at the inputs are through, the entry takes its place in the dump: outputs that still lack a gradient mostly get none.
        """
        self.left -= 1
        if self.left == 0:
            self.complete()
        elif self.input_nodes and self.inputs_left == 0 and self.entry is None:
            self.place()

    def finish(self, task: int) -> None:
        """The backward pass is over: what has not come does not come."""
        if self.left and task == self.task:
            sums = list(self._sums.items())
            self._sums.clear()  # first: what cannot be summed must not keep later passes from being recorded
            for edge, (given, _) in sums:
                if edge >= 0:
                    self.record(total(given), "output", self.slots[edge])
            self.left = 0
            self.complete()

    def complete(self) -> None:
        """The entry is final."""
        if self.entry is None:
            self.place()
        if self.gives_view and not any(self.received) and any(self.passed_on):
            self.observers.report_cut(self.name)  # gradients went through the call, and none came by its output
        self.received, self.passed_on = [], []
        if self._sums:
            self._sums.clear()
        if self.entry is not False:
            self.observers.sink.count(self.tensors)
            self.observers.sink.finish(self.entry)

    def place(self) -> None:
        """Put the entry into the dump."""
        name = self.entry_name()
        wanted = self.observers.takes_all or self.observers.sink.wants(name, self.parent)
        self.entry = self.write(name, self.received, self.passed_on, 0, False) if wanted else False


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
                if call.begin():
                    for slot, number, inner in self.outputs:
                        gradient = grad_outputs[number]
                        if call.passed_through is not None and slot in call.passed_through:
                            call.record(gradient, "output", call.passed_through[slot])
                        if inner:
                            gradient = call.from_outside(inner, gradient)
                        call.record(gradient, "input", [slot])
                    call.fired()
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
                if call.begin():
                    for position, edge in self.places:
                        call.contribute(edge, grad_inputs[position])
                    call.inputs_left -= 1
                    call.fired()
            call.observers.spent += perf_counter() - began
        except Exception as error:
            let_through(error)
            call.failed(error)


def in_dtype(gradient: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A gradient as the input has it, where it arrives in another dtype."""
    if gradient.dtype is dtype:
        return gradient
    with torch.no_grad(), torch_internals.no_dispatch_modes():
        return gradient.to(dtype)


def part_from_outside(inside: list[torch.Tensor], gradient: torch.Tensor) -> torch.Tensor | None:
    """What is left of a gradient without the contributions that came from inside the call; None where nothing is."""
    own = total(inside)
    if own is None or own is gradient or (len(inside) == 1 and _same_memory(inside[0], gradient)):
        return None if own is not None else gradient
    with torch.no_grad(), torch_internals.no_dispatch_modes():
        return None if torch.equal(own, gradient) else gradient.detach() - own


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two plain tensors are the same values at the same place."""
    try:
        return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
    except Exception as caught:
        let_through(caught)
        return a is b
