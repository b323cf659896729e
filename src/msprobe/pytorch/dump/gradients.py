"""Gradients of calls: observers on the autograd graph, shared by APIs and modules.

An observer returns None and raises nothing, so the backward pass is the one it would have been. The record of a call is complete when
all nodes at its edges have fired, or when the backward pass ends.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.encoder import Encoder, Side
from msprobe.pytorch.dump.graph_walk import Boundary, Edge, edges_of, find_boundary, single_node

_NoTorchFunction = torch_internals.NoTorchFunction
_graph_task = torch_internals.graph_task


class Sink(Protocol):
    """Takes what the observers record."""

    def wants(self, name: str) -> bool:
        """Whether a backward entry is recorded."""

    def saves(self, name: str) -> bool:
        """Whether an entry's tensors get files."""

    def count(self, tensors: int) -> None:
        """Add to the number of recorded tensors."""

    def spend(self, seconds: float) -> None:
        """Add to the time that recording took."""

    def add(self, name: str, parent: str | None, data: dict[str, Any], tensors: int, done: bool) -> Any:
        """Put an entry into the dump; gives its handle, for `finish`."""

    def finish(self, entry: Any) -> None:
        """An entry that was added unfinished is final."""


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
        self.closed = False
        self.task = -1
        """The latest backward pass in which a recorded call's gradient came."""
        self._handles: list[tuple[_Call | None, Any]] = []
        self.kept_nodes: list[Any] = []
        """Nodes of leaves that carry an observer: nobody else keeps them until the backward pass."""
        self._makers: dict[int, list[str]] = {}
        """id of a node -> the calls whose output it made; only to name them in a message."""
        self._running: dict[int, list[Callable[[int], None]]] = {}

    def watch(
        self,
        name: str,
        parent: str | None,
        tensors: list[torch.Tensor],
        inputs: list[Edge | None],
        floor: int,
        forced: bool = False,
    ) -> None:
        """Record the gradients of one call from now on.

        Args:
            name: the backward entry's name.
            parent: its parent in construct.json.
            tensors: the outputs that require grad.
            inputs: edges of the inputs that require grad, as they were before the call.
            floor: the thread's sequence number before the call.
            forced: record it whatever `sink.wants` says.
        """
        outputs = edges_of(tensors, lambda reason: self.report(name, reason))
        for edge in outputs:
            if edge is not None:
                self._makers.setdefault(id(edge[0]), []).append(name)
        single = single_node(outputs, inputs, floor)
        if single is not None:
            one = _OneNodeCall(self, name, parent, single.positions, single.outputs, len(outputs), len(inputs))
            one.forced = forced
            self._handles.append((one, single.node.register_hook(one)))
            return
        boundary = find_boundary(outputs, inputs, floor)
        if boundary.views_changed:
            self._tell_cut(name, boundary)
        if boundary.outputs:
            call = _GraphCall(self, name, parent, boundary, len(outputs), len(inputs))
            call.forced = forced
            for node, handle in call.attach(boundary, tensors):
                # A leaf's node outlives the step: nothing of ours may stay on it, whether it fired or not.
                self._handles.append((call if node.next_functions else None, handle))

    def _tell_cut(self, name: str, boundary: Boundary) -> None:
        """A view changed in place: autograd replaced the node that made it, so nobody's gradient can be read there any more."""
        for edge in boundary.slots.keys() - boundary.contributions.keys():
            reason = "a view was changed in place, and autograd keeps no gradient of what it was before"
            self.report(name, reason)
            for maker in self._makers.get(id(edge[0]), ()):
                self.report(maker, f"{reason} (by {name})")

    def at_end(self, task: int, finish: Callable[[int], None]) -> None:
        """Call `finish(task)` when backward pass number `task` ends, or at the latest when the step does."""
        waiting = self._running.get(task)
        if waiting is None:
            waiting = self._running[task] = []
            try:
                torch_internals.at_end_of_backward(lambda: self._end(task))
            except Exception as caught:
                let_through(caught)  # not inside the engine: the end of the step will do
        waiting.append(finish)

    def _end(self, task: int) -> None:
        for finish in self._running.pop(task, ()):
            try:
                with _NoTorchFunction():
                    finish(task)
            except Exception as error:
                let_through(error)
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
        self._makers.clear()
        self.kept_nodes.clear()


