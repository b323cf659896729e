"""Where in the autograd graph a call's inputs and outputs lie.

An *edge* is `(node, number)`: the place where the gradient of one tensor arrives. Only the graph is read; nothing is put into it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals

Edge = tuple[Any, int]
"""(node, number of its output); for a leaf (id of the tensor, -1): its node is not made before somebody needs it."""
_LeafNode = torch_internals.LeafNode


def edges_of(tensors: list[torch.Tensor], report: Callable[[str], None]) -> list[Edge | None]:
    """The edge of each tensor; None, and `report(reason)`, where reading it fails (a view whose base was changed as autograd forbids)."""
    edges: list[Edge | None] = []
    for tensor in tensors:
        try:
            node = tensor.grad_fn
            edges.append((id(tensor), -1) if node is None else (node, tensor.output_nr))
        except Exception as error:
            let_through(error)
            edges.append(None)
            report(f"the gradient of a tensor cannot be followed: {error!r}")
    return edges


def _edge_behind(following: Edge) -> Edge:
    """An entry of `next_functions` as an edge."""
    if type(following[0]) is _LeafNode:
        return id(following[0].variable), -1
    return following


class SingleNode(NamedTuple):
    """A call that made exactly one node.

    Attributes:
        node: the node.
        outputs: pairs (slot of the output, number of the node's output).
        positions: for each distinct input edge, its positions in `next_functions` and the slots of the inputs that share it.
    """

    node: Any
    outputs: list[tuple[int, int]]
    positions: list[tuple[list[int], list[int]]]


def single_node(outputs: list[Edge | None], inputs: list[Edge | None], floor: int) -> SingleNode | None:
    """The one node that leads from all inputs to all outputs, None where the call is anything else; arguments as in `find_boundary`."""
    first = outputs[0]
    if first is None:
        return None
    node = first[0]
    if type(node) is int:
        return None
    # A user-written backward may change the gradients it is given in place: those must be read before it runs.
    if isinstance(node, torch_internals.PythonNode):
        return None
    numbers = []
    for slot, edge in enumerate(outputs):
        if edge is None or edge[0] is not node:
            return None
        numbers.append((slot, edge[1]))
    slots: dict[Edge, tuple[list[int], list[int]]] = {}
    for slot, edge in enumerate(inputs):
        if edge is None:
            continue
        if edge[0] is node:
            return None
        known = slots.get(edge)
        if known is None:
            slots[edge] = ([], [slot])
        else:
            known[1].append(slot)
    for position, edge in enumerate(node.next_functions):
        following = edge[0]
        if following is None:
            continue
        known = slots.get(edge)
        if known is None:
            if type(following) is _LeafNode:
                known = slots.get((id(following.variable), -1))
            elif following._sequence_nr() >= floor:
                return None
        if known is not None:
            known[0].append(position)
    if not all(known[0] for known in slots.values()):
        return None  # an input that is reached another way, or not at all: the walk tells
    return SingleNode(node, numbers, list(slots.values()))


class Place(NamedTuple):
    """Where a contribution to a gradient comes from.

    Attributes:
        position: in the `next_functions` of a node, and so among its gradients.
        edge: the edge it leads to.
        inner: True where the edge is an output of the call itself: what flows there comes from inside the call.
    """

    position: int
    edge: Edge
    inner: bool


@dataclass
class Boundary:
    """The part of the graph that one call made.

    Attributes:
        outputs: node -> pairs (slot of the output, number of the node's output).
        places: node -> the places on it whose gradients are wanted.
        slots: edge of an input -> the slots of the inputs that share it.
        contributions: edge of an input -> how many places lead to it.
        inner: edge of an output -> how many places inside the call lead to it.
        passed_through: slots of outputs that are an input itself -> the input's slots.
        dtypes: edge of an input -> its dtype, where contributions arrive in another one.
        views_changed: a view was changed in place inside the call: autograd has cut the gradient of what the view was before.
    """

    outputs: dict[Any, list[tuple[int, int]]] = field(default_factory=dict)
    places: dict[Any, list[Place]] = field(default_factory=dict)
    slots: dict[Edge, list[int]] = field(default_factory=dict)
    contributions: dict[Edge, int] = field(default_factory=dict)
    inner: dict[Edge, int] = field(default_factory=dict)
    passed_through: dict[int, list[int]] = field(default_factory=dict)
    dtypes: dict[Edge, torch.dtype] = field(default_factory=dict)
    views_changed: bool = False


def find_boundary(outputs: list[Edge | None], inputs: list[Edge | None], floor: int) -> Boundary:
    """Walk back from a call's outputs to its inputs.

    Args:
        outputs, inputs: edges of the tensors that require grad, in slot order.
        floor: the thread's sequence number when the call began; older nodes are not the call's and end the walk.
    """
    found = Boundary()
    slots = found.slots
    for slot, edge in enumerate(inputs):
        if edge is not None:
            slots.setdefault(edge, []).append(slot)
    todo: list[Any] = []
    ends: set[Edge] = set()
    for slot, edge in enumerate(outputs):
        if edge is None:
            continue
        node, number = edge
        if edge in slots:
            found.passed_through[slot] = slots[edge]
        elif type(node) is not int and node._sequence_nr() >= floor:
            ends.add(edge)
            if node not in found.outputs:
                todo.append(node)
        found.outputs.setdefault(node, []).append((slot, max(number, 0)))
    seen = set(todo)
    while todo:
        node = todo.pop()
        if type(node).__name__ == "CopySlices":
            found.views_changed = True
        for position, edge in enumerate(node.next_functions):
            following = edge[0]
            if following is None:
                continue
            is_leaf = type(following) is _LeafNode
            if is_leaf:
                edge = (id(following.variable), -1)
            if edge not in slots:
                if edge in ends:
                    found.places.setdefault(node, []).append(Place(position, edge, True))
                    found.inner[edge] = found.inner.get(edge, 0) + 1
                cast = _through_cast(following)
                if cast is None or _edge_behind(cast) not in slots:
                    if not is_leaf and following not in seen and following._sequence_nr() >= floor:
                        seen.add(following)
                        todo.append(following)
                    continue
                edge = _edge_behind(cast)
                dtype = _dtype_at(cast)
                if dtype is not None:
                    found.dtypes[edge] = dtype
            found.places.setdefault(node, []).append(Place(position, edge, False))
            found.contributions[edge] = found.contributions.get(edge, 0) + 1
    return found


def _through_cast(node: Any) -> Edge | None:
    """The edge behind a node that only converts a dtype.

    Under autocast a weight is converted once and the result is used by all calls in the block: the conversion belongs to no call, and a
    call's own contribution is what arrives before it.
    """
    if type(node).__name__ != "ToCopyBackward0":
        return None
    following: Edge = node.next_functions[0]
    return following if following[0] is not None else None


def _dtype_at(edge: Edge) -> torch.dtype | None:
    """The dtype of the tensor at an edge, None where the node does not tell."""
    try:
        return edge[0]._input_metadata[edge[1]].dtype
    except Exception as caught:
        let_through(caught)
        return None
