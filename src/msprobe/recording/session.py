"""The state behind the one debugger of a process, as far as it is the same in every framework."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection

from msprobe import log, numerics
from msprobe.config import Config
from msprobe.contain import let_through
from msprobe.errors import MsprobeException, UsageError
from msprobe.log import logger
from msprobe.recording.calling_place import calling_place
from msprobe.recording.late_calls import LateCalls
from msprobe.recording.place import Place
from msprobe.recording.step import Step
from msprobe.recording.step_of_calls import StepOfCalls
from msprobe.recording.unmatched import NamesSeen


class BaseSession:
    """Which step is running, what was told, what a step's end and the interpreter's say."""

    NO_RANK = ""
    """What is said where ranks are selected and this process has none."""
    RANKS_ARE = ""
    """How the ranks of the configuration are counted, where that has to be said."""
    config: Config
    root: str
    """dump_path, absolute."""
    step: StepOfCalls | None = None

    def __init__(self) -> None:
        if not numerics.HAVE_KERNELS:
            logger.warning("the C kernels were not built when msprobe was installed (no compiler): numpy takes the statistics, more slowly")
        self.lock = threading.RLock()
        self.number = 0
        self.pid = os.getpid()
        self.names_seen = NamesSeen()
        self.place: Place | None = None
        self.ended = 0
        """How many steps were recorded to their end."""
        self.late = LateCalls()
        self.siblings: Callable[[], Collection[int]] = tuple
        """Ids of the processes that belong to the same run, as far as that is known."""
        self.why_nothing = ""
        """Why the latest start() recorded nothing, for a run that ends without a recorded step."""
        self.unselected: int | None = None
        """The rank of this process, where the configuration selects others."""
        self.started_at = ""
        """Where the user called the start() that recording is on since."""
        self.told: set[str] = set()
        """What is told once."""

    def selects(self, rank: int | None, called: str = "start()") -> bool:
        """Whether this step is recorded on this rank. `called` asks."""
        config = self.config
        if config.step and self.step is None and self.number not in config.step:
            self.why_nothing = f"{called} was called in none of these"
            return False
        if config.rank and rank not in config.rank:
            self.why_nothing, self.unselected = self.NO_RANK, rank
            if rank is None:
                self.tell_once("rank", f'{self.NO_RANK}, so nothing is recorded; leave "rank" empty')
            return False
        return True

    def place_of(self, rank: int | None) -> Place:
        """Where this process writes."""
        place = self.place
        if place is None or place.rank != rank or place.root != self.root:
            if place is not None:
                place.release()
            place = self.place = Place(self.root, self.number, rank, self.siblings)
        return place

    def tell_once(self, key: str, text: str, tell: Callable[[str], None] = logger.warning) -> None:
        """Say something, in a process once for each key."""
        if key not in self.told:
            self.told.add(key)
            tell(text)

    def tell_unmatched(self, step: StepOfCalls | None, ended: bool = False) -> None:
        """Names that a step's selection asks for and that never came by."""
        for text in step.selection.unmatched(ended=ended) if step is not None else ():
            logger.warning(text)

    def tell_started(self) -> None:
        """start() was called while recording is on."""
        self.tell_once(
            "started",
            f"start() at {calling_place()} changes nothing: recording is on since start() at {self.started_at}, and no stop() came in"
            " between; end each iteration with stop() and step()",
        )

    def tell_begun(self, what: str) -> None:
        """A step begins; once is enough to know what is going on."""
        (logger.debug if self.ended else logger.info)(f"step {self.number}: {what}")

    def has_ended(self, step: Step) -> None:
        """A step has ended, and `number` is that of the next one."""
        self.ended += 1
        step.late.tell_to(self.late.of_step(step.step, step.directory))
        if self.config.step and self.number > max(self.config.step):
            text = f'step {max(self.config.step)} was the last one selected by "step": nothing more is recorded'
            self.tell_once("last", text, logger.info)

    def tell_nothing(self, called: str = "start()") -> None:
        """The interpreter ends, and no step was recorded."""
        if self.unselected is not None:
            logger.info(f'nothing was recorded: "rank" does not select rank {self.unselected}{self.RANKS_ARE}')
            return
        steps = f', and only the steps {sorted(self.config.step)} are selected by "step"' if self.config.step else ""
        why = self.why_nothing or f"is {called} called, in this process?"
        logger.warning(f"nothing was recorded: {self.number} steps were ended by step(){steps}; {why}")

    def at_exit(self) -> None:
        """The interpreter ends: a step that nobody ended is ended, and a run that recorded nothing says so."""
        raise NotImplementedError

    def forget(self) -> None:
        """A forked child records nothing: everything of ours is switched off there."""
        raise NotImplementedError

    def switch_off(self) -> None:
        """Something of ours failed: nothing of it stays in place."""
        raise NotImplementedError


def check_rank_id(rank_id: object) -> None:
    """Raise UsageError if start() was given a rank that is none."""
    if rank_id is not None and (isinstance(rank_id, bool) or not isinstance(rank_id, int) or rank_id < 0):
        raise UsageError(f"start(rank_id): rank_id is {rank_id!r}; allowed: an integer of 0 or more")


def every_part(*parts: Callable[[], None]) -> None:
    """Do all of these in order, whatever goes wrong in one of them. Then the first error is raised, or before all of ours one of the user's
    (Ctrl-C, a signal handler's); the others are told."""
    errors: list[BaseException] = []
    for part in parts:
        try:
            part()
        except BaseException as error:
            errors.append(error)
    if not errors:
        return
    first = next((one for one in errors if not _is_ours(one)), errors[0])
    for one in errors:
        if one is not first and _is_ours(one):
            logger.error(f"recording failed, too: {one!r}")
    raise first


def _is_ours(error: BaseException) -> bool:
    try:
        let_through(error)
    except BaseException:
        return False
    return isinstance(error, Exception)


def contained(action: Callable[[], None], session: BaseSession) -> None:
    """Run an action of ours; a mistake of the user's is told, one of ours only logged: the training goes on."""
    try:
        action()
    except MsprobeException:
        raise
    except Exception as error:
        let_through(error)
        text = f"recording failed and is off until the next start(): {error!r}"
        if session.config.level == "debug":  # nobody has to call start() there, and save() goes on
            text = f"recording failed, the training goes on: {error!r}"
        logger.error(text, exc_info=log.logger.isEnabledFor(10))
        try:
            session.switch_off()
        except Exception as second:
            let_through(second)
            logger.error(f"could not switch recording off: {second!r}")
