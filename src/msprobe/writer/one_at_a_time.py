"""Work on files that may begin in any thread, and again inside of itself: one piece at a time, and no error of it goes further."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from msprobe.contain import let_through


class OneAtATime:
    """Runs pieces of work; a class made of it says when there is nothing more to do, and what becomes of an error."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._busy = False

    def _is_over(self) -> bool:
        """Whether nothing is done any more."""
        raise NotImplementedError

    def _do(self, work: Callable[[], None]) -> None:
        work()

    def _failed(self, failure: Exception) -> None:
        """A piece of work raised this."""
        raise NotImplementedError

    def _guarded(self, work: Callable[[], None], wait: bool = True) -> None:
        """Run `work`, one at a time; whatever goes wrong is `_failed`'s.

        An exception of the user's (Ctrl-C on the main thread) passes through and may cut `work` short anywhere. Each of its parts is
        such that doing it again, after any part of it was done, gives the same files.

        Args:
            work: the piece.
            wait: False: nothing is done while another thread is at work.
        """
        if self._is_over() or not self._lock.acquire(wait):
            return
        try:
            if self._is_inside():  # entered again from inside: a signal handler, or a destructor that the collector ran
                return
            try:
                self._busy = True
                self._do(work)
            except Exception as failure:
                let_through(failure)
                self._failed(failure)
            finally:
                self._busy = False
        finally:
            self._lock.release()

    def _is_inside(self) -> bool:
        """Whether a caller of this thread's is at work. `_busy` alone may be left over from an interruption."""
        if not self._busy:
            return False
        frame = sys._getframe(2)
        while frame is not None and not (frame.f_code is OneAtATime._guarded.__code__ and frame.f_locals.get("self") is self):
            frame = frame.f_back  # type: ignore[assignment]
        return frame is not None
