"""What could not be recorded in a step, with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from msprobe.contain import let_through

_MOST_LINES = 10_000
_MOST_REASONS = 1000


class Unrecorded:
    """Counts reasons for the closing line, and writes each to dump_error_info.log once.

    Args:
        write: takes a line of that file.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write: Callable[[str], None] | None = write
        self.count = 0
        self.lines: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def report(self, entry: str, reason: str) -> None:
        """Something could not be recorded; never raises.

        Args:
            entry: of which entry.
            reason: ` key2.1: why` or `: why`, as an encoder tells it of a value that has no role, or just why.
        """
        self.count += 1
        try:
            place, why = "", reason
            if reason.startswith((" ", ": ")):
                place, _, why = reason.removeprefix(" ").partition(": ")
            if len(self.reasons) < _MOST_REASONS or why in self.reasons:
                self.reasons[why] += 1
            line = f"{entry}: {place}: {why}" if place else f"{entry}: {why}"
            if len(self.lines) < _MOST_LINES or line in self.lines:
                self.lines[line] += 1
                if self.lines[line] == 1 and self._write is not None:
                    self._write(line)
        except Exception as caught:
            let_through(caught)  # an error in telling of an error has nobody left to tell; it is counted

    def let_go(self) -> None:
        """The step has ended; nothing is written any more."""
        self._write = None
