"""One window of recording: what start switches on in torch and on the model, and stop switches off again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from msprobe.contain import let_through
from msprobe.log import logger
from msprobe.pytorch import compile_internals, torch_internals
from msprobe.pytorch.custom_api import WatchedApis
from msprobe.pytorch.dump import common_case
from msprobe.pytorch.dump.api_dump.api_table import ApiTable
from msprobe.pytorch.dump.api_dump.mode import AMBIGUOUS, ApiMode
from msprobe.pytorch.dump.api_dump.operators import OperatorSpelling
from msprobe.pytorch.dump.backward_window import BackwardWindow, ThreadWindow
from msprobe.pytorch.dump.common_gradients import QuickObservers
from msprobe.pytorch.dump.distributed.communication import CommunicationWindow
from msprobe.pytorch.dump.distributed.reduced_gradients import ReducedGradients
from msprobe.pytorch.dump.module_dump import engine
from msprobe.pytorch.dump.module_dump.fast_path import FastPathGuard
from msprobe.pytorch.dump.module_dump.hooks import ModuleHooks, ScriptGuard
from msprobe.pytorch.dump.module_dump.naming import all_modules, checked_models
from msprobe.pytorch.dump.recorder import Recorder


def remove_stale_modes() -> None:
    """Take off modes of windows that another thread has closed: only the thread that entered a mode can leave it."""
    for mode in torch_internals.modes_of_this_thread(ApiMode):
        if not mode.active:
            torch_internals.remove_mode(mode)


class Window:
    """Between start and stop.

    Args:
        recorder: records the calls.
        table: the watched functions, None where only modules are recorded (level L0).
        spelling: notes operators' spelling.
    """

    def __init__(self, recorder: Recorder, table: ApiTable | None, spelling: OperatorSpelling | None) -> None:
        self._recorder = recorder
        self._state = recorder.state
        self.mode = ApiMode(table, recorder.state, recorder.api, recorder.lookup_failed) if table is not None else None
        self._communications = table.communications if table is not None else []
        self._spelling = spelling
        self._table = table
        self._hooks: ModuleHooks | None = None
        self._undo: list[Callable[[], Any]] = []

    def open(self, model: object | None) -> int:
        """Switch everything on; gives the number of hooked modules."""
        recorder = self._recorder
        recorder.mode = self.mode
        restore = compile_internals.force_eager()
        if restore is not None:
            self._undo.append(restore)
        hooks = ModuleHooks(*common_case.module_hooks(recorder), recorder.skipped_module, recorder.hook_plan)
        self._hooks = hooks
        if model is not None:
            recorder.modules_in_c = common_case.module_calls(recorder)
            guard = ScriptGuard()
            self._undo.append(guard.off)
            guard.on()
            self._undo.append(hooks.remove)
            modules = hooks.register(model)
            if engine.is_loaded():
                self._watch_engine(model)
            self._watch_reductions(model)
            self._tell_replicas(model)
            self._tell_compiled(modules)
        if recorder.step is not None and common_case.is_common(recorder.step):
            quick = QuickObservers()
            self._undo.append(quick.off)
            quick.on()
        self._undo.append(register_optimizer_step_pre_hook(recorder.optimizer_before).remove)
        self._undo.append(register_optimizer_step_post_hook(recorder.optimizer_after).remove)
        mode = self.mode
        if mode is not None and self._table is not None:
            mode.in_c = common_case.api_calls(recorder, self._table, AMBIGUOUS)
            communication = CommunicationWindow(self._state, recorder.api, self._communications)
            for part in (
                BackwardWindow(mode, self._state),
                ThreadWindow(mode, self._state),
                FastPathGuard(mode),
                communication,
                WatchedApis(self._table, recorder),
            ):
                self._undo.append(part.off)  # first: an interruption of the user's may come between any two lines
                part.on()
            if self._spelling is not None:
                self._undo.append(self._spelling.off)
                self._spelling.on()
            remove_stale_modes()
            self._undo.append(lambda: torch_internals.remove_mode(mode))
            torch_internals.insert_mode_at_bottom(mode)
            self._state.mode = mode
        return hooks.count

    def _watch_engine(self, model: object) -> None:
        """Modules of vLLM that are called in other ways than `module(...)`."""
        recorder, state = self._recorder, self._state

        def caller() -> str:
            return state.open[-1].prefix if state.open else ""

        part = engine.EngineModules(model, recorder.hook_plan, *common_case.module_hooks(recorder), recorder.skipped_module, caller)
        self._undo.append(part.off)
        try:
            part.on()
        except Exception as error:  # another version of vLLM: its modules are recorded as far as they run hooks
            let_through(error)
            logger.warning(f"some modules of vLLM cannot be watched: {error!r}")

    def _watch_reductions(self, model: object) -> None:
        """Gradients that are reduced over the ranks are recorded once more; the observers stay until the step ends."""
        step = self._recorder.step
        if step is not None and step.selection.sides.backward and step.parameter_gradients.reduced is None:
            with torch_internals.NoTorchFunction():
                step.parameter_gradients.reduced = ReducedGradients(all_modules(model), step.parameter_gradients, step.report)

    def _tell_replicas(self, model: object) -> None:
        """DataParallel on several devices calls copies that it makes anew every time."""
        for prefix, root in checked_models(model):
            if isinstance(root, torch.nn.DataParallel) and len(root.device_ids) > 1:
                name = f"Module.{prefix}module.{type(root.module).__name__}"
                self._recorder.skipped_module(name, "DataParallel calls replicas of the modules, which are not recorded (their APIs are)")

    def _tell_compiled(self, modules: list[torch.nn.Module]) -> None:
        recorder = self._recorder
        if not recorder.told_compiled and compile_internals.any_compiled(modules):
            recorder.told_compiled = True
            logger.info("compiled code runs eagerly between start() and stop(), and is recorded; its results may differ in the last bits")

    def close(self) -> None:
        """Switch everything off, in reverse; one part that fails or is interrupted is tried again, and does not keep the others."""
        self._state.mode = None
        self._recorder.modules_in_c = None
        if self.mode is not None:
            self.mode.in_c = None
            self.mode.active = False  # other threads let everything pass from now on
        while self._undo:  # what is cut off by an interruption of the user's goes on at the next call
            try:
                self._undo[-1]()
            except Exception as error:
                let_through(error)
                logger.warning(f"could not undo a part of start(): {error!r}")
            self._undo.pop()
        self._recorder.close_open_modules()
