"""start, stop and step at level L0 in graph mode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msprobe import log
from msprobe.contain import let_through
from msprobe.log import logger
from msprobe.mindspore.device import device_target, has_python_ops
from msprobe.mindspore.dump.cell_dump.naming import checked_models, named_cells
from msprobe.mindspore.dump.values import raise_failure
from msprobe.mindspore.kernel_dump.starting import machine
from msprobe.mindspore.process import current_rank, wait_for_device
from msprobe.mindspore.static_dump.compiling import Taps
from msprobe.mindspore.static_dump.recorder import RECORDER
from msprobe.recording.calling_place import calling_place
from msprobe.recording.selecting import make_selection
from msprobe.recording.session import every_part

if TYPE_CHECKING:
    from msprobe.config import Config
    from msprobe.mindspore.session import Session
    from msprobe.mindspore.static_dump.step import StaticStep

_MOST_NAMED = 10
_ANOTHER = (
    "start(model): in graph mode taps are put into what the first start() was given, and nothing of this model is in there: it is not "
    "recorded; name all models at the first start(), as a list"
)
_ITEMS = ("max", "min", "mean", "l2norm")


def not_in_graphs(config: Config) -> str:
    """What to say of a configuration that follows the calls of Python, in graph mode."""
    what = 'task "structure"' if config.task == "structure" else f'level "{config.level}"'
    return (
        f"graph mode: {what} follows the calls that Python makes, so that nothing inside a compiled graph is recorded; there are: "
        'level "L0" with task "statistics" or "tensor", level "L2", and msprobe.mindspore.save inside of construct'
    )


def _impossible() -> str:
    """Why level L0 records nothing in graphs of this device; "" where it does."""
    if has_python_ops():
        return ""
    others = 'level "L2" (MindSpore\'s own dump) and msprobe.mindspore.save inside of construct'
    if machine().jit_level == "O2":
        others += '; at jit_level "O2" cells cannot be told apart'
    return f'level "L0" in graph mode needs graphs that call Python functions, which those on {device_target()} do not; there are {others}'


def _all_of(model: Any) -> Iterator[Any]:
    for _, root in checked_models(model):
        yield root
        yield from (cell for _, cell in named_cells(root))


def _tell_unmatched(step: StaticStep) -> None:
    for text in step.selection.unmatched(ended=True):
        logger.warning(text)


class StaticDump:
    """The part of a session that compiled graphs belong to."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._wrapped = False
        self._impossible = ""
        """Why nothing can be recorded here."""
        self._tapped: set[int] = set()
        """Ids of the models of the first start(), and of the cells in them."""
        self._taps: Taps | None = None
        self._failure: Exception | None = None
        """What an operation of the user's in this step has raised, and waiting for it was the first to be told."""

    @property
    def step(self) -> StaticStep | None:
        """The one that is running."""
        return RECORDER.step

    def start(self, model: Any, rank_id: int | None = None) -> None:
        """Calls are recorded from here. The first start() puts the taps in, even if its step is not selected: MindSpore compiles once.

        Args:
            model, rank_id: those of the user's start().
        """
        session = self._session
        config = session.config
        if not self._wrapped:
            self._wrapped = True
            self._impossible = _impossible()
            if self._impossible:
                logger.warning(f"nothing is recorded: {self._impossible}")
            else:
                self._put_in(model)
        elif not self._impossible and not any(id(cell) in self._tapped for cell in _all_of(model)):
            session.tell_once("model", _ANOTHER)
        if self._impossible:
            session.why_nothing = self._impossible
            return
        if RECORDER.on:
            session.tell_started()
            return
        rank = current_rank() if rank_id is None else rank_id
        if not session.selects(rank):
            return
        session.started_at = calling_place()
        log.set_rank(rank)
        if RECORDER.step is None:
            from msprobe.mindspore.static_dump.step import StaticStep

            selected = replace(config, section=replace(config.section, scope=()))  # see _check
            selection = make_selection(selected, session.names_seen)
            RECORDER.step = StaticStep(config, session.number, session.place_of(rank), selection, session.pool)
            session.tell_begun(f"recording {config.task} of a compiled graph into {RECORDER.step.directory}")
        RECORDER.on = True

    def _put_in(self, model: Any) -> None:
        from msprobe.mindspore.static_dump.wrapping import read, wrap

        self._check()
        self._tapped = {id(cell) for cell in _all_of(model)}
        mode = self._session.config.section.data_mode
        self._taps = Taps()
        self._tell_bits(wrap(model, self._taps, read(model), mode.forward, mode.backward))

    def stop(self) -> None:
        """Calls that begin later are not recorded."""
        if RECORDER.on:
            try:
                self._failure = self._failure or wait_for_device()
            finally:
                RECORDER.on = False

    def switch_off(self) -> None:
        """Calls that begin later are not recorded, whatever the device still does."""
        RECORDER.on = False

    def forget(self) -> None:
        """This is a forked child: nothing is recorded here."""
        RECORDER.on, RECORDER.step = False, None

    def end_step(self) -> None:
        """Everything is on disk; raises `PendingError` where an operation of the user's has failed."""
        if RECORDER.step is None:
            return
        self.stop()
        failure, self._failure = self._failure or wait_for_device(), None
        step, RECORDER.step = RECORDER.step, None
        every_part(partial(self._close, step), partial(_tell_unmatched, step), partial(raise_failure, failure))

    def _close(self, step: StaticStep) -> None:
        try:
            step.close()
        except Exception as error:
            let_through(error)
            step.report(f"end of step {step.step}", repr(error))
            raise
        finally:
            step.writer.close()  # whatever went wrong: its files are complete
            self._session.has_ended(step)

    def _check(self) -> None:
        """Tell what the configuration asks for and compiled graphs do not have."""
        config = self._session.config
        mode = config.section.summary_mode
        others = [item for item in ([mode] if isinstance(mode, str) else mode) if item not in (*_ITEMS, "statistics")]
        if others:
            logger.warning(f"compiled graphs at level L0 have no {', '.join(others)}: {', '.join(_ITEMS)} are recorded")
        if config.section.device == "device":
            logger.warning('"device": "device": in compiled graphs at level L0 statistics are taken on the host')
        if config.section.scope:
            logger.warning(
                '"scope": values of compiled graphs come in no certain order, so there is no range of calls: all of them are recorded'
            )
        if config.rank:
            logger.warning('"rank" and level L0: in compiled graphs the taps are on every rank, and only the selected ones write')

    def _tell_bits(self, cells: list[str]) -> None:
        """Where watching may change something."""
        if cells:
            more = f" and {len(cells) - _MOST_NAMED} more" if len(cells) > _MOST_NAMED else ""
            logger.warning(
                f"compiled graphs: at {', '.join(cells[:_MOST_NAMED])}{more} MindSpore may add up a gradient of three or more terms in "
                "another order than in a run that is not recorded, so that its last bits differ; everywhere else nothing changes"
            )
