"""`{save_dir}/step{N}/rank{R}/{name}_{dtype}_{n}.npy`: which step it is, how many values of a name there were, and writing them.

Everything here runs while the graph runs, in whatever thread MindSpore calls from.
"""

from __future__ import annotations

import os
import threading
from collections import Counter

from msprobe.contain import let_through
from msprobe.format import layout
from msprobe.log import logger
from msprobe.mindspore.dump.tensor_files import keep_array
from msprobe.mindspore.dump.values import Array
from msprobe.mindspore.process import current_rank
from msprobe.writer import TensorPool, new_pool

_MOST_TOLD = 20


class SavedFiles:
    """The files of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: TensorPool | None = None
        self._numbers: Counter[str] = Counter()
        self._earlier: Counter[str] = Counter()
        """Those of the step before."""
        self._told: set[str] = set()
        self._pid = os.getpid()
        self.step = 0

    def keep(self, directory: str, name: str, dtype: str, array: Array) -> None:
        """Have a value written; never raises.

        Args:
            directory: `save_dir`, absolute.
            name: of the value; a `/` in it, and what else no file name may hold, is escaped.
            dtype: as numpy spells it; it becomes part of the file's name, also where the file holds another (bfloat16 as float32).
            array: copied here; its memory may be the device's.
        """
        try:
            if os.getpid() != self._pid:
                return  # a forked child
            with self._lock:
                if self._pool is None:
                    self._pool = new_pool()
                place = self._place(directory, self.step)
                number = self._number(place, name)
            path = os.path.join(place, layout.safe_file_name(f"{name}_{dtype}_{number}.npy"))
            keep_array(self._pool, path, array)
        except Exception as error:
            let_through(error)
            self.tell(f'save(name="{name}") could not keep a value: {error!r}')

    def rename(self, path: str, name: str, dtype: str) -> None:
        """Give a file that is there the name that it would have been written with; raises OSError.

        Args:
            path: of the file, in the place where it belongs (see `places`).
            name, dtype: see `keep`.
        """
        place = os.path.dirname(path)
        with self._lock:
            number = self._number(place, name)
        os.replace(path, os.path.join(place, layout.safe_file_name(f"{name}_{dtype}_{number}.npy")))

    def places(self, directory: str) -> list[str]:
        """Where the values of the step before this one belong, and those of this one."""
        return [self._place(directory, step) for step in (self.step - 1, self.step) if step >= 0]

    def _place(self, directory: str, step: int) -> str:
        rank = current_rank()
        if rank is None:
            rank = _rank_of_environment()
        return os.path.join(layout.step_dir(directory, step), f"rank{rank}")

    def _number(self, place: str, name: str) -> int:
        """How many values of a name there were."""
        counted = place + "/" + name
        numbers = self._earlier if counted in self._earlier and counted not in self._numbers else self._numbers
        numbers[counted] += 1
        return numbers[counted] - 1

    def end_step(self) -> None:
        """What was saved is on disk; what comes now belongs to the next step."""
        with self._lock:
            self.step += 1
            self._earlier, self._numbers = self._numbers, Counter()
        self.drain()

    def drain(self) -> None:
        """Wait until what was saved is on disk."""
        pool = self._pool
        if pool is not None:
            pool.drain()
            for reason, count in pool.problems.items():
                self.tell(f"{count} saved values could not be written: {reason}")

    def tell(self, text: str) -> None:
        """Warn once of each thing."""
        if text not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(text)
            logger.warning(text)


def absolute(directory: str) -> str:
    """`save_dir`, wherever the process goes later; `~` is the user's home."""
    return os.path.abspath(os.path.expanduser(directory))


def _rank_of_environment() -> int:
    text = os.environ.get("RANK_ID", "")
    return int(text) if text.isascii() and text.isdecimal() else 0


FILES = SavedFiles()
