"""Gradients of one call: observers on the nodes of MindSpore's backward graph.

Nothing is put into the forward pass: no node is added, no tensor is replaced, and every observer returns None. Before a call the *edges*
(node, output number) of its inputs are noted; afterwards `graph_walk` finds the call's own nodes, and `call_gradients` observes them.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msprobe.mindspore.dump.call_gradients import CallGradients
from msprobe.mindspore.dump.graph_walk import Edge, walk
from msprobe.mindspore.dump.values import raise_if_pending
from msprobe.mindspore.mindspore_internals import LEAF, has_grad_nodes, node_id, node_of, place_of, sequence_number

if TYPE_CHECKING:
    from msprobe.mindspore.dump.step_record import StepRecord


def _node_of(tensor: Any) -> Any:
    try:
        return node_of(tensor)
    except Exception as error:
        raise_if_pending(tensor, error)
        raise


class Before:
    """What is noted of a call's inputs before it runs.

    Attributes:
        edges: one for each tensor, None for one that no gradient is computed for.
        floor: the call's own nodes have this number or a higher one.
        nodes: keep the ids in `edges` valid.
    """

    __slots__ = ("edges", "floor", "nodes")

    def __init__(self, edges: list[Edge | None], floor: int, nodes: list[Any]) -> None:
        self.edges = edges
        self.floor = floor
        self.nodes = nodes


class GradientObservers:
    """The observers of one step, which holds them; whoever calls them holds the step."""

    def __init__(self, step: StepRecord) -> None:
        self._step = weakref.ref(step)
        self._newest = -1
        """The highest number of a node that has been seen."""
        self._open: dict[CallGradients, None] = {}
        self.enabled = has_grad_nodes and step.selection.sides.backward

    def before(self, tensors: Sequence[Any]) -> Before:
        """Note where the inputs of a call lie in the graph.

        Args:
            tensors: all tensors among its arguments, in order.
        """
        edges: list[Edge | None] = []
        nodes: list[Any] = []
        for tensor in tensors:
            node = _node_of(tensor)
            if node is None:
                edges.append(None)
                continue
            nodes.append(node)
            edges.append((node_id(node), place_of(tensor)))
            self._see(node)
        return Before(edges, self._newest + 1, nodes)

    def after(self, name: str, parent: str | None, before: Before, tensors: Sequence[Any]) -> None:
        """Watch for the gradients of a call that has come to its end.

        Args:
            name, parent: of the backward entry.
            before: of the call.
            tensors: all tensors of its result, in order.
        """
        outputs: list[tuple[int, Any, int]] = []
        for position, tensor in enumerate(tensors):
            node = _node_of(tensor)
            if node is not None:
                self._see(node)
                outputs.append((position, node, place_of(tensor)))
        step = self._step()
        if outputs and step is not None:
            graph = walk(outputs, before.edges, before.floor)
            CallGradients(step, name, parent, before, len(tensors), self._opened).watch(graph)

    def close(self) -> None:
        """The step ends: what came of each call is all there is."""
        for call in list(self._open):
            call.end()

    def _opened(self, call: CallGradients, is_open: bool) -> None:
        if is_open:
            self._open[call] = None
        else:
            self._open.pop(call, None)

    def _see(self, node: Any) -> None:
        number = sequence_number(node)
        if self._newest < number < LEAF:
            self._newest = number
