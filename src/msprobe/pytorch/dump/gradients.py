"""Gradients of calls: observers on the autograd graph, shared by APIs and modules.

An observer returns None and raises nothing, so the backward pass is the one it would have been (see docs/architecture.md). The record of a
call is complete when all nodes at its edges have fired, or when the backward pass ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.encoder import Encoder, Side
from msprobe.pytorch.dump.graph_walk import Boundary, Edge, LeafEdges, find_boundary

_NoTorchFunction = torch_internals.NoTorchFunction


class Sink(Protocol):
    """Takes what the observers record."""

    def wants(self, name: str) -> bool:
        """Whether a backward entry is recorded."""

    def saves(self, name: str) -> bool:
        """Whether an entry's tensors get files."""

    def count(self, tensors: int) -> None:
        """Add to the number of recorded tensors."""

    def add(self, name: str, parent: str | None, data: dict[str, Any], tensors: int, done: bool) -> Any:
        """Put an entry into the dump; gives its handle, whose `done` may be set later."""


class GradientObservers:
    """All observers of one step.

    Args:
        encoder: makes the records.
        sink: takes the entries.
        report: `report(entry, reason)` for what could not be recorded.
        late: called once for each call whose backward pass came after the step had ended.
        keep_input, keep_output: which sides of a backward entry are kept.
    """

    def __init__(
        self,
        encoder: Encoder,
        sink: Sink,
        report: Callable[[str, str], None],
        late: Callable[[], None],
        keep_input: bool = True,
        keep_output: bool = True,
    ) -> None:
        self.encoder = encoder
        self.sink = sink
        self.report = report
        self.late = late
        self.keep_input, self.keep_output = keep_input, keep_output
        self.leaves = LeafEdges()
        self.closed = False
        self._handles: list[tuple[_CallGradients | None, Any]] = []
        self._running: dict[int, list[Callable[[int], None]]] = {}

    def watch(self, name: str, parent: str | None, outputs: list[Edge | None], inputs: list[Edge | None], floor: int) -> None:
        """Record the gradients of one call from now on.

        Args:
            name: the backward entry's name.
            parent: its parent in construct.json.
            outputs, inputs: edges of the tensors that require grad; `inputs` as they were before the call.
            floor: the thread's sequence number before the call.
        """
        boundary = find_boundary(outputs, inputs, floor)
        if not boundary.outputs:
            return
        call = _CallGradients(self, name, parent, boundary, len(outputs), len(inputs))
        handles = self._handles
        for node, handle in call.attach():
            # A leaf's node outlives the step: nothing of ours may stay on it, whether it fired or not.
            handles.append((None if not node.next_functions else call, handle))

    def at_end(self, task: int, finish: Callable[[int], None]) -> None:
        """Call `finish(task)` when backward pass number `task` ends, or at the latest when the step does."""
        waiting = self._running.get(task)
        if waiting is None:
            waiting = self._running[task] = []
            try:
                torch_internals.at_end_of_backward(lambda: self._end(task))
            except Exception:
                pass  # not inside the engine: the end of the step will do
        waiting.append(finish)

    def _end(self, task: int) -> None:
        for finish in self._running.pop(task, ()):
            try:
                with _NoTorchFunction():
                    finish(task)
            except Exception as error:
                self.report("backward", f"could not be finished: {error!r}")

    def close(self) -> None:
        """End the step: finish what is open and take the observers off; those that never fired only count from now on."""
        for task in list(self._running):
            self._end(task)
        self.closed = True
        for call, handle in self._handles:
            if call is None or call.passes:
                handle.remove()
        self._handles.clear()
        self.leaves.clear()


