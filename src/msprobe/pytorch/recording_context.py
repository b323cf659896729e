"""What `PrecisionDebugger.record` gives: a context manager and a decorator around start(), stop() and step().

A step begins with the first record() that is entered and ends when the last one has been left, in whatever thread: a nested one, a
recursive call and a second thread belong to the step that is running.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from msprobe.errors import MsprobeException, UsageError
from msprobe.log import logger
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.module_dump.naming import all_modules
from msprobe.pytorch.models_by_name import ModelOf, is_settled, model_of

if TYPE_CHECKING:
    from types import TracebackType

    from msprobe.pytorch.debugger import PrecisionDebugger
    from msprobe.pytorch.session import Session

F = TypeVar("F", bound=Callable[..., Any])

_NO_FUNCTION = (
    "what record() gives stands above a function, with parentheses of its own: @debugger.record(model), or @debugger.record() where no "
    "model is needed (levels L1 and debug)"
)


class OpenRecordings:
    """The record() of a process that are open, all threads together. Every method is called under the session's lock.

    Args:
        contained: runs what is ours alone; an error there is only logged.
    """

    def __init__(self, session: Session, contained: Callable[[Callable[[], None]], None]) -> None:
        self._session = session
        self._contained = contained
        self._threads: dict[int, int] = {}
        """How many are open, by the thread that has entered them."""
        self._model: Any = None
        self._number = 0
        self._by_hand = True
        """Nothing is to be switched off: none is open, or start() was called before the first one."""
        self.begins = False
        """Whether it is a record() that calls start() now."""
        self._told: set[str] = set()

    def enter(self, model: Any, start: Callable[[], None]) -> None:
        """One more; the first calls `start`. Nothing is counted if that raises."""
        session, thread = self._session, threading.get_ident()
        if self._threads:
            self._contained(lambda: self._join(model))
        else:
            self._by_hand = session.on
            if self._by_hand:
                self._tell("record() begins inside of start() and stop(): it changes nothing, and the step ends with step()")
            self._number, self._model = session.number, model
            self.begins = True
            try:
                start()
            finally:
                self.begins = False
        self._threads[thread] = self._threads.get(thread, 0) + 1

    def of_this_thread(self) -> int:
        """How many this thread has entered and not left. Needs no lock."""
        return self._threads.get(threading.get_ident(), 0)

    def cut_off(self, before: int) -> None:
        """The user's exception came while one was entered: its block will not run, and nobody else would switch it off.

        Args:
            before: what `of_this_thread` was before that.
        """
        self.begins = False
        if before:
            self._threads[threading.get_ident()] = before
        else:
            self._threads.pop(threading.get_ident(), None)
        if not self._threads and not self._by_hand:
            self._contained(self._session.stop)

    def _join(self, model: Any) -> None:
        session = self._session
        if model is not None and model is not self._model and session.config.level in ("L0", "mix"):
            inside = {id(module) for module in all_modules(self._model)} if self._model is not None else set()
            if not all(id(module) in inside for module in all_modules(model)):
                self._tell(
                    "record() is entered with another model while one is open: its modules are not recorded (its API calls are, at level "
                    "mix); give the outer one both: record([model_a, model_b])"
                )
        mode = session.window.mode if session.window is not None else None
        if mode is not None and mode not in torch_internals.modes_of_this_thread(type(mode)):
            torch_internals.insert_mode_at_bottom(mode)  # another thread than the one that opened the window
            session.recorder.state.mode = mode

    def leave(self, stop: Callable[[], None], step: Callable[[], None]) -> None:
        """One less; the last calls `stop` and `step`."""
        if not self._threads:
            return  # the debugger has been made anew since
        thread = threading.get_ident()
        owner = thread if thread in self._threads else next(iter(self._threads))
        left = self._threads[owner] - 1
        if not left and len(self._threads) == 1:
            if self._by_hand:
                self._close()
            else:
                self._end(stop, step)
            return
        if left:
            self._threads[owner] = left
        else:
            del self._threads[owner]
        if thread not in self._threads:
            self._contained(self._leave_thread)

    def _end(self, stop: Callable[[], None], step: Callable[[], None]) -> None:
        session = self._session
        try:
            stop()
            if session.number == self._number or session.in_step:  # else the user's code has called step() itself
                step()
        except BaseException:  # Ctrl-C, or a signal handler's, in the middle of it
            self._contained(session.end_step if session.number == self._number else session.stop)
            raise
        finally:
            self._close()

    def _close(self) -> None:
        self._threads.clear()
        self._model = None
        self._by_hand = True

    def left(self, before: int | None) -> None:
        """The user's exception came while one was left: that is done now, if nothing was.

        Args:
            before: what `of_this_thread` was before that; None: that was not known yet.
        """
        here = self.of_this_thread()
        if here and before in (here, None):
            self._contained(lambda: self.leave(self._session.stop, self._session.end_step))

    def _leave_thread(self) -> None:
        """Others record on; what this thread does from here on belongs to nobody."""
        window, state = self._session.window, self._session.recorder.state
        if window is not None and window.mode is not None:
            torch_internals.remove_mode(window.mode)
            if state.mode is window.mode:
                state.mode = None

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            logger.warning(text)


class Recording:
    """One step: start() where it is entered, stop() and step() where it is left, also by an exception, which passes through.

    Above a function, each call of it is a step; above an async function or a generator, from its first instruction to its last. It holds
    nothing of a call, and may be entered any number of times, one inside the other too.

    Args:
        debugger: whose methods are called.
        model: as start() takes it; above a function also a name or a function, see `models_by_name`.
        token_range, rank_id: as start() takes them.
    """

    def __init__(self, debugger: type[PrecisionDebugger], model: Any, token_range: Any, rank_id: int | None) -> None:
        self._debugger = debugger
        self._model = model
        self._more = (token_range, rank_id)

    def __enter__(self) -> type[PrecisionDebugger]:
        return self.begin(self._model)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.end(error)

    def begin(self, model: Any) -> type[PrecisionDebugger]:
        """Enter with this model; gives the debugger.

        Raises:
            UsageError: as start().
        """
        debugger = self._debugger
        if torch_internals.is_compiling():
            debugger.start(model)  # does nothing there, and says so
            return debugger
        if not is_settled(model):
            raise UsageError(
                f"with record(model): model is {model!r}; only above a function (@debugger.record(...)) may it be a name or a function"
            )
        session = debugger._current()
        recordings = session.recordings
        before = recordings.of_this_thread()
        try:
            with session.lock:
                recordings.enter(model, lambda: debugger.start(model, *self._more))
            return debugger
        except MsprobeException:
            raise
        except BaseException:  # Ctrl-C, or a signal handler's
            with session.lock:
                recordings.cut_off(before)
            raise

    def end(self, error: BaseException | None = None) -> None:
        """Leave; `error` is what the user's code has raised. Nothing of ours takes its place."""
        debugger = self._debugger
        if torch_internals.is_compiling():
            return
        session = debugger._session
        if session is None:
            return
        recordings, before = session.recordings, None
        try:
            before = recordings.of_this_thread()
            with session.lock:
                recordings.leave(debugger.stop, debugger.step)
        except MsprobeException as ours:
            if error is None:
                raise
            logger.warning(str(ours))
        except BaseException:  # Ctrl-C, or a signal handler's
            with session.lock:
                recordings.left(before)
            raise

    def __call__(self, function: F | None = None, *more: Any, **others: Any) -> F:
        """The same function, each call of which is recorded as one step.

        Raises:
            UsageError: `function` is none, or `model` is a name that cannot be found in it.
        """
        if isinstance(function, staticmethod | classmethod):
            return type(function)(self(function.__func__))
        if more or others or not callable(function) or isinstance(function, type) or hasattr(function, "named_modules"):
            raise UsageError(_NO_FUNCTION)
        return _recorded(self, function, model_of(self._model, function))


