"""Gradients of parameters: hooks on the parameters of the cells that were called, taken off when the step ends."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from msprobe.contain import let_through
from msprobe.mindspore.dump.values import Side

if TYPE_CHECKING:
    from msprobe.mindspore.dump.step_record import StepRecord


class _Cell:
    """The parameters of one cell.

    Attributes:
        prefix: `Cell.{path}.{Class}`.
        names: of its parameters that are trained.
        came: how often each one's gradient has come.
    """

    def __init__(self, prefix: str, names: list[str]) -> None:
        self.prefix = prefix
        self.came = dict.fromkeys(names, 0)
        self.entries: dict[int, Any] = {}


class ParameterGradients:
    """`Cell.{path}.{Class}.parameters_grad.{n}`, n counting the backward passes of the step, which holds this."""

    def __init__(self, step: StepRecord) -> None:
        self._step = weakref.ref(step)
        self._seen: set[int] = set()
        self._hooked: list[tuple[Any, Callable[[Any], None], Any]] = []
        self._cells: list[_Cell] = []

    def watch(self, prefix: str, parameters: dict[str, Any]) -> None:
        """Hook a cell's own parameters, for the rest of the step; a parameter that two cells share belongs to the first."""
        trained = {
            name: parameter
            for name, parameter in parameters.items()
            if parameter is not None and parameter.requires_grad and id(parameter) not in self._seen
        }
        if not trained:
            return
        cell = _Cell(prefix, list(trained))
        self._cells.append(cell)
        for name, parameter in trained.items():
            self._seen.add(id(parameter))
            hook = self._hook(cell, name)
            self._hooked.append((parameter, hook, parameter.register_hook(hook)))

    def take_off(self) -> None:
        """No hook is there while MindSpore compiles: it would make it part of the graph."""
        for _, _, handle in self._hooked:
            handle.remove()

    def put_on(self) -> None:
        """They are there again."""
        self._hooked = [(parameter, hook, parameter.register_hook(hook)) for parameter, hook, _ in self._hooked]

    def close(self) -> None:
        """The step ends."""
        for _, _, handle in self._hooked:
            try:
                handle.remove()
            except Exception as error:
                let_through(error)
        self._hooked.clear()
        step = self._step()
        for cell in self._cells:
            for entry in cell.entries.values():
                if not entry.done and step is not None:
                    step.writer.finish(entry)

    def _hook(self, cell: _Cell, name: str) -> Callable[[Any], None]:
        def observe(gradient: Any) -> None:
            step = self._step()
            if step is None or step.closed:
                return
            began = perf_counter()
            try:
                self._take(step, cell, name, gradient)
            except Exception as error:
                let_through(error)
                step.report(f"{cell.prefix}.parameters_grad", f"{name} could not be recorded: {error!r}")
            step.tally.spent += perf_counter() - began

        return observe

    def _take(self, step: StepRecord, cell: _Cell, name: str, gradient: Any) -> None:
        number = cell.came[name]
        cell.came[name] = number + 1
        entry_name = f"{cell.prefix}.parameters_grad.{number}"
        entry = cell.entries.get(number)
        if entry is None:
            if not step.selection.enters(entry_name, None):
                return
            entry = cell.entries[number] = step.add(entry_name, {}, False)
        if step.structure_only:
            return
        side = Side(entry_name, "", step.saves(entry_name))
        entry.data[name] = [step.encoder.value(gradient, (name,), side)]
        step.tally.tensors += 1
        if len(entry.data) == len(cell.came):
            step.writer.finish(entry)
