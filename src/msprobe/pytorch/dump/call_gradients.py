"""The gradients of one call: what its observers share, and the observer of a call that is a single node of the graph."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.encoder import Side

if TYPE_CHECKING:
    from msprobe.pytorch.dump.gradients import GradientObservers

_NoTorchFunction = torch_internals.NoTorchFunction
_graph_task = torch_internals.graph_task


class Call:
    """What both kinds of calls share: the name, the numbers of slots, the passes made so far."""

    __slots__ = ("inputs", "name", "observers", "outputs", "parent", "passes", "told_late")

    def __init__(self, observers: GradientObservers, name: str, parent: str | None, outputs: int, inputs: int) -> None:
        self.observers = observers
        self.name = name
        self.parent = parent
        self.outputs, self.inputs = outputs, inputs
        self.passes = 0
        self.told_late = False

    def begin_pass(self) -> int:
        """The number of a pass that begins, from 1."""
        number = self.passes = self.passes + 1  # no other thread comes between
        return number

    def entry_name(self, number: int) -> str:
        """The name of a pass: a second one over the same graph gets `.pass1`."""
        return self.name if number == 1 else f"{self.name}.pass{number - 1}"

    def is_late(self) -> bool:
        """Whether the step has ended; told once for each call."""
        if not self.observers.closed:
            return False
        if not self.told_late:
            self.told_late = True
            self.observers.late(self.name)
        return True

    def write(self, number: int, name: str, received: list[Any], passed_on: list[Any], tensors: int, done: bool = True) -> Any:
        """Put the entry of a pass into the dump; gives its handle."""
        observers = self.observers
        data: dict[str, Any] = {}
        if observers.keep_input:
            data["input"] = received
        if observers.keep_output:
            data["output"] = passed_on
        parent = self.parent
        if parent is not None and number > 1:
            parent = f"{parent}.pass{number - 1}"
        return observers.sink.add(name, parent, data, tensors, done)

    def failed(self, error: Exception) -> None:
        """Tell that the gradients could not be recorded."""
        try:
            self.observers.report(self.name, f"gradients could not be recorded: {error!r}")
        except Exception as caught:
            let_through(caught)  # the backward pass is the user's: nothing of ours may end it


class OneNodeCall(Call):
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
            observers = self.observers
            if observers.closed and self.is_late():
                return
            began = perf_counter()
            number = self.begin_pass()
            observers.task = _graph_task()
            name = self.entry_name(number)
            if observers.takes_all or observers.sink.wants(name, self.parent):
                with _NoTorchFunction():
                    encode = observers.encoder.gradient
                    side = Side(name, "input", observers.saving and observers.sink.saves(name))
                    received: list[Any] = [None] * self.outputs
                    for slot, place in self.numbers:
                        gradient = grad_outputs[place]
                        if gradient is not None:
                            received[slot] = encode(gradient, slot, side)
                    side.role = "output"
                    passed_on: list[Any] = [None] * self.inputs
                    for places, slots in self.positions:
                        gradient = grad_inputs[places[0]] if len(places) == 1 else total([grad_inputs[p] for p in places])
                        if gradient is not None:
                            for slot in slots:
                                passed_on[slot] = encode(gradient, slot, side)
                    self.write(number, name, received, passed_on, side.tensors)
            observers.spent += perf_counter() - began
        except Exception as error:
            let_through(error)
            self.failed(error)


def total(gradients: list[Any]) -> torch.Tensor | None:
    """The sum of the contributions to one gradient."""
    if not torch.is_grad_enabled() and not torch_internals.dispatch_depth():  # the usual backward pass: no graph takes in what is added
        given = [gradient for gradient in gradients if gradient is not None]
        if len(given) > 1:
            return sum(given[1:], given[0])
    total: torch.Tensor | None = None
    with torch.no_grad(), torch_internals.no_dispatch_modes():
        for gradient in gradients:
            if gradient is not None:
                total = gradient.detach() if total is None else total + gradient.detach()
    return total
