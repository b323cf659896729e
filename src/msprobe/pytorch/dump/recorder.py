"""Records calls of APIs and modules while a window is open."""

from __future__ import annotations

import sys
from time import perf_counter
from types import FrameType
from typing import Any

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.api_call import ApiCall, backward_of
from msprobe.pytorch.dump.api_dump.api_table import Api
from msprobe.pytorch.dump.api_dump.call_form import as_called, form_of_call
from msprobe.pytorch.dump.distributed.deferred import Deferred
from msprobe.pytorch.dump.encoder import Side
from msprobe.pytorch.dump.module_recorder import STOPPED, ModuleRecorder
from msprobe.pytorch.dump.optimizer_steps import OptimizerSteps
from msprobe.pytorch.dump.step_record import StepRecord
from msprobe.recording.stacks import Stack, StackCache

_NoTorchFunction = torch_internals.NoTorchFunction
_grad_enabled = torch.is_grad_enabled
_sequence_number = torch_internals.sequence_number


class Recorder(ModuleRecorder):
    """Turns what mode and hooks see into entries of the running step.

    Every method that user code reaches contains its own errors: they are reported, and the call goes on as if nobody watched.
    """

    def __init__(self, stacks: StackCache) -> None:
        super().__init__(stacks)
        self._optimizers = OptimizerSteps()
        self.told_compiled = False

    def lookup_failed(self, function: Any, error: Exception) -> None:
        """The name of a function that was called could not be found out."""
        if self.step is not None:
            self._tell(self.step, "function call", f"its name could not be found out: {error!r}")

    # --- APIs -----------------------------------------------------------------------------------------------------------------------
    def api(self, api: Api, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a watched function and record the call; gives what the function gives."""
        step = self.step
        if step is None or self.only is not None:
            return function(*args, **kwargs)
        began = perf_counter()
        state = self.state
        call = None
        try:
            with _NoTorchFunction():
                call = self._api_begins(step, api, args, kwargs)
        except Exception as error:
            let_through(error)
            self._tell(step, api.full, f"call could not be recorded: {error!r}")
        state.inside = True
        step.tally.spent += perf_counter() - began
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            state.inside = False
            if call is not None:
                self._raised_contained(step, call, error)
            raise
        state.inside = False
        if type(result) is Deferred:
            self._defer_contained(step, call, result)
        elif call is not None:
            began = perf_counter()
            try:
                with _NoTorchFunction():
                    self._api_ends(step, call, result if api.written is None else api.written.output(args, kwargs, result))
                    if result is None and call.edges is not None and args:
                        self._changed(step, call, args[0])
            except Exception as error:
                let_through(error)
                self._tell(step, call.name, f"result could not be recorded: {error!r}")
                self._give_up(step, call)
            step.tally.spent += perf_counter() - began
        return result

    def _raised_contained(self, step: StepRecord, call: ApiCall, error: BaseException) -> None:
        try:
            self._api_raised(step, call, error)
        except Exception as ours:
            let_through(ours)
            self._tell(step, call.name, f"call that raised could not be recorded: {ours!r}")

    def _defer_contained(self, step: StepRecord, call: ApiCall | None, deferred: Deferred) -> None:
        try:
            self._defer(step, call, deferred)
        except Exception as error:
            let_through(error)
            self._tell(step, call.api.full if call is not None else "communication", f"communication could not be followed: {error!r}")

    def _changed(self, step: StepRecord, call: ApiCall, changed: Any) -> None:
        """A call gave nothing (`x[0] = y`): it may have cut the gradients of earlier ones."""
        with _NoTorchFunction():  # the C keeps away modes only: a class of the user's must not be asked either
            if isinstance(changed, torch.Tensor) and changed.requires_grad:
                step.observers.changed(f"{call.api.full}.{call.number}.backward", changed, call.edges, call.floor)

    def _api_begins(self, step: StepRecord, api: Api, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ApiCall | None:
        if api.prefix == "Aten" and any(type(value).__name__ == "FakeTensor" for value in args):
            return None  # torch working out shapes for itself, as often as its caches make it
        state = self.state
        selection = step.selection
        number = step.counters.take(api.full)
        name = f"{api.full}.{number}.forward"
        if state.open:
            stack, depth = self.stacks.take(3, api.hidden, state.open[-1].anchor)
            if state.open[-1].anchor.depth > depth:
                self._unwind(step, depth)
        else:
            stack, _ = self.stacks.take(3, api.hidden)
        parent = state.parent()
        if parent is None and step.keeps_construct:
            parent = self._loose_parent(step, stack)
        if step.keeps_construct:
            failed = step.failed.get(name)
            if failed is None or failed[1] != parent:
                step.writer.add_call(name, parent)
        sides = selection.sides
        forward = backward = selection.wants_api(api.prefix, api.name)
        if forward and not selection.everything:
            forward = selection.enters(name, parent)
            backward = selection.matches(f"{api.full}.{number}.backward", parent)
        forward, backward = forward and sides.forward, backward and sides.backward and _grad_enabled()
        if not forward and not backward:
            return ApiCall(api, name, number, parent, None)
        if api.parameters is not None:
            args, kwargs = self._as_called(api, sys._getframe(3), args, kwargs)
        side = Side(name, "input", forward and sides.input and step.saves(name))
        encoder = step.encoder if api.ignored is None else api.ignored.encoder(step.encoder)
        data: dict[str, Any] = {"input_args": encoder.positional(args, side)}
        if kwargs:
            side.role = "kwargs"
            data["input_kwargs"] = encoder.keyword(kwargs, side)
        else:
            data["input_kwargs"] = {}
        call = ApiCall(api, name, number, parent, data)
        if forward:
            step.failed.pop(name, None)  # the same name again takes its place in the file
            call.entry = step.writer.add(name, data if sides.input else {}, False)
            call.stack = stack
            call.entry.ordinary = side.ordinary
            step.tally.tensors += side.tensors
        if backward and side.leaves:
            call.edges = self._edges(step, name, side.leaves)
            call.floor = _sequence_number()
        return call

    def _api_ends(self, step: StepRecord, call: ApiCall, result: Any) -> None:
        if call.data is None:
            return
        sides = step.selection.sides
        entry = call.entry
        side = Side(call.name, "output", entry is not None and sides.output and step.saves(call.name))
        ignored = call.api.ignored
        output = (step.encoder if ignored is None else ignored.encoder(step.encoder)).output(result, side)
        if entry is not None:
            if sides.output:
                entry.data["output"] = output
                if not side.ordinary:
                    entry.ordinary = False
                step.tally.tensors += side.tensors
            self._finish(step, call)
            step.tally.calls += 1
            step.tally.apis += 1
        if call.edges is not None and side.leaves:
            backward = f"{call.api.full}.{call.number}.backward"
            step.observers.watch(backward, backward_of(call.parent), side.leaves, call.edges, call.floor)

    def _defer(self, step: StepRecord, call: ApiCall | None, deferred: Deferred) -> None:
        """The call returned before its communication was done: the output comes later, or never."""
        if call is None or call.entry is None:
            return
        ended = call

        def done(output: Any) -> None:
            began = perf_counter()
            try:
                with _NoTorchFunction():
                    self._api_ends(step, ended, output)
            except Exception as error:
                let_through(error)
                self._tell(step, ended.name, f"result could not be recorded: {error!r}")
                self._give_up(step, ended)
            step.tally.spent += perf_counter() - began

        def lost(reason: str) -> None:
            if step.selection.sides.output:
                self._tell(step, ended.name, reason)
            step.tally.calls += 1
            step.tally.apis += 1
            self._give_up(step, ended)

        deferred.keep(done, lost)

    def _api_raised(self, step: StepRecord, call: ApiCall, error: BaseException) -> None:
        """A call that raised keeps its inputs. Its number is free again, unless torch itself cut a recomputation short."""
        if type(error).__name__ == STOPPED:
            self._finish(step, call)
            step.tally.calls += 1
        elif step.counters.give_back(call.api.full, call.number) and call.entry is not None:
            step.failed[call.name] = (lambda: self._finish(step, call), call.parent)
        else:
            self._finish(step, call)

    def _give_up(self, step: StepRecord, call: ApiCall) -> None:
        try:
            self._finish(step, call)
        except Exception as error:
            let_through(error)
            self._tell(step, call.name, f"entry could not be finished: {error!r}")

    def _finish(self, step: StepRecord, call: ApiCall) -> None:
        """The entry of a call stays as it is now."""
        if call.entry is not None and not call.entry.done:
            step.writer.finish(call.entry)
            if step.config.extra_info:
                step.writer.add_stack(call.name, call.stack, call.stack.text)

    def _as_called(
        self, api: Api, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments in the form the call was written in; `frame` called the mode."""
        form = api.form
        if form is None:
            while id(frame.f_code) in api.hidden and frame.f_back is not None:
                frame = frame.f_back
            form = form_of_call(frame, api.name if api.prefix == "Tensor" else "")
        return as_called(api.parameters or (), api.defaults, args, kwargs, form)

    def _loose_parent(self, step: StepRecord, stack: Stack) -> str | None:
        """Parent of an API outside all modules: the optimizer's step and gradient clipping are named."""
        if self._optimizers.open and not self._optimizers.in_closure():
            return "optimizer"
        if stack.marked:
            step.add_loose_parent("clip_grad")
            return "clip_grad"
        return None

    def close_open_modules(self) -> None:
        """See `ModuleRecorder`."""
        super().close_open_modules()
        self._optimizers.clear()

    # --- optimizers -----------------------------------------------------------------------------------------------------------------
    def optimizer_before(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An optimizer's step begins; `args` are those of the call."""
        step = self.step
        try:
            self._optimizers.begin(args, kwargs)
            if step is not None:
                step.forgotten.begins(optimizer, step.calls_so_far())
                if step.config.level == "mix":
                    step.add_loose_parent("optimizer")
        except Exception as error:
            let_through(error)
            if step is not None:
                self._tell(step, "optimizer", f"could not be recorded: {error!r}")

    def optimizer_after(self, optimizer: Any, *_: Any) -> None:
        """An optimizer's step ends."""
        step = self.step
        try:
            self._optimizers.end()
            if step is not None:
                step.forgotten.ends(optimizer, step.calls_so_far())
        except Exception as error:
            let_through(error)
            if step is not None:
                self._tell(step, "optimizer", f"could not be recorded: {error!r}")