class _CallGradients:
    """Gradients of one call, collected over one backward pass at a time."""

    __slots__ = ("_sums", "boundary", "data", "entry", "left", "name", "observers", "parent", "passes", "sides", "sizes", "task", "told_late")

    def __init__(self, observers: GradientObservers, name: str, parent: str | None, boundary: Boundary, outputs: int, inputs: int) -> None:
        self.observers = observers
        self.name = name
        self.parent = parent
        self.boundary = boundary
        self.sizes = (outputs, inputs)
        self.passes = 0
        self.task = -1
        self.data: dict[str, list[Any]] = {}
        self.entry: Any = None
        self.left = 0
        self.told_late = False
        self._sums: dict[Edge, tuple[torch.Tensor, int]] = {}

    def attach(self) -> list[tuple[Any, Any]]:
        """Put the observers on the graph."""
        boundary = self.boundary
        handles = []
        if len(boundary.outputs) == 1 and len(boundary.inputs) == 1 and not boundary.passed_through:
            node = next(iter(boundary.outputs))
            # A user-written backward may change the gradients it is given in place: those are read before it runs.
            if node in boundary.inputs and not isinstance(node, torch_internals.PythonNode):
                handles.append((node, node.register_hook(_OneNode(self, boundary.outputs[node], boundary.inputs[node]))))
                self._forget_nodes()
                return handles
        for node, outputs in boundary.outputs.items():
            handles.append((node, node.register_prehook(_OutputNode(self, outputs))))
        for node, inputs in boundary.inputs.items():
            handles.append((node, node.register_hook(_InputNode(self, inputs))))
        self._forget_nodes()
        return handles

    def _forget_nodes(self) -> None:
        """Observers are held by their nodes: they must not hold nodes, or the graph would never be freed."""
        boundary = self.boundary
        numbers = {edge: (index, 0) for index, edge in enumerate(boundary.slots)}
        self.boundary = Boundary(
            outputs={index: [] for index in range(len(boundary.outputs))},
            inputs={index: [] for index in range(len(boundary.inputs))},
            slots={numbers[edge]: slots for edge, slots in boundary.slots.items()},
            contributions={numbers[edge]: count for edge, count in boundary.contributions.items()},
            passed_through=boundary.passed_through,
        )
        for places in list(boundary.inputs.values()):
            places[:] = [(position, numbers[edge]) for position, edge in places]

    def begin(self) -> bool:
        """Called by each observer first; False when nothing is to be recorded."""
        observers = self.observers
        if observers.closed:
            if not self.told_late:
                self.told_late = True
                observers.late()
            return False
        task = torch_internals.graph_task()
        if task != self.task or self.left == 0:
            if self.left:
                self.finish(self.task)
            self.task = task
            self.passes += 1
            self.left = len(self.boundary.outputs) + len(self.boundary.inputs)
            self.data = {"input": [None] * self.sizes[0], "output": [None] * self.sizes[1]}
            self.entry = None
            self._sums.clear()
        return True

    def entry_name(self) -> str:
        """The name of the running pass: a second one over the same graph gets `.pass1`."""
        return self.name if self.passes == 1 else f"{self.name}.pass{self.passes - 1}"

    def record(self, gradient: torch.Tensor | None, role: str, slot: int) -> None:
        """Record one gradient in its slot."""
        if gradient is None or not isinstance(gradient, torch.Tensor):
            return
        observers = self.observers
        name = self.entry_name()
        side = Side(name, role, observers.sink.saves(name))
        self.data[role][slot] = observers.encoder.value(gradient, (str(slot),), side)

    def contribute(self, edge: Edge, gradient: torch.Tensor | None) -> None:
        """One place's contribution to an input's gradient; the sum is recorded when all places have given theirs."""
        slots, places = self.boundary.slots[edge], self.boundary.contributions[edge]
        if places == 1:
            for slot in slots:
                self.record(gradient, "output", slot)
            return
        total, given = self._sums.get(edge, (None, 0))
        if gradient is not None:
            with torch.no_grad():
                total = gradient.detach() if total is None else total + gradient.detach()
        given += 1
        if given == places:
            self._sums.pop(edge, None)
            for slot in slots:
                self.record(total, "output", slot)
        else:
            self._sums[edge] = (total, given)  # type: ignore[assignment]

    def fired(self) -> None:
        """One node is through; the last one completes the entry."""
        self.left -= 1
        if self.left == 0:
            self.write()
        elif self.left == len(self.boundary.outputs) + len(self.boundary.inputs) - 1:
            self.observers.at_end(self.task, self.finish)

    def finish(self, task: int) -> None:
        """The backward pass is over: what has not come does not come."""
        if self.left and task == self.task:
            for edge, (total, _) in list(self._sums.items()):
                for slot in self.boundary.slots[edge]:
                    self.record(total, "output", slot)
            self._sums.clear()
            self.left = 0
            self.write()

    def write(self) -> None:
        """Put the entry into the dump."""
        observers = self.observers
        name = self.entry_name()
        if not observers.sink.wants(name):
            return
        data = self.data
        self.data = {}
        if not observers.keep_input:
            del data["input"]
        if not observers.keep_output:
            del data["output"]
        tensors = sum(1 for side in data.values() for record in side if record is not None)
        observers.sink.add(name, self.parent, data, tensors, True)


class _OneNode:
    """Observer of a call that is a single node of the graph: the common case."""

    __slots__ = ("call", "inputs", "outputs")

    def __init__(self, call: _CallGradients, outputs: list[tuple[int, int]], inputs: list[tuple[int, Edge]]) -> None:
        self.call, self.outputs, self.inputs = call, outputs, inputs

    def __call__(self, grad_inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> None:
        call = self.call
        try:
            with _NoTorchFunction():
                call.left = 0
                if call.begin():
                    for slot, number in self.outputs:
                        call.record(grad_outputs[number], "input", slot)
                    for position, edge in self.inputs:
                        call.contribute(edge, grad_inputs[position])
                    call.left = 0
                    call.write()
        except Exception as error:
            call.observers.report(call.name, f"gradients could not be recorded: {error!r}")


class _OutputNode:
    """Observer of a node that made one or more of the call's outputs."""

    __slots__ = ("call", "outputs")

    def __init__(self, call: _CallGradients, outputs: list[tuple[int, int]]) -> None:
        self.call, self.outputs = call, outputs

    def __call__(self, grad_outputs: tuple[Any, ...]) -> None:
        call = self.call
        try:
            with _NoTorchFunction():
                if call.begin():
                    for slot, number in self.outputs:
                        call.record(grad_outputs[number], "input", slot)
                        for through in call.boundary.passed_through.get(slot, ()):
                            call.record(grad_outputs[number], "output", through)
                    call.fired()
        except Exception as error:
            call.observers.report(call.name, f"gradients could not be recorded: {error!r}")


class _InputNode:
    """Observer of a node that leads to one or more of the call's inputs."""

    __slots__ = ("call", "inputs")

    def __init__(self, call: _CallGradients, inputs: list[tuple[int, Edge]]) -> None:
        self.call, self.inputs = call, inputs

    def __call__(self, grad_inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> None:
        call = self.call
        try:
            with _NoTorchFunction():
                if call.begin():
                    for position, edge in self.inputs:
                        call.contribute(edge, grad_inputs[position])
                    call.fired()
        except Exception as error:
            call.observers.report(call.name, f"gradients could not be recorded: {error!r}")
