"""Lines that are added to dump_error_info.log when the step's own writer is closed."""

from __future__ import annotations

import threading

from msprobe.contain import let_through
from msprobe.writer.flusher import flusher


class AppendedLines:
    """Lines on their way to the end of one file: they are there half a second later, or when the process ends.

    Args:
        path: the file; made if it does not exist, but not its directory.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self._inert = False

    def add(self, line: str) -> None:
        """A line without its end; may be called from any thread."""
        self._lines.append(line)
        flusher().register(self)

    def flush_if_dirty(self, wait: bool = True) -> None:
        """Bring the file up to date. Never raises: where the file cannot be written the lines are dropped."""
        if self._inert or not self._lock.acquire(wait):
            return
        try:
            lines = self._lines[:]
            if lines:
                self._append("".join(f"{' '.join(line.splitlines())}\n" for line in lines))
                del self._lines[: len(lines)]
            flusher().unregister(self)  # not before: who flushes all waits for what is being written
            if self._lines:  # added meanwhile, and maybe registered before that
                flusher().register(self)
        finally:
            self._lock.release()

    def _append(self, text: str) -> None:
        try:
            with open(self._path, "ab", buffering=0) as file:
                file.write(text.encode("utf-8", "backslashreplace"))
        except Exception as error:
            let_through(error)

    def settle(self) -> None:
        """The process is about to end."""
        self.flush_if_dirty()

    def become_inert(self) -> None:
        """This is a forked child: never touch the file again."""
        self._inert = True
