"""Records calls of modules while a window is open."""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.api_call import backward_of
from msprobe.pytorch.dump.api_dump.mode import ApiMode
from msprobe.pytorch.dump.encoder import CUT_SHORT, NO_RESULT, Side
from msprobe.pytorch.dump.graph_walk import SeenEdge, edges_of
from msprobe.pytorch.dump.module_dump.hooks import HookPlan
from msprobe.pytorch.dump.step_record import StepRecord
from msprobe.recording.calls import OpenModule, ThreadState
from msprobe.recording.stacks import StackCache

_NoTorchFunction = torch_internals.NoTorchFunction
_grad_enabled = torch.is_grad_enabled
_sequence_number = torch_internals.sequence_number
STOPPED = "_StopRecomputationError"
"""torch's class of what ends a recomputation."""


class ModuleRecorder:
    """Turns what hooks see of modules into entries of the running step. A `Recorder` is one, and sees APIs too.

    Every method that user code reaches contains its own errors: they are reported, and the call goes on as if nobody watched.
    """

    def __init__(self, stacks: StackCache) -> None:
        self.state = ThreadState()
        self.stacks = stacks
        self.step: StepRecord | None = None
        self.mode: ApiMode | None = None
        self.only: str | None = None
        """Between module_dump and module_dump_end: the one module that is recorded, as `Module.{name}.{Class}`."""
        self.hook_plan = HookPlan()
        self.modules_in_c: Any = None
        """What records modules in the window that is open, where that is done in C."""

    def _tell(self, step: StepRecord, entry: str, reason: str) -> None:
        """Report what was not recorded, whatever happens meanwhile."""
        try:
            step.report(entry, reason)
        except Exception as caught:
            let_through(caught)
            step.unrecorded.count += 1

    def _edges(self, step: StepRecord, name: str, tensors: list[torch.Tensor]) -> list[SeenEdge]:
        with _NoTorchFunction():
            return edges_of(tensors, lambda reason: self._tell(step, name, reason))

    def module_before(self, prefix: str, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A module's forward begins."""
        step = self.step
        if step is None or (self.only is not None and prefix != self.only) or torch_internals.is_compiling():
            return
        began = perf_counter()
        try:
            with _NoTorchFunction():
                self._module_begins(step, prefix, module, args, kwargs)
            if self.mode is not None:
                self._guard_thread()
        except Exception as error:
            let_through(error)
            self._tell(step, prefix, f"module could not be recorded: {error!r}")
        step.tally.spent += perf_counter() - began

    def _module_begins(self, step: StepRecord, prefix: str, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        state = self.state
        stack, anchor = self.stacks.enter(4, state.open[-1].anchor if state.open else None)
        if state.open and state.open[-1].anchor.depth >= anchor.depth:
            self._unwind(step, anchor.depth - 1)
        number = step.counters.take(prefix)
        name = f"{prefix}.forward.{number}"
        selection = step.selection
        parent = state.parent()
        opened = OpenModule(name, module, anchor)
        if step.keeps_construct:
            step.writer.add_call(name, parent)
        state.open.append(opened)
        sides = selection.sides
        forward = selection.enters(name, parent) and sides.forward
        with_gradients = sides.backward and _grad_enabled()
        backward = with_gradients and (selection.everything or selection.matches(f"{prefix}.backward.{number}", parent))
        opened.parent, opened.prefix, opened.number, opened.forward = parent, prefix, number, forward
        parameters = module._parameters
        gradients = with_gradients and bool(parameters) and (selection.everything or selection.may_want_gradients(prefix))
        if not forward and not backward:
            if gradients:
                step.parameter_gradients.watch(prefix, parameters)
            return
        side = Side(name, "input", forward and sides.input and step.saves(name))
        encoder = step.encoder
        data: dict[str, Any] = {"input_args": encoder.positional(args, side)}
        side.role = "kwargs"
        data["input_kwargs"] = encoder.keyword(kwargs, side)
        opened.tensors = side.tensors if sides.input else 0
        opened.ordinary = side.ordinary
        leaves = list(side.leaves)
        if forward and sides.output:
            data["output"] = None
            data["parameters"] = self._parameters(step, name, parameters, opened)
        opened.data = data
        if forward and step.config.extra_info:
            step.writer.add_stack(name, stack, stack.text)
        if backward:
            opened.edges = self._edges(step, name, leaves)
            opened.floor = _sequence_number()
        if gradients:
            step.parameter_gradients.watch(prefix, parameters)

    def _parameters(self, step: StepRecord, name: str, parameters: dict[str, Any], opened: OpenModule) -> dict[str, Any]:
        side = Side(name, "parameters", step.saves(name))
        records = step.encoder.keyword({key: value for key, value in parameters.items() if value is not None}, side)
        opened.tensors += side.tensors
        opened.ordinary = opened.ordinary and side.ordinary
        return records

    def module_after(self, prefix: str, module: torch.nn.Module, output: Any) -> None:
        """A module's forward ends, by returning or by an exception (then `output` is None)."""
        step = self.step
        state = self.state
        if step is None or not state.open or torch_internals.is_compiling():
            return
        began = perf_counter()
        try:
            opened = state.open[-1]
            if opened.key is not module:
                if all(other.key is not module for other in state.open):
                    return  # start() came while this module was running
                while state.open[-1].key is not module:
                    self._close_module(step, state.open.pop())
                opened = state.open[-1]
            state.open.pop()
            with _NoTorchFunction():
                if output is None and (error := sys.exc_info()[1]) is not None:  # hooks are given None when a forward raises
                    output = CUT_SHORT if type(error).__name__ == STOPPED else NO_RESULT
                self._close_module(step, opened, output)
        except Exception as error:
            let_through(error)
            self._tell(step, prefix, f"module's result could not be recorded: {error!r}")
        step.tally.spent += perf_counter() - began

    def _module_ends(self, step: StepRecord, opened: OpenModule, output: Any) -> None:
        data, opened.data = opened.data, None
        sides = step.selection.sides
        name = opened.name
        if not opened.forward and opened.prefix and step.selection.ends_inside(name) and sides.forward and sides.output:
            # The scope opened inside this module: what it gives belongs to it, what it took came before.
            data, opened.forward = {"output": None, "parameters": self._parameters(step, name, opened.key._parameters, opened)}, True
        if data is None:
            return
        side = Side(name, "output", opened.forward and sides.output and step.saves(name))
        encoded = step.encoder.output(output, side)
        if "output" in data:
            data["output"] = encoded
            opened.tensors += side.tensors
        if not sides.input:
            data.pop("input_args", None)
            data.pop("input_kwargs", None)
        if opened.forward:
            step.writer.add(name, data, True, opened.ordinary and side.ordinary)
            step.tally.calls += 1
            step.tally.modules.add(opened.prefix)
            step.tally.tensors += opened.tensors
        if opened.edges is not None and side.leaves and _grad_enabled():
            backward = f"{opened.prefix}.backward.{opened.number}"
            step.observers.watch(backward, backward_of(opened.parent), side.leaves, opened.edges, opened.floor)

    def skipped_module(self, name: str, reason: str) -> None:
        """A module that takes no hooks."""
        if self.step is not None:
            self.step.tally.modules_skipped += 1
            self.step.report(name, reason)

    def _unwind(self, step: StepRecord, depth: int) -> None:
        """Close modules that were left by an exception which runs no hooks (KeyboardInterrupt, SystemExit, GeneratorExit)."""
        for gone in self.state.unwind(depth):
            self._close_module(step, gone)

    def _close_module(self, step: StepRecord, opened: OpenModule, output: Any = NO_RESULT) -> None:
        state, mode = self.state, self.mode
        if mode is not None and opened.entered_mode:
            torch_internals.remove_mode(mode)
            state.mode = None
        self._module_ends(step, opened, output)

    def close_open_modules(self) -> None:
        """stop() came while modules were running: they are recorded without a result."""
        step, state = self.step, self.state
        while state.open:
            opened = state.open.pop()
            if step is not None:
                try:
                    self._close_module(step, opened)
                except Exception as error:
                    let_through(error)
                    self._tell(step, opened.name, f"module could not be closed: {error!r}")
        state.inside = False

    def _guard_thread(self) -> None:
        """Put the mode on in a thread that has none, for the duration of its outermost module."""
        state, mode = self.state, self.mode
        if mode is None or not state.open:
            return
        if state.mode is not mode and len(state.open) == 1:
            torch_internals.insert_mode_at_bottom(mode)
            state.mode = mode
            state.open[-1].entered_mode = True
