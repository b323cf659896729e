"""The one thread per process that writes JSON: every 0.4 s what is new, and at once what is asked for.

All file work of the writers happens on this thread. Ctrl-C and Python's signal handlers run on the main thread only, so they can never
stop a write half-way, and a handler that closes a writer cannot meet itself inside one.
"""

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
# Rounds without a live writer after which the thread sleeps until it is needed.
_ROUNDS_UNTIL_SLEEP = 25
_FAULTS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS")

Job = Callable[[], None]


class Flushable(Protocol):
    """What the thread looks after. The first two run on the thread and never raise."""

    def flush_if_dirty(self) -> None:
        """Bring the files up to date."""

    def settle(self) -> None:
        """Bring the files up to date and leave nothing hidden behind; the process is about to end."""

    def become_inert(self) -> None:
        """This is a forked child: never touch a file again."""


def block_signals() -> None:
    """The calling thread takes no signals: they belong to the user's threads."""
    faults = {getattr(signal, name) for name in _FAULTS if hasattr(signal, name)}
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)


class Flusher:
    """See the module. One instance per process, `flusher()`."""

    def __init__(self) -> None:
        self.live: dict[int, Flushable] = {}
        self._jobs: SimpleQueue[tuple[Job, threading.Lock] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._sleeping = False
        self._ended = False
        self._inline = threading.RLock()

    def register(self, writer: Flushable) -> None:
        self.live[id(writer)] = writer
        if self._sleeping:
            self._jobs.put(None)
        elif self._thread is None:
            self._start()

    def unregister(self, writer: Flushable) -> None:
        self.live.pop(id(writer), None)

    def run(self, job: Job) -> None:
        """Do `job` on the thread and wait for it. `job` must not raise.

        An exception of the user's that arrives while waiting (Ctrl-C) is raised after the job is done; a second one at once.
        """
        thread = self._thread
        if thread is None or not thread.is_alive():
            if not self._start():
                with self._inline:
                    job()
                return
            thread = self._thread
        assert thread is not None
        if thread is threading.current_thread():
            job()
            return
        done = threading.Lock()
        done.acquire()
        interruption: BaseException | None = None
        self._jobs.put((job, done))
        while True:
            try:
                if done.acquire(timeout=2.0) or not thread.is_alive():
                    break
            except BaseException as arrived:
                if interruption is not None:
                    raise
                interruption = arrived
        if interruption is not None:
            raise interruption

    def flush_all(self) -> None:
        """Bring the files of every live writer up to date, now."""
        self.run(lambda: self._each("flush_if_dirty"))

    def end(self) -> None:
        """The interpreter ends: settle every writer and stop the thread. What comes later is done without it."""
        self.run(lambda: self._each("settle"))
        self._ended = True
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join(timeout=1.0)

    def _start(self) -> bool:
        with self._inline:
            if self._thread is not None and self._thread.is_alive():
                return True
            if self._ended:
                return False
            thread = threading.Thread(target=self._loop, name="msprobe-flush", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads allowed, or the interpreter is ending
                return False
            self._thread = thread
            return True

    def _each(self, what: str) -> None:
        for writer in list(self.live.values()):
            getattr(writer, what)()

    def _loop(self) -> None:
        block_signals()
        idle = 0
        due = time.monotonic() + INTERVAL
        while not self._ended:
            try:
                task = self._jobs.get(timeout=max(0.0, due - time.monotonic()))
            except Empty:
                task = None
            if task is not None:
                job, done = task
                try:
                    job()
                finally:
                    done.release()
            if time.monotonic() < due:
                continue
            idle = 0 if self.live else idle + 1
            self._each("flush_if_dirty")
            if idle > _ROUNDS_UNTIL_SLEEP:
                idle = 0
                self._sleep_until_needed()
            due = time.monotonic() + INTERVAL

    def _sleep_until_needed(self) -> None:
        self._sleeping = True
        try:
            # `register` sets `live` before it looks at `_sleeping`, so one of the two sees the other.
            if not self.live and not self._ended:
                task = self._jobs.get()
                if task is not None:
                    self._jobs.put(task)
        finally:
            self._sleeping = False


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
    if _flusher is not None and _flusher.live:
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
