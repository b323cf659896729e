"""Where in the autograd graph a call's inputs and outputs lie.

An *edge* is `(node, number)`: the place where the gradient of one tensor arrives. Only the graph is read; nothing is put into it.
`trace` is in C where a compiler was there; its twin in Python is here, and says what it does.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.stale_views import StaleView

Edge = tuple[Any, int]
"""(node, number of its output); for a leaf (id of the tensor, -1): its node is not made before somebody needs it."""
SeenEdge = Edge | StaleView | None
"""None where it could not be read."""
_LeafNode = torch_internals.LeafNode
_MAIN_THREAD = threading.main_thread().ident or 0


def _edge_of(tensor: torch.Tensor) -> Edge | StaleView:
    if torch_internals.is_stale_view(tensor):
        return StaleView(tensor)
    node = tensor.grad_fn
    return (id(tensor), -1) if node is None else (node, tensor.output_nr)


def _edges_in_python(tensors: list[torch.Tensor]) -> list[SeenEdge]:
    return [_edge_of(tensor) for tensor in tensors]


def edges_of(tensors: list[torch.Tensor], report: Callable[[str], None]) -> list[SeenEdge]:
    """The edge of each tensor; None, and `report(reason)`, where reading it fails (a view whose base was changed as autograd forbids)."""
    try:
        return edges_of_all(tensors)
    except Exception as error:
        let_through(error)
    edges: list[SeenEdge] = []
    for tensor in tensors:
        try:
            edges.append(_edge_of(tensor))
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


class Boundary(NamedTuple):
    """The part of the graph that one call made.

    Attributes:
        outputs: (node, or id of a leaf; pairs (slot of the output, number of the node's output)).
        places: (node, pairs (position in its `next_functions`, target)): where the wanted gradients come from. A target of 0 and more
            is an index of `slots`; one below is a value of `inner`: what flows there comes from inside the call.
        slots: for each distinct edge of the inputs, the slots of the inputs that share it.
        contributions: for each of them, how many places lead to it.
        inner: edge of an output that the call itself goes on with, or that is an input too -> a number below 0.
        dtypes: index of `slots` -> its dtype, where contributions arrive in another one; None for none.
        passed_through: slots of outputs that are an input itself -> the input's slots; None for none.
        views_changed: a view was changed in place inside the call: autograd has cut the gradient of what the view was before.
        ends_elsewhere: the walk came to nodes of another thread, and went no further.
    """

    outputs: list[tuple[Any, list[tuple[int, int]]]]
    places: list[tuple[Any, list[tuple[int, int]]]]
    slots: list[list[int]]
    contributions: list[int]
    inner: dict[Edge, int]
    dtypes: dict[int, torch.dtype] | None
    passed_through: dict[int, list[int]] | None
    views_changed: bool
    ends_elsewhere: bool


def trace_in_python(outputs: list[Edge | None], inputs: list[Edge | None], floor: int) -> SingleNode | Boundary:
    """Walk back from a call's outputs to its inputs.

    Args:
        outputs, inputs: edges of the tensors that require grad, in slot order.
        floor: the thread's sequence number when the call began; older nodes are not the call's and end the walk.

    Each thread numbers its own nodes, from 0. What is newer than all that this thread has made is of another one, and ends the walk too.
    Not so in the main thread, whose numbers are ahead of most: there a device's thread may have made it for the call (`create_graph`).

    Returns:
        `SingleNode` where one node leads from all inputs to all outputs, `Boundary` for everything else (from C, plain tuples of these).
    """
    slots: dict[Edge, list[int]] = {}
    for slot, edge in enumerate(inputs):
        if edge is not None:
            slots.setdefault(edge, []).append(slot)
    newest = math.inf if threading.get_ident() == _MAIN_THREAD else torch_internals.sequence_number() - 1
    return _single_node(outputs, slots, floor, newest) or _boundary(outputs, slots, floor, newest)


def _single_node(outputs: list[Edge | None], slots: dict[Edge, list[int]], floor: int, newest: float) -> SingleNode | None:
    first = outputs[0] if outputs else None
    node = first[0] if first is not None else None
    # A user-written backward may change the gradients it is given in place: those must be read before it runs.
    if node is None or type(node) is int or isinstance(node, torch_internals.PythonNode):
        return None
    numbers = []
    for slot, edge in enumerate(outputs):
        if edge is None or edge[0] is not node:
            return None
        numbers.append((slot, edge[1]))
    if any(edge[0] is node for edge in slots):
        return None
    places: dict[Edge, list[int]] = {edge: [] for edge in slots}
    for position, following in enumerate(node.next_functions):
        if following[0] is None:
            continue
        known = places.get(_edge_behind(following))
        if known is not None:
            known.append(position)
        elif type(following[0]) is not _LeafNode and floor <= following[0]._sequence_nr() <= newest:
            return None
    if not all(places.values()):
        return None  # an input that is reached another way, or not at all: the walk tells
    return SingleNode(node, numbers, [(places[edge], slots[edge]) for edge in slots])


def _boundary(outputs: list[Edge | None], slots: dict[Edge, list[int]], floor: int, newest: float) -> Boundary:
    found: dict[Any, list[tuple[int, int]]] = {}
    through: dict[int, list[int]] = {}
    todo: list[Any] = []
    ends: set[Edge] = set()
    elsewhere = False
    for slot, edge in enumerate(outputs):
        if edge is None:
            continue
        node, number = edge
        if edge in slots:
            through[slot] = slots[edge]
            ends.add(edge)
        elif type(node) is not int and node._sequence_nr() >= floor:
            if node._sequence_nr() > newest:
                elsewhere = True
            else:
                ends.add(edge)
                if node not in todo:
                    todo.append(node)
        found.setdefault(node, []).append((slot, max(number, 0)))
    seen = set(todo)
    index = {edge: number for number, edge in enumerate(slots)}
    places: list[tuple[Any, list[tuple[int, int]]]] = []
    contributions = [0] * len(slots)
    inner: dict[Edge, int] = {}
    dtypes: dict[int, torch.dtype] = {}
    changed = False
    while todo:
        node = todo.pop()
        changed = changed or type(node).__name__ == "CopySlices"
        mine: list[tuple[int, int]] = []
        for position, following in enumerate(node.next_functions):
            if following[0] is None:
                continue
            edge = _edge_behind(following)
            if edge in ends:
                mine.append((position, inner.setdefault(edge, -1 - len(inner))))
            if edge not in index:
                cast = _through_cast(following[0])
                if cast is None or _edge_behind(cast) not in index:
                    if type(following[0]) is not _LeafNode and following[0] not in seen and following[0]._sequence_nr() >= floor:
                        if following[0]._sequence_nr() > newest:
                            elsewhere = True
                            continue
                        seen.add(following[0])
                        todo.append(following[0])
                    continue
                edge = _edge_behind(cast)
                dtype = _dtype_at(cast)
                if dtype is not None:
                    dtypes[index[edge]] = dtype
            mine.append((position, index[edge]))
            contributions[index[edge]] += 1
        if mine:
            places.append((node, mine))
    sides = list(found.items()), places, list(slots.values()), contributions
    return Boundary(*sides, inner, dtypes or None, through or None, changed, elsewhere)


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


trace: Callable[[list[Edge | None], list[Edge | None], int], tuple[Any, ...]] = trace_in_python
edges_of_all: Callable[[list[torch.Tensor]], list[SeenEdge]] = _edges_in_python
"""The edge of each tensor; raises what reading one raises."""
try:
    from msprobe.pytorch.dump import _hot

    classes = _LeafNode, torch_internals.PythonNode
    _hot.set_classes(*classes, _dtype_at, torch_internals.makes_view, torch_internals.sequence_number, _MAIN_THREAD)
    _hot.set_views(
        torch_internals.TensorBase,
        StaleView,
        torch_internals.get_creation,
        torch_internals.set_creation,
        torch_internals.Creation.DEFAULT,
        torch_internals.Creation.MULTI_OUTPUT_NODE,
    )
    trace, edges_of_all = _hot.trace, _hot.edges
except ImportError:  # no compiler when msprobe was installed
    pass