class _Call:
    """What both kinds of calls share: the name, the numbers of slots, the passes made so far."""

    __slots__ = ("forced", "inputs", "name", "observers", "outputs", "parent", "passes", "told_late")

    def __init__(self, observers: GradientObservers, name: str, parent: str | None, outputs: int, inputs: int) -> None:
        self.observers = observers
        self.name = name
        self.parent = parent
        self.outputs, self.inputs = outputs, inputs
        self.passes = 0
        self.forced = False
        self.told_late = False

    def entry_name(self) -> str:
        """The name of the running pass: a second one over the same graph gets `.pass1`."""
        return self.name if self.passes == 1 else f"{self.name}.pass{self.passes - 1}"

    def is_late(self) -> bool:
        """Whether the step has ended; told once for each call."""
        if not self.observers.closed:
            return False
        if not self.told_late:
            self.told_late = True
            self.observers.late()
        return True

    def write(self, name: str, received: list[Any], passed_on: list[Any], tensors: int, done: bool = True) -> Any:
        """Put the entry into the dump; gives its handle."""
        observers = self.observers
        data: dict[str, Any] = {}
        if observers.keep_input:
            data["input"] = received
        if observers.keep_output:
            data["output"] = passed_on
        parent = self.parent
        if parent is not None and self.passes > 1:
            parent = f"{parent}.pass{self.passes - 1}"
        return observers.sink.add(name, parent, data, tensors, done)

    def failed(self, error: Exception) -> None:
        """Tell that the gradients could not be recorded."""
        try:
            self.observers.report(self.name, f"gradients could not be recorded: {error!r}")
        except Exception as caught:
            let_through(caught)  # the backward pass is the user's: nothing of ours may end it


