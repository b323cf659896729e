"""Where in MindSpore's backward graph the own part of a call lies; the graph is only read.

An *edge* is (id of a node, number of one of its outputs): the place where the gradient of one tensor arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from msprobe.mindspore.mindspore_internals import LEAF, node_id, sequence_number

Edge: TypeAlias = tuple[int, int]
_MOST_NODES = 10_000
"""A call whose own part of the graph is larger is not walked to its end."""


class Arriving(NamedTuple):
    """A node that made one or more of a call's outputs.

    Attributes:
        node: the node; its id is `identity`.
        outputs: pairs (position of the tensor in the result, which of the node's outputs it is).
    """

    node: Any
    identity: int
    outputs: list[tuple[int, int]]


class Leaving(NamedTuple):
    """An own node of a call that leads out of it.

    Attributes:
        node: the node.
        inputs: pairs (slot of the node, edge of an input of the call).
        inner: pairs (slot of the node, edge of an output of the call): the call goes on with what it gives back.
    """

    node: Any
    inputs: list[tuple[int, Edge]]
    inner: list[tuple[int, Edge]]


class Graph(NamedTuple):
    """The part of the backward graph that one call made.

    Attributes:
        arriving, leaving: its ends.
        passed: edges of outputs that are inputs themselves.
        places: edge of an input -> how many slots lead to it.
        behind: edge of an input -> its node, where several slots lead to it and the node is no leaf.
        is_one_node: the call made a single node.
    """

    arriving: list[Arriving]
    leaving: list[Leaving]
    passed: set[Edge]
    places: dict[Edge, int]
    behind: dict[Edge, Any]
    is_one_node: bool


def walk(outputs: list[tuple[int, Any, int]], inputs: Sequence[Edge | None], floor: int) -> Graph:
    """Walk back from a call's outputs to its inputs.

    Args:
        outputs: for each tensor of the result with a node: its position, the node, and which of the node's outputs it is.
        inputs: edges of the tensors among the arguments, None for one that no gradient is computed for.
        floor: the call's own nodes have this number or a higher one.
    """
    wanted = {edge for edge in inputs if edge is not None}
    found: dict[int, Arriving] = {}
    ends: set[Edge] = set()
    for position, node, place in outputs:
        identity = node_id(node)
        found.setdefault(identity, Arriving(node, identity, [])).outputs.append((position, place))
        ends.add((identity, place))
    own: set[int] = set()
    waiting = [one.node for one in found.values()]
    leaving: list[Leaving] = []
    places: dict[Edge, int] = {}
    behind: dict[Edge, Any] = {}
    while waiting and len(own) < _MOST_NODES:
        node = waiting.pop()
        identity = node_id(node)
        if identity in own or not floor <= sequence_number(node) < LEAF:
            continue
        own.add(identity)
        end = Leaving(node, [], [])
        for slot, (following, place) in enumerate(node.next_functions):
            if following is None:
                continue
            edge = (node_id(following), place)
            if edge in ends:
                end.inner.append((slot, edge))
            if edge in wanted:
                end.inputs.append((slot, edge))
                places[edge] = places.get(edge, 0) + 1
                behind[edge] = following
            else:
                waiting.append(following)
        if end.inputs or end.inner:
            leaving.append(end)
    passed = {edge for edge in ends & wanted if edge[0] not in own}
    arriving = [one for one in found.values() if sequence_number(one.node) < LEAF]
    kept = {edge: node for edge, node in behind.items() if places[edge] > 1 and sequence_number(node) < LEAF}
    return Graph(arriving, leaving, passed, places, kept, len(own) == 1 and not any(end.inner for end in leaving))
