"""What the callbacks of training frameworks share: their arguments, and when a step begins, pauses and ends, and which number it has."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from msprobe.contain import let_through
from msprobe.errors import MissingPackageError, MsprobeException, UsageError
from msprobe.log import logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msprobe.pytorch.recording_context import Recording

F = TypeVar("F", bound=Callable[..., None])

_FIELDS = ("config_path", "task", "dump_path", "level", "step")


def needed(package: str, extra: str) -> Any:
    """The package that an integration is for.

    Raises:
        MissingPackageError: it is not installed.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package.partition(".")[0]:
            raise  # it is there, and misses something itself
        raise MissingPackageError(f"{package} is not installed, and MsprobeCallback is for it: pip install {extra}") from None


def contained(event: F) -> F:
    """An event of a callback: a mistake of the user's is told, one of ours only logged: the training goes on."""

    @functools.wraps(event)
    def made(*args: Any, **kwargs: Any) -> None:
        try:
            event(*args, **kwargs)
        except MsprobeException:
            raise
        except Exception as error:
            let_through(error)
            logger.error(f"recording failed in {event.__qualname__}, the training goes on: {error!r}", exc_info=logger.isEnabledFor(10))

    return made  # type: ignore[return-value]


class RecordsSteps:
    """What every MsprobeCallback is constructed from."""

    def __init__(
        self,
        config_path: str | None = None,
        *,
        debugger: Any = None,
        task: str | None = None,
        dump_path: str | None = None,
        level: str | None = None,
        step: Iterable[int | str] | None = None,
        evaluation: bool = False,
    ) -> None:
        fields = {"config_path": config_path, "task": task, "dump_path": dump_path, "level": level, "step": step}
        self._steps = Steps(debugger, fields)
        self._evaluation = evaluation
        self._prepare()

    def _prepare(self) -> None:
        """What a framework's callback needs besides."""


class Steps:
    """The steps of a training that a callback begins and ends.

    It can be pickled: the debugger of the process that it is unpickled in is made from the same arguments.

    Args:
        debugger: the PrecisionDebugger of the user; None: one is made from `fields`, or the one that is there is used.
        fields: arguments of PrecisionDebugger.

    Raises:
        UsageError: both are given, or `debugger` is none.
        ConfigError: as PrecisionDebugger.
    """

    def __init__(self, debugger: Any, fields: dict[str, Any]) -> None:
        from msprobe.pytorch import PrecisionDebugger

        given = [name for name in _FIELDS if fields.get(name) is not None]
        if debugger is not None and not isinstance(debugger, PrecisionDebugger):
            raise UsageError(f"MsprobeCallback(debugger): debugger is {type(debugger).__name__}, not a PrecisionDebugger")
        if debugger is not None and given:
            raise UsageError(f"MsprobeCallback(debugger, {given[0]}): give one of them; with a debugger its own configuration holds")
        self._fields = {name: fields[name] for name in given}
        self._has_own = debugger is None
        self._recording: Recording | None = None
        self.paused = False
        """Whether a step has begun that `pause` has interrupted."""
        self._told_missing = False
        if self._has_own:
            PrecisionDebugger(**self._fields)

    def __getstate__(self) -> dict[str, Any]:
        from msprobe.pytorch import PrecisionDebugger

        session = PrecisionDebugger._session
        if session is not None and not session.why_nothing:
            session.why_nothing = "copies of MsprobeCallback may have recorded in processes that this one has started"
        return {**self.__dict__, "_recording": None, "paused": False}

    def _session(self) -> Any:
        """The session of this process; None, and told once, where there is none that records here."""
        from msprobe.pytorch import PrecisionDebugger

        session = PrecisionDebugger._session
        if session is None:
            if not self._has_own:
                self._tell(
                    "nothing is recorded: the PrecisionDebugger that MsprobeCallback was given is in another process; give it config_path "
                    "instead of debugger, then each process has its own"
                )
                return None
            PrecisionDebugger(**self._fields)
        elif session.pid != os.getpid():
            self._tell(
                "nothing is recorded: this process was forked after the PrecisionDebugger was made, and forked processes do not record; "
                "make MsprobeCallback in the function that is started, or start processes in another way (torchrun, ddp, ddp_spawn)"
            )
            return None
        return PrecisionDebugger._session

    def _tell(self, text: str) -> None:
        if not self._told_missing:
            self._told_missing = True
            logger.warning(text)

    @property
    def running(self) -> bool:
        """Whether a step has begun and not ended."""
        return self._recording is not None

    def begin(self, model: Any) -> None:
        """A step begins; one that is running ends first."""
        self.end()
        session = self._session()
        if session is None:
            return
        from msprobe.pytorch import PrecisionDebugger

        recording = PrecisionDebugger.record(model)
        recording.begin(model)
        self._recording = recording

    def pause(self) -> None:
        """Nothing is recorded until `go_on`; the step is not over."""
        if self._recording is not None:
            from msprobe.pytorch import PrecisionDebugger

            self.paused = True
            PrecisionDebugger.stop()

    def go_on(self, model: Any) -> None:
        """After `pause`; nothing happens where the step is not interrupted, or another callback has gone on already."""
        if self.paused:
            from msprobe.pytorch import PrecisionDebugger

            self.paused = False
            session = PrecisionDebugger._session
            if session is not None and not session.on:
                PrecisionDebugger.start(model)

    def end(self, error: BaseException | None = None) -> None:
        """The step that is running ends, if there is one."""
        recording, self._recording = self._recording, None
        self.paused = False
        if recording is not None:
            recording.end(error)

    def count_from(self, done: int) -> None:
        """The next step is number `done` (steps done before this training, from its checkpoint), unless numbers are higher already.

        Numbers never go back: a second training in one process would write over the steps of the first.
        """
        session = self._session()
        if session is None:
            return
        with session.lock:
            if session.number < done:
                session.number = done
            elif session.number > done:
                logger.info(f"step {session.number} is the first of this training, after {done} steps of its own count")

    def explain(self, why: str) -> None:
        """Why nothing was recorded, should the process end without a step."""
        session = self._session()
        if session is not None and not session.why_nothing:
            session.why_nothing = why
