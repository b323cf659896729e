"""Where a process writes: its directory in every step, which no other running process may share."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from msprobe.format import layout
from msprobe.log import logger

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]


_looked: set[tuple[str, int]] = set()
"""(root, rank) that this process has looked at: what it finds there later it may have written itself."""


class Place:
    """The directories of one process.

    Args:
        dump_path: the root; absolute from here on, whatever the working directory becomes.
        step: the first step that is recorded.
        rank: of this process, None without a process group.
        siblings: gives ids of processes of the same run, whose directories are no surprise.
    """

    def __init__(self, dump_path: str, step: int, rank: int | None, siblings: Callable[[], Collection[int]] = tuple) -> None:
        self.root = os.path.abspath(dump_path)
        self.rank = rank
        self._suffix = ""
        self._lock = -1
        directory = self.directory(self.root, step)
        if rank is None:
            self._look_for_others(directory, siblings)
            return
        if fcntl is not None:
            self._claim(directory)
        if not self._suffix and (self.root, rank) not in _looked:
            _looked.add((self.root, rank))
            self._look_for_earlier(step, rank)

    def directory(self, root: str, step: int) -> str:
        """`{root}/step{step}/rank{rank}`, or `proc{pid}` without a rank."""
        return layout.rank_dir(layout.step_dir(root, step), self.rank, os.getpid()) + self._suffix

    def release(self) -> None:
        """Let other processes use the rank's directories."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _look_for_others(self, directory: str, siblings: Callable[[], Collection[int]]) -> None:
        """Without ranks each process has a directory of its own, and an earlier run's stay there: tell, before somebody compares them."""
        try:
            others = layout.procs(os.path.dirname(directory))
        except OSError:
            return
        others.pop(os.getpid(), None)
        known = siblings() if others else ()
        names = [path.name for process, path in others.items() if process not in known]
        if names:
            named = ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
            logger.warning(
                f"{os.path.dirname(directory)} already holds {named}: an earlier run's or another process's; give each run a dump_path of "
                "its own, or name the directory when comparing"
            )

    def _look_for_earlier(self, step: int, rank: int) -> None:
        """With ranks an earlier run's directories are used again: tell, before they are replaced."""
        try:
            steps = sorted((number, path) for number, path in layout.steps(self.root).items() if number >= step)
        except OSError:
            return
        for _, path in steps:
            directory = layout.rank_dir(path, rank, os.getpid())
            if any(os.path.exists(os.path.join(directory, document)) for document in (layout.DUMP, layout.DEBUG)):
                logger.warning(
                    f"{directory} holds a dump of an earlier run, which is replaced when that step is recorded, as are those of later "
                    "steps; give each run a dump_path of its own"
                )
                return

    def _claim(self, directory: str) -> None:
        """Two processes that write into one directory would spoil each other's files: the later one writes beside it."""
        try:
            os.makedirs(directory, exist_ok=True)
            self._lock = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # the writer tells what is wrong with the directory
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            self._suffix = f".proc{os.getpid()}"
            logger.warning(
                f"another running process records as rank {self.rank} into {os.path.dirname(directory)}: this one writes to "
                f"{os.path.basename(directory)}{self._suffix} instead; give each process a rank_id of its own"
            )
        except OSError:
            pass  # a file system without locks
