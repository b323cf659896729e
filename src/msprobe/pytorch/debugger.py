"""PrecisionDebugger: start, stop and step, and nothing clever."""

from __future__ import annotations

import atexit
import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any, TypeAlias

import torch

from msprobe import log, numerics
from msprobe.config import Config
from msprobe.contain import let_through
from msprobe.errors import MsprobeException, UsageError
from msprobe.log import logger
from msprobe.pytorch import custom_api
from msprobe.pytorch.dump.api_dump.api_table import ApiTable
from msprobe.pytorch.dump.api_dump.operation_files import read_operation_files
from msprobe.pytorch.dump.api_dump.operators import OperatorSpelling
from msprobe.pytorch.dump.checks.choosing import earlier_dump
from msprobe.pytorch.dump.checks.earlier_dump import EarlierDump
from msprobe.pytorch.dump.distributed import late_rank
from msprobe.pytorch.dump.module_dump.naming import checked_models
from msprobe.pytorch.dump.place import Place
from msprobe.pytorch.dump.recorder import Recorder
from msprobe.pytorch.dump.step_record import StepRecord, Tally
from msprobe.pytorch.dump.token_range import TokenRange, checked_range
from msprobe.pytorch.dump.window import Window, remove_stale_modes
from msprobe.pytorch.live_config import LiveConfig, changes
from msprobe.pytorch.process import current_rank
from msprobe.pytorch.selecting import make_selection
from msprobe.pytorch.torch_internals import CLIP_CODES, MODULE_CALL_CODES
from msprobe.recording.stacks import StackCache
from msprobe.recording.unmatched import NamesSeen
from msprobe.writer import TensorPool

Model: TypeAlias = "torch.nn.Module | Sequence[torch.nn.Module]"


