"""The pool of tensor files whose threads are written in C; where there was no compiler, that of Python."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import xxhash

from msprobe.format import tensor_files
from msprobe.format.tensor_file import Buffer
from msprobe.format.torch_zip import frame
from msprobe.writer import tensor_pool
from msprobe.writer.flusher import at_end
from msprobe.writer.tensor_jobs import Saver, same_content_failed
from msprobe.writer.tensor_pool import TensorPool

_queue_type: Any
try:
    from msprobe.writer._tensor_queue import Queue as _queue_type
except ImportError:  # no compiler when msprobe was installed
    _queue_type = None

_LOOK_UP_SECONDS = 0.2
"""How long an interruption may have to wait for what is being written."""


class NativePool(TensorPool):
    """Does what `TensorPool` does; its own threads of Python are left with what savers write.

    Args:
        max_bytes, threads: of `TensorPool`.
    """

    def __init__(self, max_bytes: int = 64 << 20, threads: int | None = None) -> None:
        super().__init__(max_bytes, threads)
        self.queue = _queue_type(max_bytes, self._max_threads, tensor_pool._IDLE_SECONDS, xxhash.xxh3_128_digest, frame)
        at_end(self, tensor_pool.drain_at_end)

    @property
    def files(self) -> int:
        """So many files and links there are."""
        return self._contents.files + int(self.queue.counts()[0])

    @property
    def bytes_written(self) -> int:
        """Bytes of files; hard links take none."""
        return self._contents.bytes_written + int(self.queue.counts()[1])

    @property
    def problems(self) -> Counter[str]:
        """What could not be written, by reason."""
        self._collect()
        return self._failed.problems

    def failed_files(self, directory: str) -> dict[str, list[str]]:
        """See `TensorPool.failed_files`."""
        self._collect()
        return super().failed_files(directory)

    def submit(self, path: str, dtype: str, shape: Sequence[int], data: Buffer, owner: Any = None) -> None:
        """See `TensorPool.submit`."""
        if self._inert:
            return
        directory, _, name = path.rpartition("/")
        nbytes = memoryview(data).nbytes
        where = data if type(data) is bytes else tensor_files.address(data) if nbytes else b""
        given = (directory, name, dtype, tuple(shape), where, nbytes)
        try:
            if not self.queue.submit(*given, owner):
                # A file that others may be linked to gets a new content: after them, and nothing is linked to it by the old one.
                self.drain()
                self.queue.forget(directory)
                self.queue.submit(*given, owner)
        except (KeyError, ValueError) as problem:
            self._failed.add(path, problem)

    def submit_saver(self, path: str, saver: Saver, nbytes: int) -> None:
        """See `TensorPool.submit_saver`."""
        if self._inert:
            return
        directory, _, name = path.rpartition("/")
        if not self.queue.note(directory, name):
            self.drain()
            self.queue.forget(directory)
            self.queue.note(directory, name)
        super().submit_saver(path, saver, nbytes)

    def drain(self) -> None:
        """See `TensorPool.drain`."""
        if self._inert:
            return
        while not self.queue.settle(_LOOK_UP_SECONDS):
            pass
        super().drain()
        self._collect()

    def close(self) -> None:
        """See `TensorPool.close`."""
        super().close()
        if not self._inert:
            self.queue.close()

    def _collect(self) -> None:
        for path, number in self.queue.failures():
            self._failed.add(path, same_content_failed() if number < 0 else OSError(number, os.strerror(number)))


def new_pool() -> TensorPool:
    """The fastest pool there is."""
    return TensorPool() if _queue_type is None else NativePool()
