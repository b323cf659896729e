"""Gradients of parameters once more, after they have been reduced over the ranks.

`X.parameters_grad.n` holds what autograd has accumulated on this rank. Under DistributedDataParallel and fully_shard that is not yet the
gradient the optimizer sees: the reduced one follows as the entry with the next number. Under fully_shard it is this rank's shard.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Protocol

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.distributed import c10d
from msprobe.pytorch.process import current_rank

_KEY = "msprobe-reduced"
_ROUNDS = 3
"""How often the engine's callbacks must have come round before a reduction that was queued among them has run: a static graph's
first reduction is queued by a callback, and queues its end."""


class Gradients(Protocol):
    """Where gradients of parameters are recorded."""

    def record(self, parameter: torch.Tensor, gradient: torch.Tensor | None) -> None:
        """Record a further gradient of a parameter; nothing happens for one of a module that was not called. Never raises."""


class ReducedGradients:
    """Observers on the parameters of data-parallel modules, for one step.

    Args:
        modules: all modules of the model; not asked for where there is no process group.
        gradients: takes the reduced gradients.
        report: `report(entry, reason)` for what could not be recorded.
    """

    def __init__(self, modules: Iterable[torch.nn.Module], gradients: Gradients, report: Callable[[str, str], None]) -> None:
        self._gradients = gradients
        self._report = report
        self._hooked: list[tuple[torch.Tensor, bool]] = []
        self._modules: list[_Reduced] = []
        if current_rank() is None:
            return
        try:
            self._observe(list(modules))
        except Exception as error:
            let_through(error)
            report("parameters_grad", f"reduced gradients are not recorded: {error!r}")

    def _observe(self, modules: list[torch.nn.Module]) -> None:
        for module in c10d.data_parallel_modules(modules):
            reduced = _Reduced(module, self._gradients, self._report)
            self._modules.append(reduced)
            for parameter in reduced.parameters:
                self._hook(parameter, reduced.arrived)
        for shard in c10d.sharded_parameters(modules):
            self._hook(shard.sharded_param, self._when_sharded(shard))

    def _hook(self, parameter: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> None:
        self._hooked.append((parameter, parameter._post_accumulate_grad_hooks is None))
        torch_internals.put_gradient_hook(parameter, _KEY, hook)

    def _when_sharded(self, shard: Any) -> Callable[[torch.Tensor], None]:
        """fully_shard calls the hooks of the sharded parameter when it has put the reduced gradient there."""

        def arrived(parameter: torch.Tensor) -> None:
            try:
                whole = c10d.unsharded(shard)
                if whole is not None:
                    self._gradients.record(whole, parameter.grad)
            except Exception as error:
                let_through(error)
                self._report("parameters_grad", f"reduced gradient of a parameter could not be recorded: {error!r}")

        return arrived

    def close(self) -> None:
        """Take all hooks off and leave the parameters as they were."""
        while self._hooked:
            parameter, untouched = self._hooked.pop()
            try:
                torch_internals.take_gradient_hook(parameter, _KEY, untouched)
            except Exception as error:
                let_through(error)
        for one in self._modules:
            one.close()


class _Reduced:
    """One DistributedDataParallel module: its reducer runs among the last things of a backward pass."""

    def __init__(self, module: Any, gradients: Gradients, report: Callable[[str, str], None]) -> None:
        self._module = module
        self._gradients = gradients
        self._report = report
        self.parameters = [p for p in c10d.reduced_parameters(module) if p.requires_grad and p.is_leaf]
        self._tasks: set[int] = set()
        self._arrived = False

    def arrived(self, _: torch.Tensor) -> None:
        """A gradient was accumulated: when this backward pass is over, it will have been reduced too."""
        try:
            task = torch_internals.graph_task()
            self._arrived = True
            if task >= 0 and task not in self._tasks:
                self._tasks.add(task)
                self._look_later(task, _ROUNDS)
        except Exception as error:
            self._tell(error)

    def _look_later(self, task: int, rounds: int) -> None:
        torch_internals.at_end_of_backward(lambda: self._look(task, rounds))

    def _look(self, task: int, rounds: int) -> None:
        try:
            if rounds:
                self._look_later(task, rounds - 1)
                return
            self._tasks.discard(task)
            if not self._arrived or _inside_another_backward():
                return
            if not c10d.last_forward_reduces(self._module):
                self._arrived = False
                return
            if not c10d.is_reduced(self._module):
                return
            self._arrived = False
            for parameter in self.parameters:
                if parameter.grad is not None:
                    self._gradients.record(parameter, parameter.grad)
        except Exception as error:
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        let_through(error)
        try:
            self._report("parameters_grad", f"reduced gradients could not be recorded: {error!r}")
        except Exception as second:
            let_through(second)  # the backward pass is the user's: nothing of ours may end it

    def close(self) -> None:
        """The step ends."""
        if self._arrived and c10d.last_forward_reduces(self._module):
            self._report(
                "parameters_grad", "the backward pass had not reduced all gradients when the step ended: they are recorded unreduced"
            )
        self._arrived = False


def _inside_another_backward() -> bool:
    """Whether a node of the graph runs this backward pass (a reentrant checkpoint does): the reduction belongs to the outer one."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code in torch_internals.PYTHON_NODE_CODES:
            return True
        frame = frame.f_back
    return False
