"""Threads that write tensor files: each distinct content once per directory, its other names as hard links."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import weakref
import zlib
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import xxhash

from msprobe.format import tensor_file
from msprobe.format.tensor_file import Buffer
from msprobe.log import logger
from msprobe.writer.flusher import at_end, block_signals

_NO_MORE_LINKS = {errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.ENOENT, errno.EACCES}
# Directories whose contents are remembered: a step's own, and the one before while its last files come in.
_DIRECTORIES = 2
_IDLE_SECONDS = 5.0

Saver = Callable[[str], None]
Key = tuple[bytes, str, tuple[int, ...]]


class _Known:
    """A content seen in a directory. While `path` is None its file is being written, and `waiting` names get their link afterwards."""

    __slots__ = ("path", "waiting")

    def __init__(self) -> None:
        self.path: str | None = None
        self.waiting: list[str] = []


class _Directory:
    """What was submitted for one directory."""

    __slots__ = ("contents", "names", "submitted")

    def __init__(self) -> None:
        self.contents: dict[Key, _Known] = {}
        self.names: set[str] = set()
        self.submitted: set[Key] = set()
        """Contents that were queued; another name for one of them needs no data."""


@dataclass
class _Job:
    path: str
    nbytes: int
    directory: _Directory
    saver: Saver | None = None
    dtype: str = ""
    shape: tuple[int, ...] = ()
    data: Buffer | None = None
    key: Key = (b"", "", ())
    known: _Known | None = None
    is_first: bool = False
    """Its file is the one that the other names of this content are linked to."""


_pools: weakref.WeakSet[TensorPool] = weakref.WeakSet()


class TensorPool:
    """See the module. `problems` counts what could not be written, by reason; `files` and `bytes_written` what was.

    Hard links take no bytes. In a forked child the pool does nothing.
    """

    def __init__(self, max_bytes: int = 512 << 20, threads: int = 2) -> None:
        self.problems: Counter[str] = Counter()
        self.files = 0
        self.bytes_written = 0
        self._max_bytes = max_bytes
        self._max_threads = threads
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._jobs: deque[_Job] = deque()
        self._in_hand = 0  # jobs taken and not finished
        self._submitted = 0  # bytes
        self._finished = 0
        self._threads = 0
        self._idle = 0
        self._directories: OrderedDict[str, _Directory] = OrderedDict()
        self._warned = False
        self._inert = False
        _pools.add(self)

    def submit(self, path: str, dtype: str, shape: Sequence[int], data: Buffer) -> None:
        """Have a `.pt` written (tensor_file.write). `data` is copied, where it is new. Blocks while `max_bytes` are waiting."""
        if self._inert:
            return
        directory = self._directory(path)
        self._note_name(path, directory)
        key = xxhash.xxh3_128_digest(data), dtype, tuple(shape)
        if key in directory.submitted:
            self._put(_Job(path, 0, directory, None, dtype, tuple(shape), None, key))
            return
        copy = data if type(data) is bytes else bytes(data)
        self._put(_Job(path, len(copy), directory, None, dtype, tuple(shape), copy, key))
        directory.submitted.add(key)  # last: where an interruption comes before, the content is submitted once more

    def submit_saver(self, path: str, saver: Saver, nbytes: int) -> None:
        """Have `saver(path)` called on a thread of the pool; `nbytes` is the memory it holds."""
        if self._inert:
            return
        directory = self._directory(path)
        self._note_name(path, directory)
        self._put(_Job(path, nbytes, directory, saver))

    def drain(self) -> None:
        """Wait until everything submitted is written or has failed."""
        if self._inert:
            return
        with self._lock:
            while self._jobs or self._in_hand:
                if self._jobs and not self._threads and not self._start_thread():
                    self._work_here()
                    return
                self._room.wait(1.0)

    def close(self) -> None:
        """Drain and let the threads end."""
        self.drain()
        if not self._inert:
            with self._lock:
                self._directories.clear()
                self._max_threads = 0
                self._work.notify_all()

    def _note_name(self, path: str, directory: _Directory) -> None:
        names = directory.names
        if path in names:
            # A file that others may be linked to gets a new content: after them, and nothing is linked to it by the old one.
            self.drain()
            directory.contents.clear()
            directory.submitted.clear()
        names.add(path)

    def _put(self, job: _Job) -> None:
        with self._lock:
            while self._submitted - self._finished >= self._max_bytes and (self._jobs or self._in_hand) and self._threads:
                self._room.wait(1.0)
            # Counted after it is queued: an interruption in between makes the count too small, never a wait without end.
            self._jobs.append(job)
            self._submitted += job.nbytes
            if self._idle:
                self._work.notify()
            elif self._threads < max(1, self._max_threads) and not self._start_thread():
                self._work_here()

    def _start_thread(self) -> bool:
        thread = threading.Thread(target=self._loop, name="msprobe-tensors", daemon=True)
        self._threads += 1
        try:
            thread.start()
        except RuntimeError:  # no more threads allowed, or the interpreter is ending
            self._threads -= 1
            return False
        at_end(self, TensorPool.drain)
        return True

    def _work_here(self) -> None:
        """Without threads the caller writes. Holds the lock on entry and on return."""
        while self._jobs:
            job = self._take()
            self._lock.release()
            try:
                self._do(job)
            finally:
                self._lock.acquire()

    def _take(self) -> _Job:
        """The next job, with its content looked up, in the order of submission. Holds the lock."""
        job = self._jobs.popleft()
        if job.saver is None:
            contents = job.directory.contents
            job.known = contents.get(job.key)
            if job.known is None and job.data is not None:
                job.known = contents[job.key] = _Known()
                job.is_first = True
        return job

    def _loop(self) -> None:
        block_signals()
        with self._lock:
            while True:
                while not self._jobs:
                    self._idle += 1
                    woken = self._work.wait(_IDLE_SECONDS)
                    self._idle -= 1
                    if not self._jobs and (not woken or self._max_threads == 0):
                        self._threads -= 1
                        return
                job = self._take()
                self._in_hand += 1
                self._lock.release()
                try:
                    self._do(job)
                finally:
                    self._lock.acquire()
                    self._in_hand -= 1
                    self._finished += job.nbytes
                    del job
                    self._room.notify_all()

    def _do(self, job: _Job) -> None:
        try:
            if job.saver is not None:
                self._save(job.path, job.saver)
            else:
                self._write(job)
        except Exception as failure:
            self._failed(job.path, failure)

    def _save(self, path: str, saver: Saver) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # the flush thread may not have come to it yet
        _unlink_if_there(path)
        try:
            saver(path)
        except BaseException:
            _unlink_if_there(path)
            raise
        size = os.stat(path).st_size
        with self._lock:
            self.files += 1
            self.bytes_written += size

    def _write(self, job: _Job) -> None:
        known = job.known
        if known is None:
            raise OSError(errno.EIO, "the file with the same content could not be written")
        contents, key = job.directory.contents, job.key
        if not job.is_first:
            with self._lock:
                original = known.path
                if original is None:
                    if contents.get(key) is not known:
                        raise OSError(errno.EIO, "the file with the same content could not be written")
                    known.waiting.append(job.path)
                    return
            self._link(known, original, job.path, job)
            return
        try:
            self._write_file(job, job.path)
        except BaseException:
            with self._lock:
                contents.pop(key, None)
                job.directory.submitted.discard(key)
                others, known.waiting = known.waiting, []
            for path in others:
                self._failed(path, OSError(errno.EIO, "the file with the same content could not be written"))
            raise
        while True:
            with self._lock:
                others, known.waiting = known.waiting, []
                if not others:
                    known.path = job.path
                    return
            for path in others:
                self._link(known, job.path, path, job)

    def _link(self, known: _Known, original: str, path: str, job: _Job) -> None:
        try:
            try:
                os.link(original, path)
            except FileExistsError:
                if path == original:
                    return
                os.unlink(path)
                os.link(original, path)
            with self._lock:
                self.files += 1
        except OSError as problem:
            if problem.errno not in _NO_MORE_LINKS:
                self._failed(path, problem)
                return
            try:
                if job.data is not None:
                    self._write_file(job, path)
                else:
                    self._copy(original, path)
                known.path = path if known.path is not None else None
            except Exception as failure:
                with self._lock:  # the next of this content brings its data along
                    job.directory.submitted.discard(job.key)
                    job.directory.contents.pop(job.key, None)
                self._failed(path, failure)

    def _copy(self, original: str, path: str) -> None:
        """A file system without hard links, or a file that has as many as it may."""
        unfinished = os.path.join(os.path.dirname(path), f".{zlib.crc32(os.fsencode(path)):08x}{tensor_file.UNFINISHED}")
        shutil.copyfile(original, unfinished)
        os.replace(unfinished, path)
        with self._lock:
            self.files += 1
            self.bytes_written += os.stat(path).st_size

    def _write_file(self, job: _Job, path: str) -> None:
        assert job.data is not None
        try:
            size = tensor_file.write(path, job.dtype, job.shape, job.data)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            size = tensor_file.write(path, job.dtype, job.shape, job.data)
        with self._lock:
            self.files += 1
            self.bytes_written += size

    def _directory(self, path: str) -> _Directory:
        name = path.rpartition("/")[0]
        directory = self._directories.get(name)
        if directory is None:
            directory = _Directory()
            if not self._inert:
                with self._lock:
                    directory = self._directories.setdefault(name, directory)
                    while len(self._directories) > _DIRECTORIES:
                        self._directories.popitem(last=False)
        return directory

    def _failed(self, path: str, failure: Exception) -> None:
        reason = getattr(failure, "strerror", None) or f"{type(failure).__name__}: {failure}"
        with self._lock:
            self.problems[reason] += 1
            warn, self._warned = not self._warned, True
        if warn:
            logger.warning("%s cannot be written (%s); the run goes on, further tensor files that fail are only counted", path, reason)


def _unlink_if_there(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool._inert = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
