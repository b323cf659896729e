"""The state behind the one debugger of a process: which step is running, whether recording is on, and with which configuration."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

from msprobe import log
from msprobe.config import Config
from msprobe.errors import MsprobeException, UsageError
from msprobe.log import logger
from msprobe.mindspore.debug_save.saving import Saving
from msprobe.mindspore.debug_save.step import SavedStep
from msprobe.mindspore.dump.cell_dump.naming import checked_models
from msprobe.mindspore.dump.recorder import Recorder
from msprobe.mindspore.dump.step_record import StepRecord
from msprobe.mindspore.dump.values import PendingError, raise_failure
from msprobe.mindspore.dump.window import CompilationGuard, Window
from msprobe.mindspore.kernel_dump import starting as kernel_dump
from msprobe.mindspore.kernel_dump.written import Written
from msprobe.mindspore.mindspore_internals import has_grad_nodes, in_graph_mode
from msprobe.mindspore.process import current_rank, rank_in_node, wait_for_device
from msprobe.mindspore.static_dump.starting import StaticDump, not_in_graphs
from msprobe.recording import session as neutral
from msprobe.recording.calling_place import calling_place
from msprobe.recording.selecting import make_selection
from msprobe.recording.session import BaseSession, check_rank_id
from msprobe.recording.stacks import StackCache
from msprobe.writer import new_pool


class Session(BaseSession):
    """The state behind the one debugger of a process."""

    NO_RANK = '"rank" is set, but this process has no rank (communication is not initialised)'
    RANKS_ARE = " of its node"
    step: StepRecord | None

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config = replace(config, risk_level="ALL")  # a field of PyTorch's: here it selects nothing
        self.root = os.path.abspath(config.dump_path)
        self.recorder = Recorder(StackCache())
        self.guard = CompilationGuard(self.recorder)
        self.window: Window | None = None
        self.step = None
        self.saving = Saving(self)
        self.static = StaticDump(self)
        self._kernels_told = False
        """Level L2: MindSpore knows what to dump."""
        self._kernels: Written | None = None
        saves = config.task == "tensor" or bool(config.section.tensor_list)
        self.pool = new_pool() if saves and config.level != "L2" else None
        if config.async_dump:
            logger.warning('"async_dump" changes nothing with MindSpore: each value is read when it is made, and the device is waited for')
        if config.level == "debug":
            self._tell_static_fields()  # nobody has to call start()

    def selects(self, rank: int | None, called: str = "start()") -> bool:
        """Whether this step is recorded on this rank. `rank` of the configuration counts from 0 on every node, and holds for all of them.

        Args:
            rank: among all processes, as in the names of directories; or the one that the user has given.
            called: what asks.
        """
        if rank is not None and self.config.rank and current_rank() is not None:
            of_node = rank_in_node()
            if of_node is None:
                text = '"rank": MindSpore does not say which process of its node this is, so it is compared with the rank among all'
                self.tell_once("node", text)
            else:
                rank = of_node
        return super().selects(rank, called)

    def start(self, model: Any, rank_id: int | None = None) -> None:
        """Recording is on from here, if this step and rank are selected."""
        config = self.config
        check_rank_id(rank_id)
        if config.level in ("L0", "mix"):
            if model is None:
                raise UsageError(f'start(model): model is missing; level "{config.level}" records cells and needs it')
            checked_models(model)
        elif model is not None:
            checked_models(model)
        if os.getpid() != self.pid or config.level == "debug":
            return
        if config.level == "L2":
            if not self._kernels_told:
                self._kernels_told = True
                self._kernels = kernel_dump.start(config, self.root, model)
            return
        if config.level == "L0" and config.task != "structure" and in_graph_mode():
            self._tell_file_format()
            self.static.start(model, rank_id)
            return
        if self.window is not None:
            self.tell_started()
            return
        rank = current_rank() if rank_id is None else rank_id
        if not self.selects(rank):
            return
        if in_graph_mode():
            self.tell_once("graph", not_in_graphs(config))
        began = perf_counter()
        self.started_at = calling_place()
        log.set_rank(rank)
        if self.step is None:
            place = self.place_of(rank)
            self.step = StepRecord(config, self.number, place, make_selection(config, self.names_seen), self.pool)
            self.tell_begun(f"recording {config.task} at level {config.level} into {self.step.directory}")
            self._tell_static_fields()
            if not has_grad_nodes and self.step.selection.sides.backward:
                self.tell_once("nodes", "this MindSpore does not show its backward graph: gradients of calls are not recorded")
        window = Window(self.recorder, config.level, model)
        self.step.tally.modules_hooked = max(self.step.tally.modules_hooked, window.watched)
        self.recorder.step = self.guard.step = self.step
        self.window = self.guard.window = window
        self.guard.open()
        window.open()
        self.step.tally.spent += perf_counter() - began

    def _tell_static_fields(self) -> None:
        """The configuration asks for what compiled graphs alone have."""
        section = self.config.section
        values = {"summary_mode": section.summary_mode, "device": section.device}
        instead = {"summary_mode": "statistics", "device": "host"}
        for field, value in values.items():
            if isinstance(value, tuple) or value == "device":
                shown = list(value) if isinstance(value, tuple) else value
                where = f'"{self.config.task}"."{field}"'
                self.tell_once(field, f'{where} {shown!r} is for compiled graphs: here it is "{instead[field]}"')
        self._tell_file_format()

    def _tell_file_format(self) -> None:
        """The configuration asks for files as level L2 alone has them."""
        if self.config.section.file_format != "npy":
            text = f'"{self.config.task}"."file_format" {self.config.section.file_format!r} is for level "L2": here it is "npy"'
            self.tell_once("file_format", text)

    def stop(self) -> None:
        """Recording is off from here; gradients of what was recorded still come until the step ends."""
        self.static.stop()
        window = self.window
        if window is None:
            return
        began = perf_counter()
        window.close()
        self.window = self.guard.window = None
        self.recorder.step = None
        if self.step is not None:
            self.tell_unmatched(self.step)
            self.step.tally.spent += perf_counter() - began

    def end_step(self) -> None:
        """Everything is on disk, and the next start() begins a new step."""
        neutral.every_part(self.stop, self._end_step)

    def _end_step(self) -> None:
        step, self.step = self.step, None
        saved = self.saving.take()
        self.number += 1
        if os.getpid() != self.pid:
            return
        failures: list[Exception | None] = []
        parts: list[Callable[[], None]] = []
        if step is not None or saved is not None:
            parts.append(lambda: failures.append(wait_for_device()))
        parts.append(self.static.end_step)
        if saved is not None:
            parts.append(partial(self._close, saved))
        if step is not None:
            self.guard.step = None
            parts += [self.guard.close, partial(self._close, step), partial(self.tell_unmatched, step, ended=True)]
        neutral.every_part(*parts, lambda: raise_failure(failures[0] if failures else None))

    def _close(self, step: StepRecord | SavedStep) -> None:
        try:
            step.close(self.late.take())
        finally:
            step.writer.close()  # whatever went wrong: its files are complete
            self.has_ended(step)

    def at_exit(self) -> None:
        """The interpreter ends: a step that nobody ended is ended, and a run that recorded nothing says so."""
        if os.getpid() != self.pid:
            return
        if self._kernels is not None:
            wait_for_device()
            self._kernels.tell()
        self.stop()
        running = self.step or self.static.step
        if running is not None:
            logger.warning(f"step {running.step} was not ended by step(); it is ended now")
        if running is not None or self.saving.step is not None:
            try:
                self.end_step()
            except PendingError as pending:
                logger.warning(f"an operation of the step had failed: {pending.error!r}")
        elif self.ended or self.config.level == "L2":
            return
        else:
            self.tell_nothing("save()" if self.config.level == "debug" else "start()")

    def forget(self) -> None:
        """A forked child records nothing: everything of ours is switched off there."""
        self.lock = threading.RLock()  # another thread may have held it, and is not here to give it back
        window, self.window = self.window, None
        self.recorder.step = self.guard.step = self.guard.window = self.step = None
        self.saving.forget()
        self.static.forget()
        if window is not None:
            window.close()
        self.guard.close()

    def switch_off(self) -> None:
        """Something of ours failed: nothing of it stays in place."""
        window, self.window = self.window, None
        self.recorder.step = self.guard.window = None
        self.static.switch_off()
        if window is not None:
            window.close()


def contained(action: Callable[[], None], session: Session) -> None:
    """Run an action of ours; a mistake of the user's is told, one of ours only logged: the training goes on."""
    try:
        neutral.contained(action, session)
    except MsprobeException as error:
        session.why_nothing = str(error)
        raise
    except PendingError as pending:  # an operation of the user's failed, and waiting for it was the first to be told
        raise pending.error from None
