"""Gradients of parameters: `param.grad` right after autograd has added to it."""

from __future__ import annotations

from typing import Any

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.distributed.reduced_gradients import ReducedGradients
from msprobe.pytorch.dump.encoder import Side
from msprobe.pytorch.dump.gradients import GradientObservers

_KEY = "msprobe"
_GONE = "a gradient that was taken away before it could be read"
_NoTorchFunction = torch_internals.NoTorchFunction
_graph_task = torch_internals.graph_task


class _Owner:
    """A module with parameters of its own, and its entries that are not complete."""

    __slots__ = ("entries", "expected", "prefix")

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.expected = 0
        self.entries: dict[int, Any] = {}


class _Watched:
    """A parameter; also the hook that torch calls when its gradient has changed."""

    __slots__ = ("fired", "gradients", "owners", "untouched")

    def __init__(self, gradients: ParameterGradients, untouched: bool) -> None:
        self.gradients = gradients
        self.owners: list[tuple[_Owner, str]] = []
        self.fired = 0
        self.untouched = untouched
        """The parameter carried no hooks before."""

    def __call__(self, parameter: torch.Tensor) -> None:
        self.gradients.arrived(self, parameter)


class ParameterGradients:
    """Hooks on the parameters of the modules that were called in this step.

    An entry `X.parameters_grad.n` holds the n-th gradient of each own parameter of module X; a parameter that two modules share is
    recorded under both.
    """

    def __init__(self, observers: GradientObservers) -> None:
        self._observers = observers
        self.window_open = True
        """False between stop and step: then only backward passes of what was recorded count."""
        self._owners: dict[str, _Owner] = {}
        self._watched: dict[int, tuple[torch.Tensor, _Watched]] = {}
        self._open: dict[int, list[tuple[_Owner, int]]] = {}
        """Number of a backward pass -> the entries it began."""
        self.reduced: ReducedGradients | None = None
        """What tells of gradients that were reduced over the ranks."""

    def watch(self, prefix: str, parameters: dict[str, torch.Tensor | None]) -> None:
        """Record the gradients of a module's own parameters from now on.

        Args:
            prefix: `Module.{path}.{Class}`.
            parameters: the module's `_parameters`.
        """
        if prefix in self._owners:
            return
        owner = self._owners[prefix] = _Owner(prefix)
        for name, parameter in parameters.items():
            if parameter is None or not parameter.requires_grad or not parameter.is_leaf:
                continue
            owner.expected += 1
            known = self._watched.get(id(parameter))
            if known is None:
                hook = _Watched(self, parameter._post_accumulate_grad_hooks is None)
                known = self._watched[id(parameter)] = parameter, hook
                torch_internals.put_gradient_hook(parameter, _KEY, hook)
            known[1].owners.append((owner, name))

    def arrived(self, watched: _Watched, parameter: torch.Tensor) -> None:
        """Autograd has added to a parameter's gradient."""
        observers = self._observers
        try:
            if observers.closed or not (self.window_open or observers.task == _graph_task()):
                return
            with _NoTorchFunction():
                self._record(watched, parameter.grad)
        except Exception as error:
            let_through(error)
            self._failed(error)

    def record(self, parameter: torch.Tensor, gradient: torch.Tensor | None) -> None:
        """Record a further gradient of a parameter; nothing happens for one of a module that was not called. Never raises."""
        observers = self._observers
        try:
            known = self._watched.get(id(parameter))
            if known is None or observers.closed or not (self.window_open or observers.task == _graph_task()):
                return
            with _NoTorchFunction():
                self._record(known[1], gradient)
        except Exception as error:
            let_through(error)
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        try:
            self._observers.report("parameters_grad", f"gradient of a parameter could not be recorded: {error!r}")
        except Exception as caught:
            let_through(caught)  # the backward pass is the user's: nothing of ours may end it

    def _record(self, watched: _Watched, gradient: torch.Tensor | None) -> None:
        observers = self._observers
        sink = observers.sink
        number = watched.fired
        watched.fired = number + 1
        for owner, name in watched.owners:
            entry = owner.entries.get(number)
            if entry is None:
                entry = self._begin(owner, number)
                if entry is None:
                    continue
            side = Side(entry.name, "", observers.saving and sink.saves(entry.name))
            data = entry.data
            if gradient is None:
                data[name] = [None]
                self._tell_gone(entry.name, name)
            else:
                data[name] = [observers.encoder.gradient(gradient, name, side)]
                sink.count(1)
            if len(data) == owner.expected:
                self._finish(owner, number)

    def _tell_gone(self, entry: str, name: str) -> None:
        """A gradient has come, and somebody took it away before we could look."""
        self._observers.report(entry, f"parameters_grad {name}: {_GONE}")
        self._observers.encoder.unread((name,), Side(entry, "", False), _GONE)

    def _begin(self, owner: _Owner, number: int) -> Any:
        """Put an entry into the dump; None where it is not wanted."""
        observers = self._observers
        name = f"{owner.prefix}.parameters_grad.{number}"
        if not (observers.takes_all or observers.sink.wants(name)):
            return None
        entry = owner.entries[number] = observers.sink.add(name, None, {}, 0, False)
        task = _graph_task()
        begun = self._open.get(task)
        if begun is None:
            begun = self._open[task] = []
            observers.at_end(task, self._end)
        begun.append((owner, number))
        return entry

    def _end(self, task: int) -> None:
        for owner, number in self._open.pop(task, ()):
            self._finish(owner, number)

    def _finish(self, owner: _Owner, number: int) -> None:
        entry = owner.entries.pop(number, None)
        if entry is not None:
            self._observers.sink.finish(entry)

    def close(self) -> None:
        """Take all hooks off and leave the parameters as they were."""
        for task in list(self._open):
            self._end(task)
        while self._watched:
            identity, (parameter, watched) = next(reversed(self._watched.items()))
            self._release(parameter, watched.untouched)
            self._watched.pop(identity, None)
        if self.reduced is not None:
            self.reduced.close()
        self._owners.clear()

    def _release(self, parameter: torch.Tensor, untouched: bool) -> None:
        try:
            torch_internals.take_gradient_hook(parameter, _KEY, untouched)
        except Exception as caught:
            let_through(caught)
