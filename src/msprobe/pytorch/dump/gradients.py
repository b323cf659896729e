"""Gradients of calls: observers on the autograd graph, shared by APIs and modules.

An observer returns None and raises nothing, so the backward pass is the one it would have been. The record of a call is complete when
all nodes at its edges have fired, or when the backward pass ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.call_gradients import Call, OneNodeCall
from msprobe.pytorch.dump.encoder import Encoder
from msprobe.pytorch.dump.graph_call import GraphCall
from msprobe.pytorch.dump.graph_walk import Boundary, Edge, edges_of, trace

_NoTorchFunction = torch_internals.NoTorchFunction
_graph_task = torch_internals.graph_task


class Sink(Protocol):
    """Takes what the observers record."""

    def wants(self, name: str, parent: str | None = None) -> bool:
        """Whether a backward entry is recorded."""

    def saves(self, name: str) -> bool:
        """Whether an entry's tensors get files."""

    def count(self, tensors: int) -> None:
        """Add to the number of recorded tensors."""

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
        takes_all: the sink wants every entry; it need not be asked.
        saving: the sink may want files for some; else it need not be asked.
    """

    def __init__(
        self,
        encoder: Encoder,
        sink: Sink,
        report: Callable[[str, str], None],
        late: Callable[[], None],
        keep_input: bool = True,
        keep_output: bool = True,
        takes_all: bool = False,
        saving: bool = True,
    ) -> None:
        self.encoder = encoder
        self.sink = sink
        self.report = report
        self.late = late
        self.keep_input, self.keep_output = keep_input, keep_output
        self.takes_all, self.saving = takes_all, saving
        self.spent = 0.0
        """Seconds that recording took in backward passes."""
        self.closed = False
        self.task = -1
        """The latest backward pass in which a recorded call's gradient came."""
        self._handles: list[tuple[Call | None, Any]] = []
        self.kept_nodes: list[Any] = []
        """Nodes of leaves that carry an observer: nobody else keeps them until the backward pass."""
        self._makers: dict[int, tuple[str, ...]] = {}
        """id of a node -> the calls whose output it made; only to name them in a message."""
        self._running: dict[int, list[Callable[[int], None]]] = {}

    def watch(
        self,
        name: str,
        parent: str | None,
        tensors: list[torch.Tensor],
        inputs: list[Edge | None],
        floor: int,
    ) -> None:
        """Record the gradients of one call from now on.

        Args:
            name: the backward entry's name.
            parent: its parent in construct.json.
            tensors: the outputs that require grad.
            inputs: edges of the inputs that require grad, as they were before the call.
            floor: the thread's sequence number before the call.
        """
        outputs = edges_of(tensors, lambda reason: self.report(name, reason))
        makers = self._makers
        for edge in outputs:
            if edge is not None:
                key = id(edge[0])
                makers[key] = (*makers[key], name) if key in makers else (name,)
        found = trace(outputs, inputs, floor)
        if len(found) == 3:
            node, numbers, positions = found
            one = OneNodeCall(self, name, parent, positions, numbers, len(outputs), len(inputs))
            self._handles.append((one, node.register_hook(one)))
            return
        boundary = Boundary(*found)
        if boundary.views_changed:
            self._tell_cut(name, inputs, boundary)
        if boundary.outputs:
            call = GraphCall(self, name, parent, boundary, len(outputs), len(inputs))
            for is_leaf, handle in call.attach(boundary, tensors):
                # A leaf's node outlives the step: nothing of ours may stay on it, whether it fired or not.
                self._handles.append((None if is_leaf else call, handle))

    def _tell_cut(self, name: str, inputs: list[Edge | None], boundary: Boundary) -> None:
        """A view changed in place: autograd replaced the node that made it, so nobody's gradient can be read there any more."""
        for slots, contributions in zip(boundary.slots, boundary.contributions, strict=True):
            edge = inputs[slots[0]]
            if contributions or edge is None:
                continue
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
