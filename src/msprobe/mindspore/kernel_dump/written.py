"""Whether MindSpore's own dump has written anything: it says nothing where it has not."""

from __future__ import annotations

import os

from msprobe.log import logger

_BESIDE = {".dump_metadata", "execution_order", "graphs"}
"""Directories of a rank that hold no values; they are there even where nothing was selected."""
_MOST_FILES = 100_000


class Written:
    """Looks for what has come into a directory since the settings were written.

    Args:
        root: dump_path, absolute.
        settings: the file of the settings in it, which has been written just now: the clock of the file system is what counts.
    """

    def __init__(self, root: str, settings: str) -> None:
        self._root = root
        self._since = os.path.getmtime(settings) - 2  # file systems round

    def tell(self) -> None:
        """Say so where there is nothing new."""
        if not self._has_values():
            logger.warning(
                f"nothing was recorded: MindSpore has written no values to {self._root}. It reads the settings when it compiles for the "
                'first time in a process, so that start() has to come before that; or "list" and "step" select nothing of what ran'
            )

    def _has_values(self) -> bool:
        """Whether a file is new; yes, too, where there are so many that looking would take long."""
        looked = 0
        for directory, inside, files in os.walk(self._root):
            inside[:] = [name for name in inside if name not in _BESIDE]
            if directory == self._root:
                continue  # the settings themselves
            for name in files:
                looked += 1
                try:
                    if looked > _MOST_FILES or os.path.getmtime(os.path.join(directory, name)) >= self._since:
                        return True
                except OSError:
                    continue
        return False
