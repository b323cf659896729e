"""One window of recording: what start switches on in torch and on the model, and stop switches off again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from msprobe.log import logger
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.api_dump.api_table import ApiTable
from msprobe.pytorch.dump.api_dump.mode import ApiMode
from msprobe.pytorch.dump.api_dump.operators import OperatorSpelling
from msprobe.pytorch.dump.backward_window import BackwardWindow, ThreadWindow
from msprobe.pytorch.dump.module_dump.fast_path import FastPathGuard
from msprobe.pytorch.dump.module_dump.hooks import ModuleHooks
from msprobe.pytorch.dump.recorder import Recorder


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
        self.mode = ApiMode(table, recorder.state, recorder.api) if table is not None else None
        self._spelling = spelling
        self._hooks: ModuleHooks | None = None
        self._undo: list[Callable[[], Any]] = []

    def open(self, model: object | None) -> int:
        """Switch everything on; gives the number of hooked modules."""
        recorder = self._recorder
        recorder.mode = self.mode
        restore = torch_internals.force_eager()
        if restore is not None:
            self._undo.append(restore)
        hooks = ModuleHooks(recorder.module_before, recorder.module_after, recorder.skipped_module)
        self._hooks = hooks
        if model is not None:
            self._undo.append(hooks.remove)
            hooks.register(model)
        self._undo.append(register_optimizer_step_pre_hook(recorder.optimizer_before).remove)
        self._undo.append(register_optimizer_step_post_hook(recorder.optimizer_after).remove)
        mode = self.mode
        if mode is not None:
            for part in (BackwardWindow(mode, self._state), ThreadWindow(mode, self._state), FastPathGuard(mode)):
                part.on()
                self._undo.append(part.off)
            if self._spelling is not None:
                self._spelling.on()
                self._undo.append(self._spelling.off)
            for stale in torch_internals.modes_of_this_thread(ApiMode):  # left by a stop() that another thread called
                torch_internals.remove_mode(stale)
            torch_internals.insert_mode_at_bottom(mode)
            self._state.has_mode = True
            self._undo.append(lambda: torch_internals.remove_mode(mode))
        return hooks.count

    def close(self) -> None:
        """Switch everything off, in reverse; one part that fails does not keep the others."""
        self._state.has_mode = False
        if self.mode is not None:
            self.mode.active = False  # other threads let everything pass from now on
        for undo in reversed(self._undo):
            try:
                undo()
            except Exception as error:
                logger.warning(f"could not undo a part of start(): {error!r}")
        self._undo.clear()
        self._recorder.close_open_modules()
