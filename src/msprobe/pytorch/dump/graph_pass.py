"""What comes in one backward pass of a call that is several nodes of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.call_gradients import total
from msprobe.pytorch.dump.encoder import Side

if TYPE_CHECKING:
    from msprobe.pytorch.dump.graph_call import GraphCall


class GraphPass:
    """The gradients of one call in one backward pass; the call knows it until its entry is final."""

    __slots__ = ("_sums", "call", "entry", "inputs_left", "left", "name", "number", "passed_on", "received", "task", "tensors")

    def __init__(self, call: GraphCall, task: int) -> None:
        self.call = call
        self.task = task
        self.number = call.begin_pass()
        self.name = call.entry_name(self.number)
        self.left = call.nodes
        self.inputs_left = call.input_nodes
        self.entry: Any = None
        self.tensors = 0
        self.received: list[Any] = [None] * call.outputs
        self.passed_on: list[Any] = [None] * call.inputs
        self._sums: dict[Any, tuple[list[torch.Tensor], int]] = {}

    def record(self, gradient: Any, role: str, slots: list[int]) -> None:
        """Record one gradient in its slots."""
        if gradient is None:
            return
        observers = self.call.observers
        side = Side(self.name, role, observers.saving and observers.sink.saves(self.name))
        into = self.received if role == "input" else self.passed_on
        for slot in slots:
            into[slot] = observers.encoder.gradient(gradient, slot, side)
        self.tensors += side.tensors

    def contribute(self, edge: int, gradient: Any) -> None:
        """One place's contribution to an input's gradient; the sum is recorded when all places have given theirs.

        Contributions to the call's own outputs (`edge` below zero) are kept until that output's gradient arrives.
        """
        call = self.call
        if call.dtypes is not None and gradient is not None and edge in call.dtypes:
            gradient = in_dtype(gradient, call.dtypes[edge])
        places = call.contributions[edge] if edge >= 0 else 0
        if places == 1:
            self.record(gradient, "output", call.slots[edge])
            return
        given, count = self._sums.get(edge, ([], 0))
        if gradient is not None:
            given.append(gradient)
        if count + 1 == places:
            self._sums.pop(edge, None)
            self.record(total(given), "output", call.slots[edge])
        else:
            self._sums[edge] = (given, count + 1)

    def from_outside(self, inner: int, gradient: Any) -> Any:
        """The part of an output's gradient that comes from outside the call, None where nothing does."""
        given, _ = self._sums.pop(inner, ([], 0))
        return part_from_outside(given, gradient) if given and gradient is not None else gradient

    def fired(self) -> None:
        """One node is through; the last one completes the entry.

        When all nodes at the inputs are through, the entry takes its place in the dump: outputs that still lack a gradient mostly get none.
        """
        self.left -= 1
        if self.left == 0:
            self.complete()
        elif self.call.input_nodes and self.inputs_left == 0 and self.entry is None:
            self.place()

    def finish(self) -> None:
        """The backward pass is over: what has not come does not come."""
        sums, self._sums = self._sums, {}
        try:
            for edge, (given, _) in sums.items():
                if edge >= 0:
                    self.record(total(given), "output", self.call.slots[edge])
        finally:
            self.left = 0
            self.complete()

    def complete(self) -> None:
        """The entry is final."""
        call = self.call
        try:
            if self.entry is None:
                self.place()
            if call.gives_view and not any(self.received) and any(self.passed_on):
                call.observers.report_cut(call.name)  # gradients went through the call, and none came by its output
            if self.entry is not False:
                call.observers.sink.count(self.tensors)
                call.observers.sink.finish(self.entry)
        finally:
            call.running.pop(self.task, None)

    def place(self) -> None:
        """Put the entry into the dump."""
        call = self.call
        wanted = call.observers.takes_all or call.observers.sink.wants(self.name, call.parent)
        self.entry = call.write(self.number, self.name, self.received, self.passed_on, 0, False) if wanted else False


def in_dtype(gradient: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A gradient as the input has it, where it arrives in another dtype."""
    if gradient.dtype is dtype:
        return gradient
    with torch.no_grad(), torch_internals.no_dispatch_modes():
        return gradient.to(dtype)


def part_from_outside(inside: list[torch.Tensor], gradient: torch.Tensor) -> torch.Tensor | None:
    """What is left of a gradient without the contributions that came from inside the call; None where nothing is."""
    own = total(inside)
    if own is None or own is gradient or (len(inside) == 1 and _same_memory(inside[0], gradient)):
        return None if own is not None else gradient
    with torch.no_grad(), torch_internals.no_dispatch_modes():
        return None if torch.equal(own, gradient) else gradient.detach() - own


def _same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two plain tensors are the same values at the same place."""
    try:
        return a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
    except Exception as caught:
        let_through(caught)
        return a is b