def _recorded(recording: Recording, function: F, model: ModelOf) -> F:
    """`function` of its own kind (generator, coroutine, ...) with the recording around it."""
    made: Any
    if _is(inspect.iscoroutinefunction, function):

        async def made(*args: Any, **kwargs: Any) -> Any:
            with _Call(recording, model, args, kwargs):
                return await function(*args, **kwargs)

    elif _is(inspect.isasyncgenfunction, function):

        async def made(*args: Any, **kwargs: Any) -> Any:
            with _Call(recording, model, args, kwargs):
                inner = function(*args, **kwargs)
                given: Any = None
                action = inner.asend
                try:
                    while True:
                        try:
                            item = await action(given)
                        except StopAsyncIteration:
                            return
                        try:
                            given, action = (yield item), inner.asend
                        except GeneratorExit:
                            raise
                        except BaseException as error:
                            given, action = error, inner.athrow
                finally:
                    await inner.aclose()

    elif _is(inspect.isgeneratorfunction, function):

        def made(*args: Any, **kwargs: Any) -> Any:
            with _Call(recording, model, args, kwargs):
                return (yield from function(*args, **kwargs))

    else:

        def made(*args: Any, **kwargs: Any) -> Any:
            with _Call(recording, model, args, kwargs):
                result = function(*args, **kwargs)
                if issubclass(type(result), _LATER):  # isinstance would ask the object's own __class__
                    _tell_later(function, result)
                return result

    recorded: Any = functools.wraps(function)(made)
    return recorded


def _is(kind: Callable[[Any], bool], function: Any) -> bool:
    """Whether a function, or an object that is called like one, is of this kind."""
    return kind(function) or kind(getattr(type(function), "__call__", None))  # noqa: B004


def _tell_later(function: Any, result: Any) -> None:
    """What is to be recorded has not run yet, and the step ends here: another decorator hides of what kind the function is."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    if name not in _told_later:
        _told_later.add(name)
        kind = type(result).__name__.replace("_", " ")
        logger.warning(
            f"record() above {name} records nothing of the {kind} that it gives: its code runs when the step is over; put record() "
            "directly above the function that is written with async or yield, below its other decorators"
        )


_LATER = (Coroutine, Generator, AsyncGenerator)
_told_later: set[str] = set()


class _Call:
    """The recording around one call of a function."""

    __slots__ = ("_begun", "_recording")

    def __init__(self, recording: Recording, model: ModelOf, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._recording = recording
        self._begun = False
        found = model(args, kwargs)
        if found is not None:
            recording.begin(found.model)
            self._begun = True

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._begun:
            self._recording.end(error)
