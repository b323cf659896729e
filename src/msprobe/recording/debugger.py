"""The one debugger of a process, as far as it is the same in every framework."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable
from typing import Any, Generic, NoReturn, TypeVar

from msprobe.config import Config
from msprobe.config.values import nearest
from msprobe.errors import MsprobeException, UsageError
from msprobe.log import logger
from msprobe.recording.calling_place import calling_place
from msprobe.recording.session import BaseSession, contained

S = TypeVar("S", bound=BaseSession)


class BaseDebugger(Generic[S]):
    """What stands behind `PrecisionDebugger`: a framework's own class is the one that names this one as its base, and says `_make_session`.

    There is one debugger of a framework in a process: constructing a second one gives the first, its arguments are ignored.
    """

    _class: Any
    """The framework's own class, which holds the instance and the session; a user may have made a class of it."""
    _instance: Any = None
    _session: Any = None
    _made_at = ""
    """The line that made the instance."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if BaseDebugger in cls.__bases__:
            cls._class = cls
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=cls._forget_in_child)

    def __new__(
        cls,
        config_path: str | None = None,
        task: str | None = None,
        dump_path: str | None = None,
        level: str | None = None,
        step: Iterable[int | str] | None = None,
        **unknown: NoReturn,
    ) -> Any:
        one = cls._class
        arguments = {"task": task, "dump_path": dump_path, "level": level, "step": step}
        if unknown:
            raise UsageError(_told_unknown(next(iter(unknown)), ("config_path", *arguments)))
        if one._instance is None:
            one._session = one._make_session(config_path, arguments)
            atexit.register(one._at_exit, one._session)
            one._instance, one._made_at = super().__new__(cls), calling_place()
        elif config_path is not None or any(argument is not None for argument in arguments.values()):
            logger.warning(
                f"there is one PrecisionDebugger in a process: the first one, of {one._made_at}, goes on, and the arguments of this one,"
                f" at {calling_place()}, are ignored"
            )
        return one._instance

    @classmethod
    def _make_session(cls, config_path: str | None, arguments: dict[str, Any]) -> S:
        """The session that the configuration asks for. Raises ConfigError."""
        raise NotImplementedError

    @classmethod
    def _current(cls) -> S:
        session: S | None = cls._class._session
        if session is None:
            raise UsageError("there is no PrecisionDebugger yet: construct one first, PrecisionDebugger(config_path=...)")
        return session

    @classmethod
    def _at_exit(cls, session: S) -> None:
        """The interpreter ends; a debugger that another one has replaced says nothing."""
        if cls._class._session is session:
            try:
                contained(session.at_exit, session)
            except MsprobeException as error:
                logger.error(str(error))
            finally:
                session.late.tell_rest()

    @classmethod
    def _forget_in_child(cls) -> None:
        """This is a forked child (a data loader's worker), where nothing is recorded."""
        session = cls._class._session
        if session is not None:
            session.forget()

    @property
    def config(self) -> Config:
        """The configuration that holds now: `debugger.config.level`, `.dump_path`, `.task`."""
        return self._current().config

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


def _told_unknown(name: str, known: tuple[str, ...]) -> str:
    close = nearest(name, known)
    return f"PrecisionDebugger has no argument {name!r}; it takes {', '.join(known)}" + (f"; did you mean {close!r}?" if close else "")
