"""Turns what is seen of calls of APIs and cells into entries of the running step."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from mindspore import nn

from msprobe.contain import let_through
from msprobe.mindspore.dump.gradients import Before
from msprobe.mindspore.dump.step_record import StepRecord
from msprobe.mindspore.dump.values import PendingError, Side
from msprobe.recording.calls import OpenModule, ThreadState
from msprobe.recording.inside import backward_of
from msprobe.recording.stacks import Stack, StackCache

Function = Callable[..., Any]


class _Call:
    """One call that is being recorded. `entry` is None where only its gradients are."""

    __slots__ = ("backward", "before", "data", "entry", "name", "parent", "prefix", "stack")

    def __init__(self, name: str, parent: str | None, backward: str, stack: Stack) -> None:
        self.name = name
        self.parent = parent
        self.backward = backward
        self.stack = stack
        self.prefix = ""
        self.data: dict[str, Any] | None = None
        self.entry: Any = None
        self.before: Before | None = None


class Recorder:
    """Every method that user code reaches contains its own errors: they are reported, and the call goes on as if nobody watched."""

    def __init__(self, stacks: StackCache) -> None:
        self.state = ThreadState()
        self.stacks = stacks
        self.step: StepRecord | None = None

    def _tell(self, step: StepRecord, entry: str, reason: str) -> None:
        try:
            step.report(entry, reason)
        except Exception as caught:
            let_through(caught)

    # --- APIs -----------------------------------------------------------------------------------------------------------------------
    def api(
        self, full: str, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any], skipped: int = 0, gradients: bool = True
    ) -> Any:
        """Call a watched function and record the call; gives what the function gives.

        Args:
            full: `Functional.relu`.
            function: what is called.
            args, kwargs: of the call.
            skipped: so many of the first arguments are no arguments of the API (the cell whose method jit has compiled).
            gradients: False where the call has no backward entry: its output are its arguments.
        """
        step = self.step
        state = self.state
        if step is None or state.inside:
            return function(*args, **kwargs)
        began = perf_counter()
        call = None
        try:
            state.inside = True
            try:
                call = self._api_begins(step, full, args[skipped:], kwargs, gradients)
            except Exception as error:
                let_through(error)
                self._tell(step, full, f"call could not be recorded: {error!r}")
            step.tally.spent += perf_counter() - began
            try:
                result = function(*args, **kwargs)
            except BaseException:
                if call is not None and call.entry is not None:
                    step.writer.finish(call.entry)
                raise
            began = perf_counter()
            try:
                if call is not None:
                    self._api_ends(step, call, result)
            except Exception as error:
                let_through(error)
                self._tell(step, full, f"result could not be recorded: {error!r}")
            step.tally.spent += perf_counter() - began
            return result
        except PendingError as pending:
            if call is not None and call.entry is not None:
                step.writer.finish(call.entry)
            raise pending.error from None
        finally:
            state.inside = False  # also where a signal handler of the user's has raised in our code

    def _api_begins(self, step: StepRecord, full: str, args: tuple[Any, ...], kwargs: dict[str, Any], gradients: bool) -> _Call | None:
        state = self.state
        number = step.counters.take(full)
        name = f"{full}.{number}.forward"
        stack, _ = self.stacks.take(4, frozenset(), state.open[-1].anchor if state.open else None)
        parent = state.parent()
        if step.keeps_construct:
            step.writer.add_call(name, parent)
        selection, sides = step.selection, step.selection.sides
        forward = selection.enters(name, parent) and sides.forward
        backward = f"{full}.{number}.backward"
        with_gradients = gradients and step.gradients.enabled and selection.matches(backward, parent)
        if not forward and not with_gradients:
            return None
        call = _Call(name, parent, backward, stack)
        self._inputs(step, call, args, kwargs, forward, with_gradients)
        if forward:
            call.entry = step.add(name, call.data if sides.input and call.data is not None else {}, False)
            step.tally.apis += 1
            if step.config.extra_info:
                step.writer.add_stack(name, stack, stack.text)
        return call

    def _inputs(
        self, step: StepRecord, call: _Call, args: tuple[Any, ...], kwargs: dict[str, Any], forward: bool, with_gradients: bool
    ) -> None:
        """Record a call's arguments, and note where they lie in the graph."""
        sides = step.selection.sides
        wanted = forward and sides.input and not step.structure_only
        side = Side(call.name, "input", wanted and step.saves(call.name), wanted)
        call.data = {"input_args": step.encoder.positional(args, side)}
        positional = len(side.tensors)
        side.role = "kwargs"
        call.data["input_kwargs"] = step.encoder.keyword(kwargs, side) if kwargs else {}
        if wanted:
            step.tally.tensors += len(side.tensors)
        if with_gradients:
            before = step.gradients.before(side.tensors)
            # A keyword tensor has a place among the gradients only where it has one at all.
            kept = [edge for i, edge in enumerate(before.edges) if i < positional or edge is not None]
            before.edges = kept
            call.before = before

    def _result(self, step: StepRecord, call: _Call, result: Any, forward: bool) -> list[Any] | None:
        """Record a call's result, and watch for its gradients."""
        sides = step.selection.sides
        wanted = forward and sides.output and not step.structure_only
        side = Side(call.name, "output", wanted and step.saves(call.name), wanted)
        output = step.encoder.output(result, side)
        if wanted:
            step.tally.tensors += len(side.tensors)
        if call.before is not None and side.tensors:
            step.gradients.after(call.backward, backward_of(call.parent) if call.parent is not None else None, call.before, side.tensors)
        return output if wanted else None

    def _api_ends(self, step: StepRecord, call: _Call, result: Any) -> None:
        output = self._result(step, call, result, call.entry is not None)
        if call.entry is not None:
            if output is not None:
                call.entry.data["output"] = output
            step.writer.finish(call.entry)

    # --- cells ----------------------------------------------------------------------------------------------------------------------
    def cell(self, prefix: str, cell: Any, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a watched cell and record the call; gives what the cell gives.

        Args:
            prefix: `Cell.{path}.{Class}`.
            cell: the cell.
            function: MindSpore's own `Cell.__call__`.
            args, kwargs: of the call.
        """
        step = self.step
        if step is None:
            return function(cell, *args, **kwargs)
        state = self.state
        began = perf_counter()
        was_inside = state.inside
        depth = len(state.open)
        call = None
        try:
            state.inside = True
            try:
                call, opened = self._cell_begins(step, prefix, cell, args, kwargs)
                state.open.append(opened)
            except Exception as error:
                let_through(error)
                self._tell(step, prefix, f"cell could not be recorded: {error!r}")
            state.inside = False
            step.tally.spent += perf_counter() - began
            try:
                result = function(cell, *args, **kwargs)
            except BaseException:
                self._cell_raised(step, call)
                raise
            began = perf_counter()
            del state.open[depth:]
            state.inside = True
            try:
                if call is not None:
                    self._cell_ends(step, call, cell, result)
            except Exception as error:
                let_through(error)
                self._tell(step, prefix, f"result could not be recorded: {error!r}")
            step.tally.spent += perf_counter() - began
            return result
        except PendingError as pending:
            self._cell_raised(step, call)
            raise pending.error from None
        finally:
            del state.open[depth:]
            state.inside = was_inside  # also where a signal handler of the user's has raised in our code

    def _cell_begins(
        self, step: StepRecord, prefix: str, cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[_Call | None, OpenModule]:
        state = self.state
        stack, anchor = self.stacks.enter(4, state.open[-1].anchor if state.open else None)
        number = step.counters.take(prefix)
        name = f"{prefix}.forward.{number}"
        parent = state.parent()
        if step.keeps_construct:
            step.writer.add_call(name, parent)
        opened = OpenModule(name, cell, anchor)
        selection, sides = step.selection, step.selection.sides
        forward = selection.enters(name, parent) and sides.forward
        backward = f"{prefix}.backward.{number}"
        with_gradients = step.gradients.enabled and selection.matches(backward, parent)
        if sides.backward and selection.may_want_gradients(prefix):
            step.parameter_gradients.watch(prefix, cell._params if isinstance(cell, nn.Cell) else cell._parameters)
        if step.config.level == "L1" or not (forward or with_gradients):
            return None, opened
        call = _Call(name, parent, backward, stack)
        call.prefix = prefix
        self._inputs(step, call, args, kwargs, forward, with_gradients)
        if not forward:
            call.data = None
        return call, opened

    def _cell_ends(self, step: StepRecord, call: _Call, cell: Any, result: Any) -> None:
        data = call.data
        forward = data is not None
        if not forward:
            forward = step.selection.ends_inside(call.name) and step.selection.sides.forward
            data = {}
        output = self._result(step, call, result, forward)
        if not forward or data is None:
            return
        sides = step.selection.sides
        kept = data if sides.input else {}
        if output is not None:
            kept["output"] = output
            kept["parameters"] = self._parameters(step, call.name, cell)
        self._finish_cell(step, call, kept)

    def _cell_raised(self, step: StepRecord, call: _Call | None) -> None:
        """A cell that raised keeps its inputs."""
        if call is None or call.data is None:
            return
        try:
            self._finish_cell(step, call, call.data if step.selection.sides.input else {})
        except Exception as error:
            let_through(error)
            self._tell(step, call.name, f"cell that raised could not be recorded: {error!r}")

    def _finish_cell(self, step: StepRecord, call: _Call, data: dict[str, Any]) -> None:
        step.tally.modules.add(call.prefix)
        step.add(call.name, {} if step.structure_only else data, True)
        if step.config.extra_info:
            step.writer.add_stack(call.name, call.stack, call.stack.text)

    def _parameters(self, step: StepRecord, name: str, cell: Any) -> dict[str, Any]:
        side = Side(name, "parameters", step.saves(name))
        own = cell._params if isinstance(cell, nn.Cell) else cell._parameters  # the latter of MSAdapter's modules
        records = {key: step.encoder.value(value, (key,), side) for key, value in own.items() if value is not None}
        step.tally.tensors += len(side.tensors)
        return records
