"""The csv of random_save: each line is on disk at once, forked processes add theirs to the same file."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import threading
import time
from collections.abc import Iterator

from msprobe.pytorch.process import current_rank

try:
    import fcntl
except ImportError:  # Windows, where nothing is forked either
    fcntl = None  # type: ignore[assignment]

HEADER = ("api_name", "stack")
_BOM = b"\xef\xbb\xbf"


class CallSiteFile:
    """`random_rank{id}_{timestamp}.csv`, or `random_proc{pid}_{timestamp}.csv` as long as there is no rank.

    Args:
        directory: absolute path; made if there is none.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        self.directory = directory
        self.owner = os.getpid()
        self._rank = _rank()
        self._lock = threading.Lock()
        self._shared = False
        self.path, self._descriptor = self._create()
        os.write(self._descriptor, _BOM + _line(HEADER))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_parent=self._now_shared, after_in_child=self._now_shared_in_child)

    def _now_shared(self) -> None:
        self._shared = True

    def _now_shared_in_child(self) -> None:
        self._shared = True
        self._lock = threading.Lock()  # a thread that is not in the child may have held it

    def _name(self, moment: float) -> str:
        who = f"proc{self.owner}" if self._rank is None else f"rank{self._rank}"
        return os.path.join(self.directory, f"random_{who}_{time.strftime('%Y%m%d%H%M%S', time.localtime(moment))}.csv")

    def _create(self) -> tuple[str, int]:
        moment = time.time()
        while True:
            path = self._name(moment)
            try:
                return path, os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o640)
            except FileExistsError:
                moment += 1  # another process's, of the same second

    def add(self, name: str, number: int, stack: str) -> None:
        """Add the line `{name}.{number}`, `stack`.

        Once a process was forked, what another one has added (a data-loader worker of the epoch before) is not added again, and a number
        that is taken already gives way to the next free one.
        """
        with self._lock:
            if os.getpid() == self.owner:
                self._take_rank()
            if not self._shared:
                os.write(self._descriptor, _line((f"{name}.{number}", stack)))
                return
            with self._alone():
                there = self._lines()
                same = [line[0] for line in there if line[0].rpartition(".")[0] == name]
                if not any(line[1] == stack for line in there if line[0] in same):
                    while f"{name}.{number}" in same:
                        number += 1
                    os.write(self._descriptor, _line((f"{name}.{number}", stack)))

    def close(self) -> None:
        """Nothing is added any more."""
        with self._lock:
            if os.getpid() == self.owner:
                self._take_rank()
            os.close(self._descriptor)

    def _take_rank(self) -> None:
        """The file gets its rank's name once the process has one."""
        if self._rank is not None:
            return
        self._rank = _rank()
        if self._rank is None:
            return
        before = self.path
        self.path, new = self._create()
        os.close(new)
        os.replace(before, self.path)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        if fcntl is None:
            yield
            return
        # A lock of this kind belongs to the process: the descriptor is one that all forked processes share.
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def _lines(self) -> list[list[str]]:
        content = os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)
        return [line for line in csv.reader(io.StringIO(content.removeprefix(_BOM).decode("utf-8"), newline="")) if len(line) == 2]


def _line(cells: tuple[str, ...]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerow(cells)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _rank() -> int | None:
    """The rank in the process group; before there is one, the rank that a launcher (torchrun) has given."""
    rank = current_rank()
    given = os.environ.get("RANK", "")
    return int(given) if rank is None and "WORLD_SIZE" in os.environ and given.isdecimal() else rank
