"""The state behind the one debugger of a process: which step is running, whether recording is on, and with which configuration."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, TypeAlias

import torch

from msprobe import log, numerics
from msprobe.config import Config
from msprobe.errors import MsprobeException, UsageError
from msprobe.log import logger
from msprobe.pytorch.dump.api_dump.api_table import ApiTable
from msprobe.pytorch.dump.api_dump.operation_files import read_operation_files
from msprobe.pytorch.dump.api_dump.operators import OperatorSpelling
from msprobe.pytorch.dump.checks.choosing import earlier_dump
from msprobe.pytorch.dump.checks.earlier_dump import EarlierDump
from msprobe.pytorch.dump.distributed import late_rank
from msprobe.pytorch.dump.forgotten_step import HINT
from msprobe.pytorch.dump.module_dump.naming import checked_models
from msprobe.pytorch.dump.recorder import Recorder
from msprobe.pytorch.dump.step_record import StepRecord
from msprobe.pytorch.dump.token_range import TokenRange, checked_range
from msprobe.pytorch.dump.window import Window, remove_stale_modes
from msprobe.pytorch.live_config import LiveConfig, changes
from msprobe.pytorch.load.override import Override
from msprobe.pytorch.process import current_rank, maybe_forked
from msprobe.pytorch.recording_context import OpenRecordings
from msprobe.pytorch.save.saving import Saving
from msprobe.pytorch.save.step import SavedStep
from msprobe.pytorch.torch_internals import CLIP_CODES, COMPUTING_LIBRARY, MODULE_CALL_CODES
from msprobe.recording.calling_place import calling_place
from msprobe.recording.selecting import make_selection
from msprobe.recording.session import BaseSession, check_rank_id, contained
from msprobe.recording.stacks import StackCache
from msprobe.writer import TensorPool, new_pool

__all__ = ["Model", "Session", "contained"]

Model: TypeAlias = "torch.nn.Module | Sequence[torch.nn.Module]"


class Session(BaseSession):
    """The state behind the one debugger of a process."""

    NO_RANK = '"rank" is set, but this process has no rank (no process group)'
    step: StepRecord | None

    def __init__(self, live: LiveConfig) -> None:
        super().__init__()
        if not maybe_forked():
            numerics.share_threads(COMPUTING_LIBRARY)
        self.recorder = Recorder(StackCache(MODULE_CALL_CODES, CLIP_CODES))
        self.window: Window | None = None
        self.tokens: TokenRange | None = None
        self.step = None
        try:
            self._directory = os.getcwd()
        except OSError:  # it has been removed: an absolute dump_path needs none
            self._directory = ""
        self.forgotten_hint: str | None = HINT
        """What to do where one step holds several iterations; None: that is meant."""
        self.live = live
        self._first = live.config
        self._next: Config | None = None
        """What the file says since the running step began; it holds from the next one on."""
        self.enabled = live.config.dump_enable is not False
        self.pool: TensorPool | None = None
        self.earlier: EarlierDump | None = None
        """The dump that the run is compared with while it runs."""
        self.override: Override | None = None
        """Replaces inputs of modules, where the configuration has `load`."""
        self.saving = Saving(self)
        self.recordings = OpenRecordings(self, lambda action: contained(action, self))
        self.use(live.config)
        if not self.enabled:
            logger.info(f'"dump_enable" is false: nothing is recorded until it becomes true in {live.config.source}')

    def use(self, config: Config) -> None:
        """Make everything that follows from the configuration alone; nothing is changed if that fails."""
        earlier = earlier_dump(config, self.earlier)
        override = self.override
        if override is None or override.load != config.load:
            override = Override(config.load, directory=self._directory) if config.load is not None else None
        uses_apis = config.records and config.level in ("L1", "mix")
        self.table = ApiTable(read_operation_files(config.ops_dir)) if uses_apis else None
        self.earlier, self.override = earlier, override
        self.spelling = OperatorSpelling(self.recorder.state) if uses_apis else None
        self.root = os.path.abspath(os.path.join(self._directory, config.dump_path))
        saves = config.records and (config.task == "tensor" or bool(config.section.tensor_list))
        if saves and self.pool is None:
            self.pool = new_pool()
        self.saves = saves
        self.config = config

    def look_at_file(self) -> None:
        """Take over what has changed in config.json: `dump_enable` at once, all else when the next step begins."""
        changed = self.live.changed()
        if changed is not None:
            self._next = changed if changed != self.config else None
            enabled = self.enabled if changed.dump_enable is None else changed.dump_enable
            if enabled is not self.enabled or changed.dump_enable is None:
                says = "is gone from the file" if changed.dump_enable is None else f"is {json.dumps(enabled)} now"
                logger.info(f'"dump_enable" {says}: recording is {"on" if enabled else "off"} at step {self.number}')
            self.enabled = enabled
            different = changes(self.config, changed)
            if different:
                since = self.number + 1 if self.in_step else self.number
                logger.info(f"{changed.source} has changed: {', '.join(different)}; this holds from step {since} on")
        if self._next is not None and not self.in_step:
            new, self._next = self._next, None
            try:
                self.use(new)
                self.told -= {"model", "last"}
            except MsprobeException as error:
                logger.warning(f"{new.source} has changed, and cannot be used; recording goes on as before:\n{error}")

    @property
    def on(self) -> bool:
        """Whether start() was called, and stop() not yet."""
        return self.window is not None or self.tokens is not None or (self.override is not None and self.override.on)

    @property
    def in_step(self) -> bool:
        """Whether the running step has begun to record or to load."""
        return self.step is not None or self.saving.step is not None or (self.override is not None and self.override.in_step)

    def start(self, model: Model | None, token_range: Any, rank_id: int | None) -> None:
        try:
            self._start(model, token_range, rank_id)
        except MsprobeException as error:
            self.why_nothing = str(error)
            if self.override is not None:
                self.override.refused = str(error)
            raise

    def _start(self, model: Model | None, token_range: Any, rank_id: int | None) -> None:
        if self.config is self._first:
            _check_model(model, self.config)
        check_rank_id(rank_id)
        tokens = checked_range(model, token_range) if token_range is not None else None
        if os.getpid() != self.pid:
            return
        if self.on:
            if not self.recordings.begins:
                self.tell_started()
            return
        self.started_at = calling_place()
        began = perf_counter()
        if self.live.watched:
            self.look_at_file()
        rank = current_rank() if rank_id is None else rank_id
        self.saving.rank_id = rank_id
        records = self.config.level != "debug" and self.selects(rank)
        loads = self.override is not None and self.override.wants(self.number, rank)
        if not (records or loads) or (self.config is not self._first and not self._has_model(model)):
            return
        log.set_rank(rank)
        if tokens is None:
            self.open(model, rank, began, records, loads)
        else:
            begin, end = (lambda: self.open(model, rank, None, records, loads)), self.close
            self.tokens = TokenRange(model, *tokens, lambda: self._from_hook(begin), lambda: self._from_hook(end))
            self.tokens.start()

    def selects(self, rank: int | None, called: str = "start()") -> bool:
        """Whether this step is recorded on this rank; what `load` replaces does not depend on it. `called` asks."""
        if not self.enabled or not self.config.records or (self.earlier is not None and self.earlier.ended):
            return False
        return super().selects(rank, called)

    def _has_model(self, model: Model | None) -> bool:
        """Whether start() was given what a level needs that came while running: then a mistake is told, and the training goes on."""
        try:
            _check_model(model, self.config)
        except UsageError as error:
            if "model" not in self.told:
                self.why_nothing = str(error)
            self.tell_once("model", f"{error}; such a start() records nothing")
            return False
        return True

    def _from_hook(self, action: Callable[[], None]) -> None:
        """Open or close while the user's model runs."""
        with self.lock:
            contained(action, self)

    def open(self, model: Model | None, rank: int | None, began: float | None = None, records: bool = True, loads: bool = False) -> None:
        """Recording is on from here, or the replacement of inputs, or both; `began` is when start() was called."""
        began = perf_counter() if began is None else began
        if loads and self.override is not None:
            self.override.start(model, self.number, rank)  # first: its hooks stand before the recorder's, which see what it has replaced
        if not records:
            return
        config = self.config
        if self.step is None:
            pool, place = self.pool if self.saves else None, self.place_of(rank)
            self.step = StepRecord(config, self.number, place, make_selection(config, self.names_seen), pool, self.earlier)
            self.tell_begun(f"recording {config.task} at level {config.level} into {self.step.directory}")
        self.recorder.step = self.step
        self.step.parameter_gradients.window_open = True
        self.window = Window(self.recorder, self.table, self.spelling)
        hooked = self.window.open(model if config.level != "L1" else None)
        self.step.tally.modules_hooked = max(self.step.tally.modules_hooked, hooked)
        self.step.tally.spent += perf_counter() - began

    def close(self) -> None:
        """Recording is off from here."""
        window = self.window
        if window is None:
            remove_stale_modes()
        if os.getpid() != self.pid:
            return
        if window is not None:
            self._close(window)
        if self.override is not None:
            self.override.stop()

    def _close(self, window: Window) -> None:
        began = perf_counter()
        window.close()
        self.window = None
        self.recorder.step = None
        if self.step is not None:
            self.step.parameter_gradients.window_open = False
            self.tell_unmatched(self.step)
            self.step.tally.spent += perf_counter() - began

    def stop(self) -> None:
        self.close()
        tokens, self.tokens = self.tokens, None
        if tokens is not None:
            tokens.close()

    def at_exit(self) -> None:
        """The interpreter ends: a step that nobody ended is ended, and a run that recorded nothing says so."""
        if os.getpid() != self.pid:
            return
        waiting = self.tokens is not None
        self.stop()
        if self.override is not None:
            self.override.at_exit()
        if self.step is not None:
            logger.warning(f"step {self.step.step} was not ended by step(); it is ended now")
            self.end_step()
        elif self.saving.step is not None:
            self.end_step()  # without a word: whoever only saves values need not know of steps
        elif waiting or self.ended or not self.config.records:
            return  # what became of the range of tokens, or of what is replaced, has been told
        elif not self.enabled:
            logger.info(f'nothing was recorded: "dump_enable" is false in {self.live.config.source}')
        else:
            self.tell_nothing("save()" if self.config.level == "debug" else "start()")

    def end_step(self) -> None:
        try:
            self.stop()
            remove_stale_modes()
        finally:
            self._end_step()

    def _end_step(self) -> None:
        step: StepRecord | SavedStep | None = self.step or self.saving.take()
        self.step = None
        self.number += 1
        if os.getpid() != self.pid:
            return
        if self.override is not None:
            self.override.end_step()
        if step is None:
            return
        try:
            late_rank.close_step(step, self.place, self.late.take())
        finally:
            step.writer.close()  # whatever went wrong: its files are complete
        if isinstance(step, StepRecord):
            self.tell_unmatched(step, ended=True)
            forgotten = step.forgotten.said(step.step, self.forgotten_hint)
            if forgotten:
                self.tell_once("forgotten", forgotten)
        self.has_ended(step)

    def forget(self) -> None:
        """A forked child records nothing: everything of ours is switched off there."""
        window, self.window = self.window, None
        tokens, self.tokens = self.tokens, None
        if tokens is not None:
            tokens.forget()
        self.recorder.step = self.step = None
        self.lock = threading.RLock()  # another thread may have held it, and is not here to give it back
        self.saving.forget()
        override, self.override = self.override, None
        if override is not None:
            override.forget()
        if window is not None:
            window.close()

    def switch_off(self) -> None:
        """Something of ours failed: nothing of it stays in place."""
        if self.window is not None:
            self.window.close()
        self.window = self.recorder.step = None
        if self.override is not None:
            self.override.forget()
        tokens, self.tokens = self.tokens, None
        if tokens is not None:
            tokens.forget()


def _check_model(model: Model | None, config: Config) -> None:
    """Raise UsageError if start() was not given the model that a configuration needs."""
    if config.level in ("L1", "debug") and config.load is None:
        return
    if model is None:
        why = "load replaces inputs of modules" if config.load is not None else f'level "{config.level}" records modules'
        raise UsageError(f"start(model): model is missing; {why} and needs it")
    checked_models(model)
