"""Gradients of parameters: `param.grad` right after autograd has added to it."""

from __future__ import annotations

from typing import Any

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.encoder import Side
from msprobe.pytorch.dump.gradients import GradientObservers

_KEY = "msprobe"


class ParameterGradients:
    """Hooks on the parameters of the modules that were called in this step.

    An entry `X.parameters_grad.n` holds the n-th gradient of each own parameter of module X; a parameter that two modules share is
    recorded under both.
    """

    def __init__(self, observers: GradientObservers) -> None:
        self._observers = observers
        self.window_open = True
        """False between stop and step: then only backward passes of what was recorded count."""
        self._owners: dict[int, list[tuple[str, str]]] = {}
        self._touched: list[tuple[torch.Tensor, bool]] = []
        """Parameters that carry the hook, and whether they carried none before."""
        self._fired: dict[int, int] = {}
        self._expected: dict[str, int] = {}
        self._entries: dict[str, Any] = {}

    def watch(self, prefix: str, parameters: dict[str, torch.Tensor | None]) -> None:
        """Record the gradients of a module's own parameters from now on.

        Args:
            prefix: `Module.{path}.{Class}`.
            parameters: the module's `_parameters`.
        """
        if prefix in self._expected:
            return
        count = 0
        for name, parameter in parameters.items():
            if parameter is None or not parameter.requires_grad or not parameter.is_leaf:
                continue
            count += 1
            owners = self._owners.setdefault(id(parameter), [])
            owners.append((prefix, name))
            if len(owners) == 1:
                self._touched.append((parameter, parameter._post_accumulate_grad_hooks is None))
                torch_internals.put_gradient_hook(parameter, _KEY, self._arrived)
        self._expected[prefix] = count

    def _arrived(self, parameter: torch.Tensor) -> None:
        observers = self._observers
        try:
            if observers.closed or not (self.window_open or observers.task == torch_internals.graph_task()):
                return
            with torch_internals.NoTorchFunction():
                key = id(parameter)
                number = self._fired.get(key, 0)
                self._fired[key] = number + 1
                gradient = parameter.grad
                for prefix, name in self._owners.get(key, ()):
                    self._record(f"{prefix}.parameters_grad.{number}", prefix, name, gradient)
        except Exception as error:
            let_through(error)
            try:
                observers.report("parameters_grad", f"gradient of a parameter could not be recorded: {error!r}")
            except Exception as caught:
                let_through(caught)  # the backward pass is the user's: nothing of ours may end it

    def _record(self, entry_name: str, prefix: str, name: str, gradient: torch.Tensor | None) -> None:
        observers = self._observers
        entry = self._entries.get(entry_name)
        if entry is None:
            if not observers.sink.wants(entry_name):
                return
            entry = self._entries[entry_name] = observers.sink.add(entry_name, None, {}, 0, False)
            observers.at_end(torch_internals.graph_task(), lambda task: self._finish(entry_name))
        side = Side(entry_name, "", observers.sink.saves(entry_name))
        record = None if gradient is None else observers.encoder.value(gradient, (name,), side)
        entry.data[name] = [record]
        observers.sink.count(1)
        if len(entry.data) == self._expected[prefix]:
            self._finish(entry_name)

    def _finish(self, entry_name: str) -> None:
        entry = self._entries.pop(entry_name, None)
        if entry is not None:
            self._observers.sink.finish(entry)

    def close(self) -> None:
        """Take all hooks off and leave the parameters as they were."""
        for entry_name in list(self._entries):
            self._finish(entry_name)
        while self._touched:
            self._release(*self._touched[-1])
            self._touched.pop()
        self._owners.clear()

    def _release(self, parameter: torch.Tensor, untouched: bool) -> None:
        try:
            torch_internals.take_gradient_hook(parameter, _KEY, untouched)
        except Exception as caught:
            let_through(caught)
