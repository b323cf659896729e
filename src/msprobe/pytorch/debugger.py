"""PrecisionDebugger: start, stop and step, and nothing clever."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any, TypeAlias

import torch

from msprobe import log, numerics
from msprobe.config import Config, load_config
from msprobe.contain import let_through
from msprobe.errors import MsprobeException, UsageError
from msprobe.log import logger
from msprobe.pytorch import custom_api
from msprobe.pytorch.dump.api_dump.api_table import ApiTable
from msprobe.pytorch.dump.api_dump.operation_files import read_operation_files
from msprobe.pytorch.dump.api_dump.operators import OperatorSpelling
from msprobe.pytorch.dump.checks.choosing import earlier_dump
from msprobe.pytorch.dump.distributed import late_rank
from msprobe.pytorch.dump.module_dump.naming import checked_models
from msprobe.pytorch.dump.place import Place
from msprobe.pytorch.dump.recorder import Recorder
from msprobe.pytorch.dump.step_record import StepRecord, Tally
from msprobe.pytorch.dump.window import Window, remove_stale_modes
from msprobe.pytorch.process import current_rank
from msprobe.pytorch.selecting import make_selection
from msprobe.pytorch.torch_internals import CLIP_CODES, MODULE_CALL_CODES
from msprobe.recording.stacks import StackCache
from msprobe.recording.unmatched import NamesSeen
from msprobe.writer import TensorPool

Model: TypeAlias = "torch.nn.Module | Sequence[torch.nn.Module]"


class _Session:
    """The state behind the one debugger of a process."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.earlier = earlier_dump(config)
        """The dump that this run is compared with while it runs."""
        if not numerics.HAVE_KERNELS:
            logger.warning("the C kernels were not built when msprobe was installed (no compiler): numpy takes the statistics, more slowly")
        self.lock = threading.RLock()
        self.number = 0
        self.names_seen = NamesSeen()
        self.root = os.path.abspath(config.dump_path)
        self.place: Place | None = None
        self.recorder = Recorder(StackCache(MODULE_CALL_CODES, CLIP_CODES))
        uses_apis = config.level in ("L1", "mix")
        self.table = ApiTable(read_operation_files(config.ops_dir)) if uses_apis else None
        self.spelling = OperatorSpelling(self.recorder.state) if uses_apis else None
        section = config.section
        saves = config.task == "tensor" or bool(section.tensor_list)
        self.pool = TensorPool() if saves else None
        self.window: Window | None = None
        self.step: StepRecord | None = None
        self.late = 0
        self.ended: list[Tally] = []
        """Tallies of the latest steps: backward passes that come too late are counted there."""
        self.told_rank = False
        self.pid = os.getpid()
        atexit.register(self.at_exit)

    def start(self, model: Model | None, rank_id: int | None) -> None:
        config = self.config
        if config.level in ("L0", "mix") and model is None:
            raise UsageError(f'start(model): model is missing; level "{config.level}" records modules and needs it')
        if model is not None and config.level != "L1":
            checked_models(model)
        if rank_id is not None and (isinstance(rank_id, bool) or not isinstance(rank_id, int) or rank_id < 0):
            raise UsageError(f"start(rank_id): rank_id is {rank_id!r}; allowed: an integer of 0 or more")
        if self.window is not None or os.getpid() != self.pid:
            return
        if config.step and self.number not in config.step:
            return
        if self.earlier is not None and self.earlier.ended:
            return
        began = perf_counter()
        rank = current_rank() if rank_id is None else rank_id
        log.set_rank(rank)
        if config.rank and rank not in config.rank:
            if rank is None and not self.told_rank:
                self.told_rank = True
                logger.warning('"rank" is set, but this process has no rank (no process group), so nothing is recorded; leave "rank" empty')
            return
        if self.step is None:
            if self.place is None or self.place.rank != rank:
                if self.place is not None:
                    self.place.release()
                self.place = Place(self.root, self.number, rank)
            self.step = StepRecord(config, self.number, self.place, make_selection(config, self.names_seen), self.pool, self.earlier)
            told = logger.debug if self.ended else logger.info  # once is enough to know what is going on
            told(f"step {self.number}: recording {config.task} at level {config.level} into {self.step.directory}")
        self.recorder.step = self.step
        self.step.parameter_gradients.window_open = True
        self.window = Window(self.recorder, self.table, self.spelling)
        hooked = self.window.open(model if config.level != "L1" else None)
        self.step.tally.modules_hooked = max(self.step.tally.modules_hooked, hooked)
        self.step.tally.spent += perf_counter() - began

    def stop(self) -> None:
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

    def at_exit(self) -> None:
        """The interpreter ends: a step that nobody ended is ended, and a run that recorded nothing says so."""
        if os.getpid() != self.pid or PrecisionDebugger._session is not self:
            return
        if self.step is not None:
            logger.warning(f"step {self.number} was not ended by step(); it is ended now")
            self.end_step()
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


def _forget_in_child() -> None:
    """A forked child (a data loader's worker) records nothing: everything of ours is switched off there."""
    session = PrecisionDebugger._session
    if session is None:
        return
    window, session.window = session.window, None
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
            config = load_config(config_path, framework="pytorch", task=task, dump_path=dump_path, level=level, step=step)
            PrecisionDebugger._session = _Session(config)
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
            token_range: not available yet.
            rank_id: names the directory `rank{rank_id}`; by default the rank of torch.distributed.

        Raises:
            UsageError: `model` is missing or of a wrong type.
        """
        session = cls._current()
        if token_range is not None:
            raise UsageError("start(token_range): not available yet")
        with session.lock:
            _contained(lambda: session.start(model, rank_id), session)

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
