"""Gradients of calls: observers on the autograd graph, shared by APIs and modules.

An observer returns None and raises nothing, so the backward pass is the one it would have been. The record of a call is complete when
all nodes at its edges have fired, or when the backward pass ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.call_gradients import Call, OneNodeCall
from msprobe.pytorch.dump.encoder import Encoder, Side
from msprobe.pytorch.dump.graph_call import GraphCall
from msprobe.pytorch.dump.graph_walk import Boundary, Edge, SeenEdge, edges_of, trace
from msprobe.pytorch.dump.stale_views import UNKNOWN, UNREAD, StaleView

_NoTorchFunction = torch_internals.NoTorchFunction
_graph_task = torch_internals.graph_task


_CUT = "a view was changed in place, and autograd keeps no gradient of what it was before"
_ELSEWHERE = "the call goes on in what another thread has made, where gradients of inputs are not looked for"
_UNKEPT = "a gradient that autograd does not keep (a view was changed in place)"
_MAX_CHAIN = 50


def _identity(node: Any) -> tuple[Any, ...]:
    """Tells a node from all others of the step that this thread has made.

    Not by its address: that is used again when a graph is freed, and torch 2.6 makes another object of the same node each time it is asked.
    Leaves alone have no number.
    """
    if type(node) is int:
        return (node, -1)
    if type(node) is torch_internals.LeafNode:
        return (id(node), -1)
    return (threading.get_ident(), type(node), node._sequence_nr())


def _views_from(node: Any, kept: set[Any]) -> Iterator[Any]:
    """A node, and those below it that only make views, down to the tensor that owns the memory: autograd replaces them all together.

    Args:
        node: what made the view that was changed.
        kept: nodes that are still in the graph.
    """
    yield node
    for _ in range(_MAX_CHAIN):
        if type(node) is int or not torch_internals.makes_view(node):
            return
        node = node.next_functions[0][0]
        if node is None or node in kept or not torch_internals.makes_view(node):
            return
        yield node


def _kept_by_change(outputs: list[Edge | None]) -> set[Any]:
    """The nodes right behind the one that stands for the change: what the memory's owner was made by is still in the graph."""
    node = next((edge[0] for edge in outputs if edge is not None and type(edge[0]) is not int), None)
    for _ in range(_MAX_CHAIN):
        if node is None or not node.next_functions:
            return set()
        following = [behind for behind, _ in node.next_functions]
        if type(node).__name__ == "CopySlices":
            return set(following)
        node = following[0]
    return set()


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
        late: called once for each call whose backward pass came after the step had ended, with the name of its entry.
        keep_input, keep_output: which sides of a backward entry are kept.
        takes_all: the sink wants every entry; it need not be asked.
        saving: the sink may want files for some; else it need not be asked.
    """

    def __init__(
        self,
        encoder: Encoder,
        sink: Sink,
        report: Callable[[str, str], None],
        late: Callable[[str], None],
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
        self._cut: set[str] = set()
        self._makers: dict[tuple[Any, ...], tuple[str, ...]] = {}
        """Identity of a node -> the calls whose output it made; only to name them in a message."""
        self._running: dict[int, list[Callable[[int], None]]] = {}

    def watch(
        self,
        name: str,
        parent: str | None,
        tensors: list[torch.Tensor],
        inputs: list[SeenEdge],
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
        known = self._settled(name, inputs, "output")
        outputs = self._settled(name, edges_of(tensors, lambda reason: self.report(name, reason)), "input")
        makers = self._makers
        for edge in outputs:
            if edge is not None:
                key = _identity(edge[0])
                makers[key] = (*makers[key], name) if key in makers else (name,)
        found = trace(outputs, known, floor)
        if len(found) == 3:
            node, numbers, positions = found
            one = OneNodeCall(self, name, parent, positions, numbers, len(outputs), len(inputs))
            self._handles.append((one, node.register_hook(one)))
            return
        boundary = Boundary(*found)
        if boundary.views_changed:
            self._tell_cut(name, outputs, known, boundary.slots, boundary.contributions)
        if boundary.ends_elsewhere:
            self._tell_elsewhere(name, boundary.slots, boundary.contributions, boundary.passed_through)
        if boundary.outputs:
            call = GraphCall(self, name, parent, boundary, len(outputs), len(inputs))
            for is_leaf, handle in call.attach(boundary, tensors):
                # A leaf's node outlives the step: nothing of ours may stay on it, whether it fired or not.
                self._handles.append((None if is_leaf else call, handle))

    def _settled(self, name: str, edges: list[SeenEdge], role: str) -> list[Edge | None]:
        """The edges as they are after the call; what cannot be followed is told.

        Args:
            name: the backward entry's name.
            edges: of the call's inputs or outputs.
            role: where their gradients stand in the entry.
        """
        settled: list[Edge | None] = []
        for slot, seen in enumerate(edges):
            if not isinstance(seen, StaleView):
                settled.append(seen)
                continue
            with _NoTorchFunction():
                edge, may_come = seen.settle()
            settled.append(edge)
            if edge is None and (may_come or role == "input"):
                self.report(name, f"{role} {slot}: {UNKNOWN}")
                self.encoder.unread((str(slot),), Side(name, role, False), UNREAD)
        return settled

    def changed(self, name: str, tensor: torch.Tensor, inputs: list[SeenEdge], floor: int) -> None:
        """A call that gives nothing has changed a tensor in place (`x[0] = y`): tell whose gradients can no longer be read.

        Args:
            name: the backward entry that the call would have.
            tensor: what was changed.
            inputs, floor: as in `watch`.
        """
        if torch_internals.is_stale_view(tensor):
            tensor = torch_internals.base_of_view(tensor)  # its node stands for the change, and is there
        outputs = [None if isinstance(edge, StaleView) else edge for edge in edges_of([tensor], lambda reason: self.report(name, reason))]
        known = [None if isinstance(edge, StaleView) else edge for edge in inputs]
        found = trace(outputs, known, floor)
        if len(found) != 3 and Boundary(*found).views_changed:
            self._tell_cut(name, outputs, known, found[2], found[3], gives=False)

    def _makers_of(self, identity: tuple[Any, ...]) -> Sequence[str]:
        """Names of the calls whose output a node made."""
        return self._makers.get(identity, ())

    def _leaf_nodes(self, wanted: set[int], outputs: list[torch.Tensor]) -> dict[int, Any]:
        """Nodes of the outputs that are leaves, by the leaf's id."""
        leaves = {id(tensor): tensor for tensor in outputs if id(tensor) in wanted}
        nodes = dict(zip(leaves, torch_internals.leaf_nodes(list(leaves.values())), strict=True))
        self.kept_nodes.extend(nodes.values())
        return nodes

    def _tell_cut(
        self,
        name: str,
        outputs: list[Edge | None],
        inputs: list[Edge | None],
        all_slots: list[list[int]],
        all_contributions: list[int],
        gives: bool = True,
    ) -> None:
        """A view changed in place: autograd replaced the node that made it, so nobody's gradient can be read there any more."""
        kept = _kept_by_change(outputs)
        for slots, contributions in zip(all_slots, all_contributions, strict=True):
            edge = inputs[slots[0]]
            if contributions or edge is None:
                continue
            if gives:
                self.report_cut(name)
                side = Side(name, "output", False)
                for slot in slots:
                    self.encoder.unread((str(slot),), side, _UNKEPT)
            for node in _views_from(edge[0], kept):
                for maker in self._makers_of(_identity(node)):
                    self.report_cut(maker, name)

    def _tell_elsewhere(
        self, name: str, all_slots: list[list[int]], all_contributions: list[int], passed_through: dict[int, list[int]] | None
    ) -> None:
        """The walk has ended at nodes of another thread: tell it where that may be why an input was not reached."""
        through = list((passed_through or {}).values())
        for slots, contributions in zip(all_slots, all_contributions, strict=True):
            if not contributions and slots not in through:
                self.report(name, f"output {slots[0]}: {_ELSEWHERE}")
                side = Side(name, "output", False)
                for slot in slots:
                    self.encoder.unread((str(slot),), side, _ELSEWHERE)

    def report_cut(self, name: str, by: str = "") -> None:
        """Tell, once for each call, that a gradient cannot be read because a view was changed in place."""
        if name not in self._cut:
            self._cut.add(name)
            self.report(name, f"{_CUT} (by {by})" if by else _CUT)

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