class _OneNodeCall(_Call):
    """A call that is one node of the graph, the common case; it is the node's hook itself.

    Args:
        positions: for each distinct input edge, where the node's gradients for it lie, and the slots of the inputs that share it.
        numbers: slot of each output -> the node's output.
    """

    __slots__ = ("numbers", "positions")

    def __init__(
        self,
        observers: GradientObservers,
        name: str,
        parent: str | None,
        positions: list[tuple[list[int], list[int]]],
        numbers: list[tuple[int, int]],
        outputs: int,
        inputs: int,
    ) -> None:
        super().__init__(observers, name, parent, outputs, inputs)
        self.positions = positions
        self.numbers = numbers

    def __call__(self, grad_inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> None:
        try:
            if self.is_late():
                return
            began = perf_counter()
            self.passes += 1
            observers = self.observers
            observers.task = _graph_task()
            sink = observers.sink
            name = self.entry_name()
            if sink.wants(name) or self.forced:
                with _NoTorchFunction():
                    encode = observers.encoder.value
                    side = Side(name, "input", sink.saves(name))
                    received: list[Any] = [None] * self.outputs
                    for slot, number in self.numbers:
                        gradient = grad_outputs[number]
                        if gradient is not None:
                            received[slot] = encode(gradient, (str(slot),), side)
                    side.role = "output"
                    passed_on: list[Any] = [None] * self.inputs
                    for places, slots in self.positions:
                        gradient = grad_inputs[places[0]] if len(places) == 1 else _total([grad_inputs[p] for p in places])
                        if gradient is not None:
                            for slot in slots:
                                passed_on[slot] = encode(gradient, (str(slot),), side)
                    self.write(name, received, passed_on, side.tensors)
            sink.spend(perf_counter() - began)
        except Exception as error:
            let_through(error)
            self.failed(error)


class _GraphCall(_Call):
    """A call that is several nodes of the graph; its gradients are collected over one backward pass at a time.

    Observers are held by their nodes and must not hold nodes, or the graph would never be freed: edges become numbers here.
    """

    __slots__ = (
        "_sums",
        "contributions",
        "dtypes",
        "entry",
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
        self.slots = list(boundary.slots.values())
        self.contributions = [boundary.contributions.get(edge, 0) for edge in boundary.slots]
        self.dtypes = [boundary.dtypes.get(edge) for edge in boundary.slots]
        self.passed_through = boundary.passed_through
        self.input_nodes = len(boundary.places)
        self.nodes = len(boundary.outputs) + self.input_nodes
        self.inputs_left = 0
        self.entry: Any = None
        self.task = -1
        self.left = 0
        self.tensors = 0
        self.received: list[Any] = []
        self.passed_on: list[Any] = []
        self._sums: dict[Any, tuple[list[torch.Tensor], int]] = {}

    def attach(self, boundary: Boundary, leaves: list[torch.Tensor]) -> list[tuple[Any, Any]]:
        """Put the observers on the graph; gives nodes and the handles that remove them.

        Args:
            boundary: of the call.
            leaves: the outputs, of which some may be leaves of the graph.
        """
        numbers = {edge: index for index, edge in enumerate(boundary.slots)}
        inner = {edge: -1 - index for index, edge in enumerate(boundary.inner)}  # negative: outputs that the call itself goes on with
        handles = []
        leaf_nodes = self._leaf_nodes(boundary, leaves)
        for node, outputs in boundary.outputs.items():
            if type(node) is int:  # an output that is a leaf: an input, or something the module keeps
                node = leaf_nodes[node]
            plan = [(slot, number, inner.get((node, number), 0)) for slot, number in outputs]
            handles.append((node, node.register_prehook(_OutputNode(self, plan))))
        for node, places in boundary.places.items():
            targets = [(place.position, inner[place.edge] if place.inner else numbers[place.edge]) for place in places]
            handles.append((node, node.register_hook(_InputNode(self, targets))))
        return handles

    def _leaf_nodes(self, boundary: Boundary, outputs: list[torch.Tensor]) -> dict[int, Any]:
        """Nodes of the outputs that are leaves, by the leaf's id."""
        wanted = {node for node in boundary.outputs if type(node) is int}
        if not wanted:
            return {}
        leaves = {id(tensor): tensor for tensor in outputs if id(tensor) in wanted}
        nodes = dict(zip(leaves, torch_internals.leaf_nodes(list(leaves.values())), strict=True))
        self.observers.kept_nodes.extend(nodes.values())
        return nodes

    def begin(self) -> bool:
        """Called by each observer first; False when nothing is to be recorded."""
        if self.is_late():
            return False
        task = self.observers.task = _graph_task()
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
            self._sums.clear()
            if self.nodes > 1:
                self.observers.at_end(task, self.finish)
        return True

    def record(self, gradient: Any, role: str, slots: list[int]) -> None:
        """Record one gradient in its slots."""
        if gradient is None:
            return
        observers = self.observers
        name = self.entry_name()
        side = Side(name, role, observers.sink.saves(name))
        into = self.received if role == "input" else self.passed_on
        for slot in slots:
            into[slot] = observers.encoder.value(gradient, (str(slot),), side)
        self.tensors += side.tensors

    def contribute(self, edge: int, gradient: Any) -> None:
        """One place's contribution to an input's gradient; the sum is recorded when all places have given theirs.

        Contributions to the call's own outputs (`edge` below zero) are kept until that output's gradient arrives.
        """
        if edge >= 0 and gradient is not None and self.dtypes[edge] not in (None, gradient.dtype):
            with torch.no_grad(), torch_internals.no_dispatch_modes():
                gradient = gradient.to(self.dtypes[edge])
        places = self.contributions[edge] if edge >= 0 else 0
        if places == 1:
            self.record(gradient, "output", self.slots[edge])
            return
        given, count = self._sums.get(edge, ([], 0))
        if gradient is not None:
            given.append(gradient)
        if count + 1 == places:
            self._sums.pop(edge, None)
            self.record(_total(given), "output", self.slots[edge])
        else:
            self._sums[edge] = (given, count + 1)

    def from_outside(self, inner: int, gradient: Any) -> Any:
        """The part of an output's gradient that comes from outside the call, None where nothing does."""
        given, _ = self._sums.pop(inner, ([], 0))
        if not given or gradient is None:
            return gradient
        own = _total(given)
        if own is None or own is gradient or (len(given) == 1 and _same_memory(given[0], gradient)):
            return None if own is not None else gradient
        with torch.no_grad(), torch_internals.no_dispatch_modes():
            return None if torch.equal(own, gradient) else gradient.detach() - own

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
            for edge, (given, _) in list(self._sums.items()):
                if edge >= 0:
                    self.record(_total(given), "output", self.slots[edge])
            self._sums.clear()
            self.left = 0
            self.complete()

    def complete(self) -> None:
        """The entry is final."""
        if self.entry is None:
            self.place()
        self.received, self.passed_on = [], []
        self._sums.clear()
        if self.entry is not False:
            self.observers.sink.count(self.tensors)
            self.observers.sink.finish(self.entry)

    def place(self) -> None:
        """Put the entry into the dump."""
        name = self.entry_name()
        wanted = self.observers.sink.wants(name) or self.forced
        self.entry = self.write(name, self.received, self.passed_on, 0, False) if wanted else False


class _OutputNode:
    """Observer of a node that made one or more of a call's outputs: (slot, number of the node's output, inner edge or 0)."""

    __slots__ = ("call", "outputs")

    def __init__(self, call: _GraphCall, outputs: list[tuple[int, int, int]]) -> None:
        self.call, self.outputs = call, outputs

    def __call__(self, grad_outputs: tuple[Any, ...]) -> None:
        call = self.call
        try:
            began = perf_counter()
            with _NoTorchFunction():
                if call.begin():
                    for slot, number, inner in self.outputs:
                        gradient = grad_outputs[number]
                        through = call.passed_through.get(slot)
                        if through is not None:
                            call.record(gradient, "output", through)
                        if inner:
                            gradient = call.from_outside(inner, gradient)
                        call.record(gradient, "input", [slot])
                    call.fired()
            call.observers.sink.spend(perf_counter() - began)
        except Exception as error:
            let_through(error)
            call.failed(error)


class _InputNode:
    """Observer of a node that leads to one or more of a call's inputs: (position among its gradients, number of the edge)."""

    __slots__ = ("call", "places")

    def __init__(self, call: _GraphCall, places: list[tuple[int, int]]) -> None:
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
            call.observers.sink.spend(perf_counter() - began)
        except Exception as error:
            let_through(error)
            call.failed(error)


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two plain tensors are the same values at the same place."""
    try:
        return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
    except Exception as caught:
        let_through(caught)
        return a is b


def _total(gradients: list[Any]) -> torch.Tensor | None:
    """The sum of the contributions to one gradient."""
    total: torch.Tensor | None = None
    with torch.no_grad(), torch_internals.no_dispatch_modes():
        for gradient in gradients:
            if gradient is not None:
                total = gradient.detach() if total is None else total + gradient.detach()
    return total
