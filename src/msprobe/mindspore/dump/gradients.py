"""Gradients of one call: observers on the nodes of MindSpore's backward graph.

Nothing is put into the forward pass: no node is added, no tensor is replaced, and every observer returns None. Before a call the *edges*
(node, output number) of its inputs are noted. Afterwards a walk from the outputs' nodes back to these edges finds the call's own nodes:
those newer than the call's begin. What arrives at an output's node is the gradient of that output; what own nodes send along a noted edge
is the call's contribution to the gradient of that input, not the sum over all uses of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

from msprobe.contain import let_through
from msprobe.mindspore.dump.slots import Shape, certain_slots
from msprobe.mindspore.dump.values import Array, PendingError, Record, Side, raise_if_pending
from msprobe.mindspore.mindspore_internals import LEAF, has_grad_nodes, node_id, node_of, output_shape, place_of, sequence_number

if TYPE_CHECKING:
    from msprobe.mindspore.dump.step_record import StepRecord

Edge: TypeAlias = tuple[int, int]
"""Id of a node, and which of its outputs."""
_MOST_NODES = 10_000
"""A call whose own part of the graph is larger is not walked to its end."""


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
    """The observers of one step."""

    def __init__(self, step: StepRecord) -> None:
        self._step = step
        self._newest = -1
        """The highest number of a node that has been seen."""
        self._open: list[CallGradients] = []
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
        if outputs:
            CallGradients(self._step, name, parent, before, len(tensors), self._opened).watch(outputs)

    def close(self) -> None:
        """The step ends: what came of each call is all there is."""
        for call in self._open:
            call.end()
        self._open.clear()

    def _opened(self, call: CallGradients, is_open: bool) -> None:
        if is_open:
            self._open.append(call)
        elif call in self._open:
            self._open.remove(call)

    def _see(self, node: Any) -> None:
        number = sequence_number(node)
        if self._newest < number < LEAF:
            self._newest = number


class CallGradients:
    """Collects the gradients of one call; a second backward pass over the same graph makes an entry of its own (`.pass1`)."""

    def __init__(
        self,
        step: StepRecord,
        name: str,
        parent: str | None,
        before: Before,
        outputs: int,
        opened: Callable[[CallGradients, bool], None],
    ) -> None:
        self._step = step
        self._name = name
        self._parent = parent
        self._before = before
        self._outputs = outputs
        self._opened = opened
        self._hooks = 0
        self._pass = -1
        self._fired: set[int] = set()
        self._entry: Any = None
        self._recorded = False
        self._input: list[Record] = []
        self._output: list[Record] = []
        self._sums: dict[Edge, Any] = {}
        self._contributions = 0
        self._is_one_node = False
        self.entry_name = name

    def watch(self, outputs: list[tuple[int, Any, int]]) -> None:
        """Put the observers on the nodes.

        Args:
            outputs: for each tensor of the result with a node: its position, the node, and which of the node's outputs it is.
        """
        floor = self._before.floor
        wanted = {edge for edge in self._before.edges if edge is not None}
        arriving: dict[int, tuple[Any, list[tuple[int, int]]]] = {}
        for position, node, place in outputs:
            arriving.setdefault(node_id(node), (node, []))[1].append((position, place))
        own: dict[int, Any] = {}
        waiting = [node for node, _ in arriving.values()]
        leaving: list[tuple[Any, list[tuple[int, Edge]]]] = []
        while waiting and len(own) < _MOST_NODES:
            node = waiting.pop()
            identity = node_id(node)
            if identity in own or not floor <= sequence_number(node) < LEAF:
                continue
            own[identity] = node
            slots: list[tuple[int, Edge]] = []
            for slot, (following, place) in enumerate(node.next_functions):
                if following is None:
                    continue
                edge = (node_id(following), place)
                if edge in wanted:
                    slots.append((slot, edge))
                else:
                    waiting.append(following)
            if slots:
                leaving.append((node, slots))
        self._is_one_node = len(own) == 1
        self._contributions = sum(len(slots) for _, slots in leaving)
        for identity, (node, places) in arriving.items():
            passed = [] if identity in own else [(identity, place) for _, place in places if (identity, place) in wanted]
            number = self._hooks
            self._hooks += 1
            node.register_prehook(self._arrives(number, places, passed))
        for node, slots in leaving:
            number = self._hooks
            self._hooks += 1
            node.register_hook(self._leaves(number, slots, [_shape(following, place) for following, place in node.next_functions]))

    def _arrives(self, number: int, places: list[tuple[int, int]], passed: list[Edge]) -> Callable[[Any], None]:
        def observe(gradients: Any) -> None:
            self._contained(number, lambda: self._take_outputs(gradients, places, passed))

        return observe

    def _leaves(self, number: int, slots: list[tuple[int, Edge]], shapes: list[Shape]) -> Callable[[Any, Any], None]:
        def observe(gradients: Any, _: Any) -> None:
            self._contained(number, lambda: self._take_inputs(gradients, slots, shapes))

        return observe

    def _contained(self, number: int, take: Callable[[], None]) -> None:
        """A hook fires: whatever goes wrong with us stays out of the user's backward pass."""
        step = self._step
        if step.closed:
            if number == 0:
                step.late.came(self._name)
            return
        began = perf_counter()
        try:
            if number in self._fired or self._pass < 0:
                self._begin_pass()
            self._fired.add(number)
            take()
            if len(self._fired) == self._hooks:
                self.end()
        except Exception as error:
            let_through(error)
            step.report(self._name, f"gradients could not be recorded: {error!r}")
        except PendingError as pending:
            raise pending.error from None
        step.tally.spent += perf_counter() - began

    def _begin_pass(self) -> None:
        self.end()
        step = self._step
        self._pass += 1
        self._fired.clear()
        self._sums = {}
        self._input = [None] * self._outputs
        self._output = [None] * len(self._before.edges)
        self.entry_name = self._name + (f".pass{self._pass}" if self._pass else "")
        self._recorded = step.selection.enters(self.entry_name, self._parent)
        if step.keeps_construct:
            step.writer.add_call(self.entry_name, self._parent)
        if not self._recorded:
            return
        sides = step.selection.sides
        data: dict[str, Any] = {}
        if sides.input:
            data["input"] = self._input
        if sides.output:
            data["output"] = self._output
        self._entry = step.add(self.entry_name, data, False)
        self._opened(self, True)

    def _take_outputs(self, gradients: Any, places: list[tuple[int, int]], passed: list[Edge]) -> None:
        for position, place in places:
            self._input[position] = self._record(gradients[place], "input", position)
        for edge in passed:
            self._keep(edge, gradients[edge[1]])

    def _take_inputs(self, gradients: Any, slots: list[tuple[int, Edge]], shapes: list[Shape]) -> None:
        of_slot = dict(enumerate(gradients)) if len(gradients) == len(shapes) else certain_slots(list(gradients), shapes)
        if self._is_one_node and len(slots) == sum(edge is not None for edge in self._before.edges):
            self._take_each(of_slot, slots)
        else:
            for slot, edge in slots:
                self._keep(edge, of_slot.get(slot))
        if len(of_slot) < len(gradients):
            for slot, edge in slots:
                if slot not in of_slot:
                    self._tell_uncertain(edge)

    def _take_each(self, of_slot: dict[int, Any], slots: list[tuple[int, Edge]]) -> None:
        """One node, and each of its slots is one argument: a tensor that is passed twice has two gradients."""
        waiting = list(slots)
        for position, wanted in enumerate(self._before.edges):
            slot = next((slot for slot, edge in waiting if edge == wanted), None)
            if slot is not None:
                waiting = [one for one in waiting if one[0] != slot]
                self._output[position] = self._record(of_slot.get(slot), "output", position)

    def _keep(self, edge: Edge, gradient: Any) -> None:
        """A contribution to the gradient of an input; where there are several they are added up, in float64 and then as the dtype is."""
        if gradient is None:
            return
        known = self._sums.get(edge)
        if self._contributions > 1 and known is not None:
            gradient = _Sum(known, gradient)
        self._sums[edge] = gradient
        for position, wanted in enumerate(self._before.edges):
            if wanted == edge:
                self._output[position] = self._record(gradient, "output", position)

    def _tell_uncertain(self, edge: Edge) -> None:
        what = "perhaps a gradient: a compiled function gave several of one shape, and does not say of which inputs"
        for position, wanted in enumerate(self._before.edges):
            if wanted == edge and self._recorded:
                self._step.writer.note_unread((self.entry_name, "output", (str(position),), what))

    def _record(self, gradient: Any, role: str, position: int) -> Record:
        step = self._step
        if gradient is None or not self._recorded or step.structure_only:
            return None
        side = Side(self.entry_name, role, step.saves(self.entry_name))
        if type(gradient) is _Sum:
            record = step.encoder.array(gradient.array, gradient.head(), (str(position),), side)
        else:
            record = step.encoder.value(gradient, (str(position),), side)
        return record

    def end(self) -> None:
        """This pass is over: what has come is all there is."""
        entry, self._entry = self._entry, None
        if entry is not None:
            self._step.tally.tensors += sum(record is not None for record in (*self._input, *self._output))
            self._step.writer.finish(entry)
            self._opened(self, False)
        self._sums = {}


def _shape(node: Any, place: int) -> Shape:
    """The shape of an output of a node."""
    if node is None:
        return None
    try:
        return tuple(int(n) for n in output_shape(node, place))
    except Exception as error:  # it does not say
        let_through(error)
        return None


class _Sum:
    """Contributions of several nodes to one gradient, as an array of the gradient's dtype."""

    def __init__(self, known: Any, gradient: Any) -> None:
        first: Array = known.array if type(known) is _Sum else known.asnumpy()
        second: Array = gradient.asnumpy()
        wide = "complex128" if second.dtype.kind == "c" else "float64"
        self.array: Array = (first.astype(wide) + second.astype(wide)).astype(second.dtype)
        self._dtype = str(gradient.dtype)

    def head(self) -> dict[str, Any]:
        """The record so far."""
        return {"type": "mindspore.Tensor", "dtype": self._dtype, "shape": list(self.array.shape)}
