"""Files that could not be written: how many for which reason, and the first names."""

from __future__ import annotations

import os
import threading
from collections import Counter

from msprobe.log import logger

# Names of one directory and for one reason, and such lists: beyond that they are only counted.
_MOST_NAMES = 200
_MOST_LISTS = 1000


class FailedFiles:
    """See the module. The first one is a warning in the log; any thread may come."""

    def __init__(self) -> None:
        self.problems: Counter[str] = Counter()
        self._names: dict[tuple[str, str], list[str]] = {}  # by directory and reason
        self._lock = threading.Lock()
        self._warned = False

    def add(self, path: str, failure: Exception) -> None:
        """The file could not be written."""
        reason = getattr(failure, "strerror", None) or f"{type(failure).__name__}: {failure}"
        directory, _, name = path.rpartition("/")
        with self._lock:
            self.problems[reason] += 1
            if len(self._names) < _MOST_LISTS or (directory, reason) in self._names:
                names = self._names.setdefault((directory, reason), [])
                if len(names) < _MOST_NAMES:
                    names.append(name)
            warn, self._warned = not self._warned, True
        if warn:
            logger.warning("%s cannot be written (%s); the run goes on, the end of the step tells what else failed", path, reason)

    def take(self, directory: str) -> dict[str, list[str]]:
        """Names in a directory and below it, by reason: for each reason the first 200. They are given once."""
        found: dict[str, list[str]] = {}
        with self._lock:
            for key in [key for key in self._names if f"{key[0]}/".startswith(f"{directory}/")]:
                below = key[0][len(directory) + 1 :]
                found.setdefault(key[1], []).extend(os.path.join(below, name) for name in self._names.pop(key))
        return {reason: names[:_MOST_NAMES] for reason, names in found.items()}
