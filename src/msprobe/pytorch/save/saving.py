"""Whether save() records: decided once for each step, so that a call that does not costs next to nothing."""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING, Any

import torch

from msprobe import log
from msprobe.config import Config
from msprobe.contain import let_through
from msprobe.log import logger
from msprobe.pytorch.process import current_rank
from msprobe.pytorch.save.call_sites import CallSites
from msprobe.pytorch.save.step import SavedStep

if TYPE_CHECKING:
    from msprobe.pytorch.session import Session

_LOOK_EVERY = 0.1
"""Seconds between two looks at config.json inside a step, where it holds dump_enable."""
_MOST_TOLD = 20


class Saving:
    """The part of a session that save() belongs to."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.off = False
        """Nothing can make save() record before the next step."""
        self.step: SavedStep | None = None
        self.rank_id: int | None = None
        """What the latest start() was given."""
        self._refused: Config | None = None
        """The configuration by which nothing is recorded in this step."""
        self._look_at = 0.0
        self._sites = CallSites()
        self._told: set[str] = set()

    def save(self, variable: Any, name: Any, save_backward: Any) -> None:
        """See `PrecisionDebugger.save`. Errors of ours are told and go no further."""
        session = self._session
        with session.lock:
            try:
                step = self.step
                if step is None or session.live.watched:
                    step = self._running()
                if step is None:
                    return
                wrong = _wrong(name, save_backward)
                if wrong:
                    self._tell(wrong)
                elif torch.jit.is_tracing():
                    self.tell_traced()
                else:
                    step.save(variable, str.__str__(name), save_backward)
            except Exception as error:
                let_through(error)
                self._failed(name, error)

    def _running(self) -> SavedStep | None:
        """The step that values go into now; None where nothing is recorded."""
        session = self._session
        if os.getpid() != session.pid:
            self.off = True
            return None
        watched = session.live.watched
        if watched and (now := monotonic()) >= self._look_at:
            self._look_at = now + _LOOK_EVERY
            session.look_at_file()
        config = session.config
        if self._refused is config or not session.enabled:
            return None
        if self.step is not None:
            return self.step
        rank = current_rank() if self.rank_id is None else self.rank_id
        if config.level != "debug":
            self._tell(f'save() records at level "debug" only, and the level is "{config.level}": nothing is saved')
        elif session.selects(rank, "save()"):
            return self._begin(config, rank)
        self._refused = config
        self.off = not watched
        return None

    def _begin(self, config: Config, rank: int | None) -> SavedStep:
        session = self._session
        log.set_rank(rank)
        pool = session.pool if config.task == "tensor" else None
        step = self.step = SavedStep(config, session.number, session.place_of(rank), pool, self._sites)
        session.tell_begun(f"saving {config.task} of what save() is given into {step.directory}")
        return step

    def take(self) -> SavedStep | None:
        """The step ends: gives what belongs to it, and the next save() decides anew."""
        step, self.step = self.step, None
        self.off, self._refused, self._look_at = False, None, 0.0
        return step

    def forget(self) -> None:
        """This is a forked child: nothing is recorded here."""
        step, self.step = self.step, None
        self.off = True
        if step is not None:
            step.forget()

    def tell_traced(self) -> None:
        """save() stands in code that is being compiled, exported or traced."""
        if self._session.config.level == "debug":
            self._tell(
                "save() is called inside code that is being compiled or exported, where it does nothing: exempt the function that calls it "
                '(torch.compiler.disable), or do not compile while saving (torch.compiler.set_stance("force_eager"))'
            )

    def _tell(self, text: str) -> None:
        if text not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(text)
            logger.warning(text)

    def _failed(self, name: Any, error: Exception) -> None:
        step = self.step
        if step is not None:
            step.report(str(name), f"could not be saved: {error!r}")
        else:
            self.off = True
            logger.error(f"save() cannot record, and is off until the next step: {error!r}")


def _wrong(name: Any, save_backward: Any) -> str:
    """What is wrong with the arguments of save(); "" where nothing is."""
    if not issubclass(type(name), str):
        return f"save(name={_shown(name)}): a name must be text, not {type(name).__name__}; nothing is saved"
    if type(save_backward) is not bool:
        return (
            f"save(name={_shown(name)}, save_backward={_shown(save_backward)}): save_backward must be True or False, not "
            f"{type(save_backward).__name__}; nothing is saved"
        )
    return ""


def _shown(value: Any) -> str:
    """A number or text as it is, of anything else no more than its class."""
    text = repr(value) if type(value) in (str, int, float, bool, type(None)) else f"<{type(value).__name__}>"
    return text if len(text) <= 60 else f"{text[:57]}..."