class _Session:
    """The state behind the one debugger of a process."""

    def __init__(self, live: LiveConfig) -> None:
        if not numerics.HAVE_KERNELS:
            logger.warning("the C kernels were not built when msprobe was installed (no compiler): numpy takes the statistics, more slowly")
        self.lock = threading.RLock()
        self.number = 0
        self.names_seen = NamesSeen()
        self.place: Place | None = None
        self.recorder = Recorder(StackCache(MODULE_CALL_CODES, CLIP_CODES))
        self.window: Window | None = None
        self.tokens: TokenRange | None = None
        self.step: StepRecord | None = None
        self.late = 0
        self.ended: list[Tally] = []
        """Tallies of the latest steps: backward passes that come too late are counted there."""
        self.told_rank = self.told_model = self.told_last = False
        self.pid = os.getpid()
        try:
            self._directory = os.getcwd()
        except OSError:  # it has been removed: an absolute dump_path needs none
            self._directory = ""
        self.live = live
        self._first = live.config
        self._next: Config | None = None
        """What the file says since the running step began; it holds from the next one on."""
        self.enabled = live.config.dump_enable is not False
        self.pool: TensorPool | None = None
        self.earlier: EarlierDump | None = None
        """The dump that the run is compared with while it runs."""
        self.use(live.config)
        if not self.enabled:
            logger.info(f'"dump_enable" is false: nothing is recorded until it becomes true in {live.config.source}')
        atexit.register(self.at_exit)

    def use(self, config: Config) -> None:
        """Make everything that follows from the configuration alone; nothing is changed if that fails."""
        self.earlier = earlier_dump(config, self.earlier)
        uses_apis = config.level in ("L1", "mix")
        self.table = ApiTable(read_operation_files(config.ops_dir)) if uses_apis else None
        self.spelling = OperatorSpelling(self.recorder.state) if uses_apis else None
        self.root = os.path.abspath(os.path.join(self._directory, config.dump_path))
        saves = config.task == "tensor" or bool(config.section.tensor_list)
        if saves and self.pool is None:
            self.pool = TensorPool()
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
                since = self.number if self.step is None else self.number + 1
                logger.info(f"{changed.source} has changed: {', '.join(different)}; this holds from step {since} on")
        if self._next is not None and self.step is None:
            new, self._next = self._next, None
            try:
                self.use(new)
                self.told_model = self.told_last = False
            except MsprobeException as error:
                logger.warning(f"{new.source} has changed, and cannot be used; recording goes on as before:\n{error}")

    def start(self, model: Model | None, token_range: Any, rank_id: int | None) -> None:
        if self.config is self._first:
            _check_model(model, self.config.level)
        if rank_id is not None and (isinstance(rank_id, bool) or not isinstance(rank_id, int) or rank_id < 0):
            raise UsageError(f"start(rank_id): rank_id is {rank_id!r}; allowed: an integer of 0 or more")
        tokens = checked_range(model, token_range) if token_range is not None else None
        if self.window is not None or self.tokens is not None or os.getpid() != self.pid:
            return
        config = self.config
        began = perf_counter()
        if self.live.watched:
            self.look_at_file()
            if not self.enabled:
                return
            config = self.config
        if config.step and self.step is None and self.number not in config.step:
            return
        if self.earlier is not None and self.earlier.ended:
            return
        rank = current_rank() if rank_id is None else rank_id
        log.set_rank(rank)
        if config.rank and rank not in config.rank:
            if rank is None and not self.told_rank:
                self.told_rank = True
                logger.warning('"rank" is set, but this process has no rank (no process group), so nothing is recorded; leave "rank" empty')
            return
        if config is not self._first and not self._has_model(model):
            return
        if tokens is None:
            self.open(model, rank, began)
        else:
            begin, end = (lambda: self.open(model, rank)), self.close
            self.tokens = TokenRange(model, *tokens, lambda: self._from_hook(begin), lambda: self._from_hook(end))

    def _has_model(self, model: Model | None) -> bool:
        """Whether start() was given what a level needs that came while running: then a mistake is told, and the training goes on."""
        try:
            _check_model(model, self.config.level)
        except UsageError as error:
            if not self.told_model:
                self.told_model = True
                logger.warning(f"{error}; such a start() records nothing")
            return False
        return True

    def _from_hook(self, action: Callable[[], None]) -> None:
        """Open or close while the user's model runs."""
        with self.lock:
            _contained(action, self)

    def open(self, model: Model | None, rank: int | None, began: float | None = None) -> None:
        """Recording is on from here; `began` is when start() was called."""
        began = perf_counter() if began is None else began
        config = self.config
        if self.step is None:
            if self.place is None or self.place.rank != rank or self.place.root != self.root:
                if self.place is not None:
                    self.place.release()
                self.place = Place(self.root, self.number, rank)
            pool = self.pool if self.saves else None
            self.step = StepRecord(config, self.number, self.place, make_selection(config, self.names_seen), pool, self.earlier)
            told = logger.debug if self.ended else logger.info  # once is enough to know what is going on
            told(f"step {self.number}: recording {config.task} at level {config.level} into {self.step.directory}")
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
        if window is None or os.getpid() != self.pid:
            return
        began = perf_counter()
        window.close()
        self.window = None
        self.recorder.step = None
        if self.step is not None:
            self.step.parameter_gradients.window_open = False
            for text in self.step.selection.unmatched():
                logger.warning(text)
            self.step.tally.spent += perf_counter() - began

    def stop(self) -> None:
        self.close()
        tokens, self.tokens = self.tokens, None
        if tokens is not None:
            tokens.close()

    def at_exit(self) -> None:
        """The interpreter ends: a step that nobody ended is ended, and a run that recorded nothing says so."""
        if os.getpid() != self.pid or PrecisionDebugger._session is not self:
            return
        if self.step is not None:
            logger.warning(f"step {self.step.step} was not ended by step(); it is ended now")
            self.end_step()
        elif not self.ended and not self.enabled:
            logger.info(f'nothing was recorded: "dump_enable" is false in {self.live.config.source}')
        elif not self.ended:
            steps = f', and only the steps {sorted(self.config.step)} are selected by "step"' if self.config.step else ""
            logger.warning(f"nothing was recorded: {self.number} steps were ended by step(){steps}; is start() called, in this process?")

    def end_step(self) -> None:
        self.stop()
        remove_stale_modes()
        step, self.step = self.step, None
        self.number += 1
        if step is None or os.getpid() != self.pid:
            return
        late = sum(tally.take_late() for tally in self.ended)
        late_rank.close_step(step, self.place, late)
        for text in step.selection.unmatched(ended=True):
            logger.warning(text)
        self.ended = [*self.ended[-3:], step.tally]
        if self.config.step and self.number > max(self.config.step) and not self.told_last:
            self.told_last = True
            logger.info(f'step {max(self.config.step)} was the last one selected by "step": nothing more is recorded')


def _check_model(model: Model | None, level: str) -> None:
    """Raise UsageError if start() was not given the model that a level needs."""
    if level == "L1":
        return
    if model is None:
        raise UsageError(f'start(model): model is missing; level "{level}" records modules and needs it')
    checked_models(model)


def _forget_in_child() -> None:
    """A forked child (a data loader's worker) records nothing: everything of ours is switched off there."""
    session = PrecisionDebugger._session
    if session is None:
        return
    window, session.window = session.window, None
    tokens, session.tokens = session.tokens, None
    if tokens is not None:
        tokens.forget()
    session.recorder.step = session.step = None
    if window is not None:
        window.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


