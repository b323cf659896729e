"""The one thread per process that brings the JSON of every live writer up to date every 0.4 s, and what happens at the end of a process."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Protocol

INTERVAL = 0.4
# Rounds without a live writer after which the thread ends; the next writer starts a new one.
_IDLE_ROUNDS = 25
_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")


class Flushable(Protocol):
    """What the thread looks after. None of these raises."""

    def flush_if_dirty(self, wait: bool = True) -> None:
        """Bring the files up to date; with `wait` False only if nobody else is doing so."""

    def settle(self) -> None:
        """Bring the files up to date and leave nothing hidden behind; the process is about to end."""

    def become_inert(self) -> None:
        """This is a forked child: never touch a file again."""


def block_signals() -> None:
    """The calling thread takes no signals: they belong to the user's threads."""
    faults = {getattr(signal, name) for name in _FAULTS if hasattr(signal, name)}
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)


class Flusher:
    """See the module. One instance per process, `flusher()`.

    The user's thread only puts into a queue written in C here: a signal handler's exception may arrive between any two of our instructions,
    and a lock of Python's own (an Event has one) that it left locked would stop the training at the next step.
    """

    def __init__(self) -> None:
        self.live: dict[int, Flushable] = {}
        self._ending: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = False

    def register(self, writer: Flushable) -> None:
        """Look after `writer` until it is unregistered."""
        self.live[id(writer)] = writer
        thread = self._thread
        if (thread is None or not thread.is_alive()) and not self._ended:
            self._start()

    def unregister(self, writer: Flushable) -> None:
        self.live.pop(id(writer), None)

    def flush_all(self) -> None:
        """Bring the files of every live writer up to date, now."""
        for writer in list(self.live.values()):
            writer.flush_if_dirty()

    def end(self) -> None:
        """The interpreter ends: stop the thread and settle every writer."""
        self._ended = True
        self._ending.put(None)
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(timeout=1.0)
        for writer in list(self.live.values()):
            writer.settle()

    def _start(self) -> None:
        # Known before it runs: an interruption after the start must not bring a second one into the world.
        thread = self._thread = threading.Thread(target=self._loop, name="msprobe-flush", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads allowed, or the interpreter is ending: closing a writer still writes everything
            self._thread = None

    def _loop(self) -> None:
        block_signals()
        idle = 0
        due = time.monotonic() + INTERVAL
        while not self._ended:
            try:
                self._ending.get(timeout=max(0.0, due - time.monotonic()))
            except Empty:
                pass
            for writer in list(self.live.values()):
                writer.flush_if_dirty(wait=False)
            due = time.monotonic() + INTERVAL
            idle = 0 if self.live else idle + 1
            if idle > _IDLE_ROUNDS and self._may_end():
                return

    def _may_end(self) -> bool:
        """Whether the thread ends; the next writer starts a new one. `register` notes its writer before it looks for the thread."""
        self._thread = None
        if self.live and self._thread is None:
            self._thread = threading.current_thread()
            return False
        return True


_flusher: Flusher | None = None
_at_end: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()
_registered_for: int | None = None


def flusher() -> Flusher:
    """This process's flusher."""
    global _flusher
    if _flusher is None:
        _flusher = Flusher()
        _register_exit()
    return _flusher


def flush_all() -> None:
    """Bring the files of every live writer of this process up to date, now. Never raises."""
    if _flusher is not None:
        _flusher.flush_all()


def at_end(owner: Any, what: Callable[[Any], None]) -> None:
    """Have `what(owner)` done when the interpreter ends, if `owner` is alive then."""
    _at_end[owner] = what
    _register_exit()


def _register_exit() -> None:
    global _registered_for
    if _registered_for != os.getpid():
        _registered_for = os.getpid()
        atexit.register(_exit, _registered_for)


def _exit(pid: int) -> None:
    if os.getpid() != pid:  # a forked child inherits the parent's registration
        return
    if _flusher is not None:
        _flusher.end()
    for owner, what in list(_at_end.items()):
        what(owner)


def _after_fork_in_child() -> None:
    global _flusher
    parents, _flusher = _flusher, None
    _at_end.clear()
    if parents is not None:
        for writer in parents.live.values():
            writer.become_inert()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
