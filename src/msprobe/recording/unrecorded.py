"""What could not be recorded in a step, with reasons."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msprobe.contain import let_through

_MOST_LINES = 10_000
_MOST_REASONS = 1000
_ROLE = re.compile(r"(?:input|output|kwargs|parameters|parameters_grad)(?: [^:]*)?: ")


def of_call(reason: str) -> tuple[str, str]:
    """Why, and the whole text, of a reason that may begin with a place in a call: `input 0.1: why`."""
    found = _ROLE.match(reason)
    return reason[found.end() :] if found else reason, reason


def of_saved_value(reason: str) -> tuple[str, str]:
    """Why, and the whole text, of a reason that an encoder tells of a value that has no role: ` key2.1: why` or `: why`, or just why."""
    if not reason.startswith((" ", ": ")):
        return reason, reason
    place, _, why = reason.removeprefix(" ").partition(": ")
    return why, f"{place}: {why}" if place else why


def as_it_is(reason: str) -> tuple[str, str]:
    """A reason that holds no place."""
    return reason, reason


class Unrecorded:
    """Counts reasons for the closing line, and writes each to dump_error_info.log once.

    Args:
        write: takes a line of that file.
        parts: gives, of a reason, why (where in a call a value stands is left out, so that equal reasons are counted together), and what
            the file says.
    """

    def __init__(self, write: Callable[[str], None], parts: Callable[[str], tuple[str, str]] = of_call) -> None:
        self._write: Callable[[str], None] | None = write
        self._parts = parts
        self.count = 0
        self.lines: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def report(self, entry: str, reason: str) -> None:
        """Something could not be recorded; never raises.

        Args:
            entry: of which entry.
            reason: why.
        """
        self.count += 1
        try:
            why, told = self._parts(reason)
            if len(self.reasons) < _MOST_REASONS or why in self.reasons:
                self.reasons[why] += 1
            line = f"{entry}: {told}"
            if len(self.lines) < _MOST_LINES or line in self.lines:
                self.lines[line] += 1
                if self.lines[line] == 1 and self._write is not None:
                    self._write(line)
        except Exception as caught:
            let_through(caught)  # an error in telling of an error has nobody left to tell; it is counted

    def report_files(self, counts: Mapping[str, int], names: Mapping[str, Sequence[str]]) -> None:
        """Files of tensors could not be written.

        Args:
            counts: how many, by reason.
            names: of some of them.
        """
        for reason, count in counts.items():
            self.count += count
            self.reasons[reason] += count
            self.lines[f"tensor files: {reason}"] += count
            if self._write is not None:
                known = names.get(reason, ())
                for name in known:
                    self._write(f"{name}: {reason}")
                if count > len(known):
                    self._write(f"{count - len(known)} {'more ' if known else ''}tensor files: {reason}")

    def let_go(self) -> None:
        """The step has ended; nothing is written any more."""
        self._write = None
