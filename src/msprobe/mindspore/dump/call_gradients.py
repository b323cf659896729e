"""The gradients of one call.

What arrives at an output's node is the gradient of that output; where the call itself goes on with it (a recurrent layer gives its last
state, and the sequence that holds it too), that part is taken away again. What own nodes send along the edge of an input is the call's
contribution to the gradient of that input, not the sum over all uses of the tensor. Where several own nodes send some, the contribution is
complete when the input's node is reached. MindSpore leaves out what nobody asks for, and then a part may be all that was computed: that is
no gradient, and not recorded as one.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from msprobe.contain import let_through
from msprobe.mindspore.dump.graph_walk import Edge, Graph, Leaving
from msprobe.mindspore.dump.slots import Shape, certain_slots
from msprobe.mindspore.dump.sums import Sum
from msprobe.mindspore.dump.values import PendingError, Record, Side
from msprobe.mindspore.mindspore_internals import output_shape

if TYPE_CHECKING:
    from msprobe.mindspore.dump.gradients import Before
    from msprobe.mindspore.dump.step_record import StepRecord

_UNCERTAIN = "perhaps a gradient: a compiled function gave several of one shape, and does not say of which inputs"
_PARTLY = "perhaps a gradient: only a part of it was computed, most likely since nothing asks for it"


class CallGradients:
    """Collects the gradients of one call; a second backward pass over the same graph makes an entry of its own (`.pass1`).

    Args:
        step: gets the entries.
        name, parent: of the entry.
        before: what was noted of the call's inputs.
        outputs: how many tensors its result has.
        opened: called with True when an entry begins, and with False when it is final.
    """

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
        self._edges = before.edges  # not its nodes: observers on them would hold themselves
        self._outputs = outputs
        self._opened = opened
        self._hooks = 0
        self._pass = -1
        self._fired: set[int] = set()
        self._entry: Any = None
        self._recorded = False
        self._input: list[Record] = []
        self._output: list[Record] = []
        self._parts: dict[Edge, list[Any]] = {}
        """Edge of an input that several slots lead to -> what has come; None for a slot that gave nothing."""
        self._inner: dict[Edge, list[Any]] = {}
        self._places: dict[Edge, int] = {}
        self._reached: frozenset[Edge] = frozenset()
        """Edges of inputs whose nodes are observed too."""
        self._is_one_node = False
        self.entry_name = name

    def watch(self, graph: Graph) -> None:
        """Put the observers on the nodes."""
        self._is_one_node = graph.is_one_node
        self._places = graph.places
        self._reached = frozenset(graph.behind)
        for node, identity, outputs in graph.arriving:
            node.register_prehook(self._arrives(self._next(), identity, outputs, graph.passed))
        for end in graph.leaving:
            shapes = [_shape(following, place) for following, place in end.node.next_functions]
            end.node.register_hook(self._leaves(self._next(), end, shapes))
        for edge, node in graph.behind.items():
            node.register_prehook(self._reaches(self._next(), edge))

    def _next(self) -> int:
        self._hooks += 1
        return self._hooks - 1

    def _arrives(self, number: int, identity: int, outputs: list[tuple[int, int]], passed: set[Edge]) -> Callable[[Any], None]:
        through = [edge for edge in passed if edge[0] == identity]

        def observe(gradients: Any) -> None:
            self._contained(number, lambda: self._take_outputs(gradients, identity, outputs, through))

        return observe

    def _leaves(self, number: int, end: Leaving, shapes: list[Shape]) -> Callable[[Any, Any], None]:
        inputs, inner = end.inputs, end.inner  # not the node: it holds this observer

        def observe(gradients: Any, _: Any) -> None:
            self._contained(number, lambda: self._take_inputs(gradients, inputs, inner, shapes))

        return observe

    def _reaches(self, number: int, edge: Edge) -> Callable[[Any], None]:
        def observe(_: Any) -> None:
            self._contained(number, lambda: self._complete(edge))

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
        self._input = [None] * self._outputs
        self._output = [None] * len(self._edges)
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

    def _take_outputs(self, gradients: Any, identity: int, outputs: list[tuple[int, int]], passed: list[Edge]) -> None:
        if not self._recorded or self._step.structure_only:
            return
        for position, place in outputs:
            gradient = gradients[place]
            own = [part for part in self._inner.get((identity, place), ()) if part is not None]
            if own and gradient is not None:
                outside = Sum([gradient], own)
                gradient = None if outside.is_nothing else outside
            self._input[position] = self._record(gradient, "input", position)
        for edge in passed:
            self._parts.pop(edge, None)
            self._give(edge, gradients[edge[1]])

    def _take_inputs(self, gradients: Any, inputs: list[tuple[int, Edge]], inner: list[tuple[int, Edge]], shapes: list[Shape]) -> None:
        if not self._recorded or self._step.structure_only:
            return
        of_slot = dict(enumerate(gradients)) if len(gradients) == len(shapes) else certain_slots(list(gradients), shapes)
        for slot, edge in inner:
            self._inner.setdefault(edge, []).append(of_slot.get(slot))
        uncertain = {edge for slot, edge in inputs if slot not in of_slot} if len(of_slot) < len(gradients) else set()
        if self._is_one_node and len(inputs) == sum(edge is not None for edge in self._edges):
            self._take_each(of_slot, inputs)
        else:
            for slot, edge in inputs:
                self._keep(edge, of_slot.get(slot))
        for edge in uncertain:
            self._tell(edge, _UNCERTAIN)

    def _take_each(self, of_slot: dict[int, Any], slots: list[tuple[int, Edge]]) -> None:
        """One node, and each of its slots is one argument: a tensor that is passed twice has two gradients."""
        waiting = list(slots)
        for position, wanted in enumerate(self._edges):
            slot = next((slot for slot, edge in waiting if edge == wanted), None)
            if slot is not None:
                waiting = [one for one in waiting if one[0] != slot]
                self._output[position] = self._record(of_slot.get(slot), "output", position)

    def _keep(self, edge: Edge, gradient: Any) -> None:
        """A contribution to the gradient of an input."""
        if self._places[edge] == 1:
            self._give(edge, gradient)
            return
        parts = self._parts.setdefault(edge, [])
        parts.append(gradient)
        if edge not in self._reached and len(parts) == self._places[edge] and all(part is not None for part in parts):
            self._complete(edge)

    def _complete(self, edge: Edge) -> None:
        """Nothing more comes for an input's gradient: it is the sum of what has come."""
        parts = [part for part in self._parts.pop(edge, ()) if part is not None]
        if parts:
            self._give(edge, parts[0] if len(parts) == 1 else Sum(parts))

    def _give(self, edge: Edge, gradient: Any) -> None:
        if gradient is None:
            return
        for position, wanted in enumerate(self._edges):
            if wanted == edge:
                self._output[position] = self._record(gradient, "output", position)

    def _tell(self, edge: Edge, what: str) -> None:
        """There may be a gradient, and it is not known: no part of it is shown as if it were one."""
        self._parts.pop(edge, None)
        for position, wanted in enumerate(self._edges):
            if wanted == edge:
                self._output[position] = None
                self._step.writer.note_unread((self.entry_name, "output", (str(position),), what))

    def _record(self, gradient: Any, role: str, position: int) -> Record:
        step = self._step
        if gradient is None:
            return None
        side = Side(self.entry_name, role, step.saves(self.entry_name))
        if type(gradient) is Sum:
            record = step.encoder.array(gradient.array, gradient.head(), (str(position),), side)
        else:
            record = step.encoder.value(gradient, (str(position),), side)
        return record

    def end(self) -> None:
        """This pass is over: what has come is all there is."""
        for edge in [edge for edge, parts in self._parts.items() if any(part is not None for part in parts)]:
            self._tell(edge, _PARTLY)
        self._parts.clear()
        self._inner.clear()
        entry, self._entry = self._entry, None
        if entry is not None:
            self._step.tally.tensors += sum(record is not None for record in (*self._input, *self._output))
            self._step.writer.finish(entry)
            self._opened(self, False)


def _shape(node: Any, place: int) -> Shape:
    """The shape of an output of a node."""
    if node is None:
        return None
    try:
        return tuple(int(n) for n in output_shape(node, place))
    except Exception as error:  # it does not say
        let_through(error)
        return None
