"""Threads that write tensor files: each distinct content once per directory, its other names as hard links."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from typing import Any

import xxhash

from msprobe.format import tensor_files
from msprobe.format.tensor_file import Buffer
from msprobe.format.tensor_files import Writing
from msprobe.writer.failed_files import FailedFiles
from msprobe.writer.flusher import at_end, block_signals
from msprobe.writer.staging_ring import StagingRing
from msprobe.writer.tensor_contents import TensorContents
from msprobe.writer.tensor_jobs import Directory, Job, Key, Known, Saver

# Directories whose contents are remembered: a step's own, and the one before while its last files come in.
_DIRECTORIES = 2
_IDLE_SECONDS = 5.0
# A thread with nothing to do is woken for so many bytes or jobs; it looks by itself this often, so that the rest does not wait long.
_WORTH_WAKING = 1 << 16
_POLL_SECONDS = 0.1
# What a thread takes at a time.
_BATCH = 64
_BATCH_BYTES = 1 << 20
# From this size on data is copied into the ring.
_RING_FROM = 1 << 12

_pools: weakref.WeakSet[TensorPool] = weakref.WeakSet()


class TensorPool:
    """See the module. While `max_bytes` are waiting, who submits more writes it himself: that takes no memory, and is no slower
    than waiting. In a forked child the pool does nothing.

    Args:
        max_bytes: of data held.
        threads: at most; None: one, two where there are more than two processors.
    """

    def __init__(self, max_bytes: int = 64 << 20, threads: int | None = None) -> None:
        self._max_bytes = max_bytes
        self._max_threads = (2 if _processors() > 2 else 1) if threads is None else threads
        self._lock = threading.Lock()
        self._failed = FailedFiles()
        self._contents = TensorContents(self._lock, self._failed)
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._jobs: deque[Job] = deque()
        self._in_hand = 0  # batches taken by threads of the pool and not finished
        self._helping: dict[int, list[Job]] = {}  # those of other threads, by thread
        self._submitted = 0  # bytes
        self._finished = 0
        self._threads = 0
        self._idle = 0
        self._ring = StagingRing(max_bytes // 2)
        self._directories: OrderedDict[str, Directory] = OrderedDict()
        self._inert = False
        _pools.add(self)

    @property
    def files(self) -> int:
        """So many files and links there are."""
        return self._contents.files

    @property
    def bytes_written(self) -> int:
        """Bytes of files; hard links take none."""
        return self._contents.bytes_written

    @property
    def problems(self) -> Counter[str]:
        """What could not be written, by reason."""
        return self._failed.problems

    def failed_files(self, directory: str) -> dict[str, list[str]]:
        """Which files in a directory and below it could not be written, by reason: for each reason the first 200. They are given once."""
        return self._failed.take(directory)

    def submit(self, path: str, dtype: str, shape: Sequence[int], data: Buffer, owner: Any = None) -> None:
        """Have a `.pt` written (tensor_file.write).

        Args:
            path, dtype, shape, data: see there. Data is copied, where it is new and not written at once.
            owner: what keeps `data` as it is for as long as somebody has it; then nothing is copied.
        """
        if self._inert:
            return
        directory, name = self._noted(path)
        view = data if type(data) is bytes else memoryview(data).cast("B")
        if owner is None and len(view) < _RING_FROM:
            view = bytes(view)  # copied first: other threads may change it between two looks
        key = xxhash.xxh3_128_digest(view), dtype, tuple(shape)
        if key in directory.submitted:
            self._put(Job(name, 0, directory, key))
            return
        try:
            writing = tensor_files.writing(name, dtype, key[2], view)
        except (KeyError, ValueError) as problem:
            self._failed.add(path, problem)
            return
        job = self._holding(directory, key, writing, owner)
        if job is None:
            self._contents.write_now(directory, key, writing, is_still=owner is not None)
        else:
            assert job.key is not None
            self._put(job)
            directory.submitted.add(job.key)  # last: where an interruption comes before, the content is submitted once more

    def submit_saver(self, path: str, saver: Saver, nbytes: int) -> None:
        """Have `saver` write the file, under a hidden name that it is given, on a thread of the pool; `nbytes` is the memory it holds.
        Blocks while `max_bytes` are waiting.
        """
        if self._inert:
            return
        directory, name = self._noted(path)
        with self._lock:
            while self._is_full() and (self._jobs or self._in_hand) and self._threads:
                self._room.wait(1.0)
        self._put(Job(name, nbytes, directory, None, saver))

    def drain(self) -> None:
        """Wait until everything submitted is written or has failed; helps with it."""
        if self._inert:
            return
        with self._lock:
            self._take_up_again()
            if self._jobs:
                self._work.notify_all()
            while self._jobs or self._in_hand:
                if self._jobs and (self._jobs[0].saver is None or (not self._threads and not self._start_thread())):
                    self._help()
                else:
                    self._room.wait(1.0)

    def close(self) -> None:
        """Drain and let the threads end."""
        self.drain()
        if not self._inert:
            with self._lock:
                self._directories.clear()
                self._max_threads = 0
                self._work.notify_all()

    # --- what comes in ----------------------------------------------------------------------------------------------------------------
    def _noted(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        directory = self._directories.get(parent)
        if directory is None:
            directory = Directory(parent)
            with self._lock:
                directory = self._directories.setdefault(parent, directory)
                while len(self._directories) > _DIRECTORIES:
                    self._directories.popitem(last=False)
        names = directory.names
        if name in names:
            # A file that others may be linked to gets a new content: after them, and nothing is linked to it by the old one.
            self.drain()
            directory.contents.clear()
            directory.submitted.clear()
        names.add(name)
        return directory, name

    def _is_full(self) -> bool:
        return self._submitted - self._finished >= self._max_bytes

    def _holding(self, directory: Directory, key: Key, writing: Writing, owner: Any) -> Job | None:
        """A job with data that nobody changes; None where there is no room for it. The key is that of the copy: the memory may have
        changed since it was digested."""
        view = writing.data
        nbytes = len(view)
        if self._is_full():
            return None
        if owner is None and type(view) is not bytes:
            with self._lock:
                owner = self._ring.take(nbytes)
            if owner is None:
                return None
            owner.memory[:] = view
            writing = writing._replace(data=owner.memory)
            key = xxhash.xxh3_128_digest(owner.memory), *key[1:]
        job = Job(writing.name, nbytes, directory, key)
        job.writing, job.owner = writing, owner
        return job

    def _put(self, job: Job) -> None:
        with self._lock:
            # Counted after it is queued: an interruption in between makes the count too small, never a wait without end.
            self._jobs.append(job)
            self._submitted += job.nbytes
            worth = self._submitted - self._finished >= _WORTH_WAKING or len(self._jobs) >= _BATCH or job.saver is not None
            if self._idle:
                if worth:
                    self._work.notify()
            elif (not self._threads or (worth and self._threads < self._max_threads)) and not self._start_thread():
                self._take_up_again()
                while self._jobs:
                    self._help()

    def _help(self) -> None:
        """The caller does some jobs. Holds the lock on entry and on return. What an interruption ends is done by the next `drain`."""
        batch = self._helping[threading.get_ident()] = []
        self._take(batch)
        self._lock.release()
        try:
            self._do(batch)
        finally:
            self._lock.acquire()
        self._finished += sum(job.nbytes for job in batch)
        del self._helping[threading.get_ident()]
        batch.clear()

    def _take_up_again(self) -> None:
        """Jobs with which the caller was interrupted. Done twice is as good as done once. Holds the lock."""
        interrupted = self._helping.get(threading.get_ident())
        if interrupted is not None:
            self._jobs.extendleft(reversed(interrupted))
            del self._helping[threading.get_ident()]

    # --- the threads ------------------------------------------------------------------------------------------------------------------
    def _start_thread(self) -> bool:
        thread = threading.Thread(target=self._loop, name="msprobe-tensors", daemon=True)
        self._threads += 1
        try:
            thread.start()
        except RuntimeError:  # no more threads allowed, or the interpreter is ending
            self._threads -= 1
            return False
        at_end(self, drain_at_end)
        return True

    def _loop(self) -> None:
        block_signals()
        with self._lock:
            while True:
                since = time.monotonic()
                while not self._jobs:
                    if self._max_threads == 0 or time.monotonic() - since >= _IDLE_SECONDS:
                        self._threads -= 1
                        return
                    self._idle += 1
                    self._work.wait(min(_POLL_SECONDS, _IDLE_SECONDS))
                    self._idle -= 1
                batch: list[Job] = []
                self._in_hand += 1
                self._take(batch)
                self._lock.release()
                try:
                    self._do(batch)
                finally:
                    self._lock.acquire()
                    self._in_hand -= 1
                    self._finished += sum(job.nbytes for job in batch)
                    del batch  # so that its places in the ring are free
                    self._room.notify_all()

    def _take(self, batch: list[Job]) -> None:
        """Put the next jobs, of one directory, into `batch`, contents looked up in the order of submission. Holds the lock."""
        jobs, nbytes = self._jobs, 0
        first = jobs[0]
        directory, contents = first.directory, first.directory.contents
        while jobs and len(batch) < _BATCH and nbytes < _BATCH_BYTES:
            job = jobs[0]
            if job is not first and (first.saver is not None or job.saver is not None or job.directory is not directory):
                break
            batch.append(job)
            jobs.popleft()
            nbytes += job.nbytes
            if job.key is None:
                break
            if not job.is_first:
                job.known = contents.get(job.key)
                if job.known is None and job.writing is not None:
                    job.known = contents[job.key] = Known()
                    job.is_first = True
            if job.is_first and job.known is not None:
                job.known.batch, job.known.first = batch, job.name

    def _do(self, batch: list[Job]) -> None:
        first = batch[0]
        try:
            if first.saver is not None:
                self._contents.save(first.path, first.saver)
            else:
                self._contents.write(batch)
        except Exception as failure:
            self._failed.add(first.path, failure)


def drain_at_end(pool: TensorPool) -> None:
    """The interpreter ends: what was submitted is written."""
    pool.drain()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool._inert = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