class PrecisionDebugger:
    """Records what every module and every API call of a training or inference step takes in and gives out.

    There is one debugger in a process: constructing a second one gives the first, its arguments are ignored. Every method may also be
    called on the class.

    Args:
        config_path: a config.json; without it the packaged defaults hold.
        task, dump_path, level, step: take precedence over the file's fields of the same names.

    Raises:
        ConfigError: a field has a value that is not allowed.
    """

    _instance: PrecisionDebugger | None = None
    _session: _Session | None = None

    def __new__(
        cls,
        config_path: str | None = None,
        task: str | None = None,
        dump_path: str | None = None,
        level: str | None = None,
        step: Iterable[int | str] | None = None,
    ) -> PrecisionDebugger:
        if PrecisionDebugger._instance is None:
            arguments = {"task": task, "dump_path": dump_path, "level": level, "step": step}
            PrecisionDebugger._session = _Session(LiveConfig(config_path, arguments))
            PrecisionDebugger._instance = super().__new__(cls)
        elif any(argument is not None for argument in (config_path, task, dump_path, level, step)):
            logger.warning("there is one PrecisionDebugger in a process: the first one goes on, the arguments of this one are ignored")
        return PrecisionDebugger._instance

    @classmethod
    def _current(cls) -> _Session:
        session = PrecisionDebugger._session
        if session is None:
            raise UsageError("there is no PrecisionDebugger yet: construct one first, PrecisionDebugger(config_path=...)")
        return session

    @classmethod
    def start(cls, model: Model | None = None, token_range: Any = None, rank_id: int | None = None) -> None:
        """Begin recording; nothing happens if it is on already or if this step or rank is not selected.

        Args:
            model: a module, or a list or tuple of them; needed at levels L0 and mix. What is inside it is recorded, it itself is not.
            token_range: `[first, last]`, for inference loops: recording is on only while these calls of the model run, counted from 0 at
                this start(), both included. Of several models the calls of the first are counted.
            rank_id: names the directory `rank{rank_id}`; by default the rank of torch.distributed.

        Raises:
            UsageError: `model` is missing or of a wrong type, or another argument is.
        """
        session = cls._current()
        with session.lock:
            _contained(lambda: session.start(model, token_range, rank_id), session)

    @classmethod
    def stop(cls) -> None:
        """End recording. Gradients of what was recorded are still recorded until `step`."""
        session = cls._current()
        with session.lock:
            _contained(session.stop, session)

    @classmethod
    def step(cls) -> None:
        """End the step: everything is on disk, and the next start() begins a new one."""
        session = cls._current()
        with session.lock:
            _contained(session.end_step, session)

    @classmethod
    def set_init_step(cls, step: int) -> None:
        """Count steps from `step` on. Call it before the training loop.

        Raises:
            UsageError: `step` is not an integer of 0 or more.
        """
        session = cls._current()
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise UsageError(f"set_init_step(step): step is {step!r}; allowed: an integer of 0 or more")
        with session.lock:
            session.number = step

    @classmethod
    def save(cls, *_: Any, **__: Any) -> None:
        """Not available yet."""
        raise UsageError("PrecisionDebugger.save (single-point save) is not available yet")

    @classmethod
    def register_custom_api(cls, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Record the calls of `module.api` like those of torch's functions, as `{api_prefix}.{api}.{n}.forward`.

        Args:
            module: what the function is an attribute of: a module, a class, or an object.
            api: the attribute's name.
            api_prefix: by default the module's `__name__`.

        Raises:
            UsageError: there is no such attribute, it is no function, or the prefix is none.
        """
        session = cls._current()
        with session.lock:
            _contained(lambda: custom_api.register(module, api, api_prefix), session)

    @classmethod
    def restore_custom_api(cls, module: Any, api: str) -> None:
        """Undo `register_custom_api`; nothing happens where nothing was registered.

        Raises:
            UsageError: there is no such attribute.
        """
        session = cls._current()
        with session.lock:
            _contained(lambda: custom_api.restore(module, api), session)


def _contained(action: Any, session: _Session) -> None:
    """Run an action of ours; a mistake of the user's is told, one of ours only logged: the training goes on."""
    try:
        action()
    except MsprobeException:
        raise
    except Exception as error:
        let_through(error)
        logger.error(f"recording failed and is off until the next start(): {error!r}", exc_info=log.logger.isEnabledFor(10))
        try:
            if session.window is not None:
                session.window.close()
            session.window = session.recorder.step = None
        except Exception as second:
            let_through(second)
            logger.error(f"could not switch recording off: {second!r}")
