"""The state behind the one debugger of a process: which step is running, whether recording is on, and with which configuration."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

from msprobe import log, numerics
from msprobe.config import Config
from msprobe.contain import let_through
from msprobe.errors import MsprobeException, UsageError
from msprobe.log import logger
from msprobe.mindspore.dump.cell_dump.naming import checked_models
from msprobe.mindspore.dump.recorder import Recorder
from msprobe.mindspore.dump.step_record import StepRecord, Tally
from msprobe.mindspore.dump.values import PendingError
from msprobe.mindspore.dump.window import CompilationGuard, Window
from msprobe.mindspore.kernel_dump import starting as kernel_dump
from msprobe.mindspore.mindspore_internals import has_grad_nodes, in_graph_mode
from msprobe.mindspore.process import calling_place, current_rank, wait_for_device
from msprobe.mindspore.save.saving import Saving
from msprobe.mindspore.static_dump.recorder import RECORDER
from msprobe.mindspore.static_dump.starting import StaticDump, not_in_graphs
from msprobe.recording.place import Place
from msprobe.recording.selecting import make_selection
from msprobe.recording.stacks import StackCache
from msprobe.recording.unmatched import NamesSeen
from msprobe.writer import TensorPool

_NO_RANK = '"rank" is set, but this process has no rank (communication is not initialised)'


class Session:
    """The state behind the one debugger of a process."""

    def __init__(self, config: Config) -> None:
        if not numerics.HAVE_KERNELS:
            logger.warning("the C kernels were not built when msprobe was installed (no compiler): numpy takes the statistics, more slowly")
        self.config = config = replace(config, risk_level="ALL")  # a field of PyTorch's: here it selects nothing
        self.lock = threading.RLock()
        self.number = 0
        self.pid = os.getpid()
        self.root = os.path.abspath(config.dump_path)
        self.names_seen = NamesSeen()
        self.place: Place | None = None
        self.recorder = Recorder(StackCache())
        self.guard = CompilationGuard(self.recorder)
        self.window: Window | None = None
        self.step: StepRecord | None = None
        self.why_nothing = ""
        self.unselected: int | None = None
        """The rank of this process, where the configuration selects others."""
        self._ended: list[Tally] = []
        self._told: set[str] = set()
        self.saving = Saving(self)
        self.static = StaticDump(self)
        self._kernels_told = False
        """Level L2: MindSpore knows what to dump."""
        self._started_at = ""
        saves = config.task == "tensor" or bool(config.section.tensor_list)
        self.pool = TensorPool() if saves and config.level != "L2" else None

    def start(self, model: Any, rank_id: int | None = None) -> None:
        """Recording is on from here, if this step and rank are selected."""
        config = self.config
        if rank_id is not None and (isinstance(rank_id, bool) or not isinstance(rank_id, int) or rank_id < 0):
            raise UsageError(f"start(rank_id): rank_id is {rank_id!r}; allowed: an integer of 0 or more")
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
                kernel_dump.start(config, self.root)
            return
        if config.level == "L0" and config.task != "structure" and in_graph_mode():
            self.static.start(model)
            return
        if self.window is not None:
            self._tell_once(
                "started",
                f"start() at {calling_place()} changes nothing: recording is on since start() at {self._started_at}, and no stop() came in"
                " between; end each iteration with stop() and step()",
            )
            return
        rank = current_rank() if rank_id is None else rank_id
        if not self.selects(rank):
            return
        if in_graph_mode():
            self._tell_once("graph", not_in_graphs(config))
        began = perf_counter()
        self._started_at = calling_place()
        log.set_rank(rank)
        if self.step is None:
            place = self.place_of(rank)
            self.step = StepRecord(config, self.number, place, make_selection(config, self.names_seen), self.pool)
            told = logger.debug if self._ended else logger.info  # once is enough to know what is going on
            told(f"step {self.number}: recording {config.task} at level {config.level} into {self.step.directory}")
            if not has_grad_nodes and self.step.selection.sides.backward:
                self._tell_once("nodes", "this MindSpore does not show its backward graph: gradients of calls are not recorded")
        window = Window(self.recorder, config.level, model)
        self.step.tally.cells_watched = max(self.step.tally.cells_watched, window.watched)
        self.recorder.step = self.guard.step = self.step
        self.window = self.guard.window = window
        self.guard.open()
        window.open()
        self.step.tally.spent += perf_counter() - began

    def selects(self, rank: int | None) -> bool:
        """Whether this step is recorded on this rank."""
        config = self.config
        if config.step and self.step is None and self.number not in config.step:
            self.why_nothing = "start() was called in none of these"
            return False
        if config.rank and rank not in config.rank:
            self.why_nothing, self.unselected = _NO_RANK, rank
            if rank is None:
                self._tell_once("rank", f'{_NO_RANK}, so nothing is recorded; leave "rank" empty')
            return False
        return True

    def place_of(self, rank: int | None) -> Place:
        """Where this process writes."""
        place = self.place
        if place is None or place.rank != rank:
            if place is not None:
                place.release()
            place = self.place = Place(self.root, self.number, rank)
        return place

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
            for text in self.step.selection.unmatched():
                logger.warning(text)
            self.step.tally.spent += perf_counter() - began

    def end_step(self) -> None:
        """Everything is on disk, and the next start() begins a new step."""
        self.stop()
        step, self.step = self.step, None
        number, self.number = self.number, self.number + 1
        if os.getpid() == self.pid:
            self.saving.end_step()
            self.static.end_step()
        if os.getpid() != self.pid or step is None:
            return
        failure = wait_for_device()
        self.guard.close()
        self.guard.step = None
        late = sum(tally.late for tally in self._ended)
        for tally in self._ended:
            tally.late = 0
        step.close(late)
        for text in step.selection.unmatched(ended=True):
            logger.warning(text)
        self._ended = [*self._ended[-3:], step.tally]
        if self.config.step and number >= max(self.config.step):
            text = f'step {max(self.config.step)} was the last one selected by "step": nothing more is recorded'
            self._tell_once("last", text, logger.info)
        if failure is not None:
            raise PendingError(failure)

    def at_exit(self) -> None:
        """The interpreter ends: a step that nobody ended is ended, and a run that recorded nothing says so."""
        if os.getpid() != self.pid:
            return
        self.stop()
        if self.saving.step is not None or RECORDER.step is not None:
            self.end_step()
        elif self.step is not None:
            logger.warning(f"step {self.step.step} was not ended by step(); it is ended now")
            try:
                self.end_step()
            except PendingError as pending:
                logger.warning(f"an operation of the step had failed: {pending.error}")
        elif self._ended or self.static.ended or self.config.level in ("debug", "L2"):
            return
        elif self.unselected is not None:
            logger.info(f'nothing was recorded: "rank" does not select rank {self.unselected}')
        else:
            steps = f', and only the steps {sorted(self.config.step)} are selected by "step"' if self.config.step else ""
            why = self.why_nothing or "is start() called, in this process?"
            logger.warning(f"nothing was recorded: {self.number} steps were ended by step(){steps}; {why}")

    def forget(self) -> None:
        """A forked child records nothing: everything of ours is switched off there."""
        self.lock = threading.RLock()  # another thread may have held it, and is not here to give it back
        window, self.window = self.window, None
        self.recorder.step = self.guard.step = self.guard.window = self.step = None
        self.saving.forget()
        if window is not None:
            window.close()
        self.guard.close()

    def switch_off(self) -> None:
        """Something of ours failed: nothing of it stays in place."""
        window, self.window = self.window, None
        self.recorder.step = self.guard.window = None
        if window is not None:
            window.close()

    def _tell_once(self, key: str, text: str, tell: Callable[[str], None] = logger.warning) -> None:
        if key not in self._told:
            self._told.add(key)
            tell(text)


def contained(action: Callable[[], None], session: Session) -> None:
    """Run an action of ours; a mistake of the user's is told, one of ours only logged: the training goes on."""
    try:
        action()
    except MsprobeException as error:
        session.why_nothing = str(error)
        raise
    except PendingError as pending:  # an operation of the user's failed, and waiting for it was the first to be told
        raise pending.error from None
    except Exception as error:
        let_through(error)
        logger.error(f"recording failed and is off until the next start(): {error!r}", exc_info=log.logger.isEnabledFor(10))
        try:
            session.switch_off()
        except Exception as second:
            let_through(second)
            logger.error(f"could not switch recording off: {second!r}")
