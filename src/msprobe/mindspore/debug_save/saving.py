"""Whether PrecisionDebugger.save() records, decided once a step; what is wrong with its arguments."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msprobe import log
from msprobe.contain import let_through
from msprobe.log import logger
from msprobe.mindspore.debug_save.step import SavedStep
from msprobe.mindspore.process import current_rank

if TYPE_CHECKING:
    from msprobe.mindspore.session import Session

_MOST_TOLD = 20


class Saving:
    """The part of a session that save() belongs to."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._off = False
        """Nothing is recorded before the next step."""
        self.step: SavedStep | None = None
        self._told: set[str] = set()

    def save(self, variable: Any, name: Any, save_backward: Any) -> None:
        """See `PrecisionDebugger.save`. Errors of ours are told and go no further."""
        if self._off:
            return
        step = self.step or self._begin()
        if step is None:
            self._off = True
            return
        wrong = _wrong(name, save_backward)
        if wrong:
            self._tell(wrong)
            return
        try:
            step.save(variable, name, save_backward)
        except Exception as error:
            let_through(error)
            step.report(name, f"could not be saved: {error!r}")

    def _begin(self) -> SavedStep | None:
        session = self._session
        config = session.config
        if os.getpid() != session.pid:
            return None
        if config.level != "debug":
            self._tell(f'save() records at level "debug" only, and the level is "{config.level}": nothing is saved')
            return None
        rank = current_rank()
        if not session.selects(rank, "save()"):
            return None
        log.set_rank(rank)
        step = self.step = SavedStep(config, session.number, session.place_of(rank), session.pool)
        session.tell_begun(f"saving {config.task} of what save() is given into {step.directory}")
        return step

    def take(self) -> SavedStep | None:
        """The step ends: gives what belongs to it, and the next save() decides anew."""
        step, self.step, self._off = self.step, None, False
        return step

    def forget(self) -> None:
        """This is a forked child: nothing is recorded here."""
        self.step, self._off = None, True

    def _tell(self, text: str) -> None:
        if text not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(text)
            logger.warning(text)


def _wrong(name: Any, save_backward: Any) -> str:
    """What is wrong with the arguments of save(); "" where nothing is."""
    if not isinstance(name, str):
        return f"save(name=<{type(name).__name__}>): a name must be text; nothing is saved"
    if type(save_backward) is not bool:
        return f"save(name={name!r}, save_backward=<{type(save_backward).__name__}>): it must be True or False; nothing is saved"
    return ""
