"""Tensor files of one pool: each distinct content written once per directory, its other names linked to that file."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Sequence

import xxhash

from msprobe.format import tensor_file, tensor_files
from msprobe.format.tensor_files import Linking, Writing
from msprobe.writer.failed_files import FailedFiles
from msprobe.writer.tensor_jobs import Directory, Job, Key, Known, Saver, same_content_failed

_NO_MORE_LINKS = {errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.ENOENT, errno.EACCES}


class TensorContents:
    """Writes what it is told to, on whichever thread tells it. What cannot be written or linked goes to `failed`.

    Args:
        lock: under which the pool changes what its directories know; not held by who calls.
        failed: where failures go.

    Attributes:
        files: so many files and links there are.
        bytes_written: of files; links take none.
    """

    def __init__(self, lock: threading.Lock, failed: FailedFiles) -> None:
        self.files = 0
        self.bytes_written = 0
        self._lock = lock
        self._failed = failed

    def write_now(self, directory: Directory, key: Key, writing: Writing, is_still: bool) -> None:
        """Write a new content at once. `is_still`: nobody changes the data meanwhile; else what was written counts, not the given key."""
        live = None if is_still or type(writing.data) is bytes else xxhash.xxh3_128()
        problem = self._carry_out(directory, [writing._replace(live=live)])[0]
        if problem is not None:
            self._failed.add(os.path.join(directory.path, writing.name), problem)
            return
        if live is not None:
            key = live.digest(), *key[1:]
        with self._lock:
            self.files += 1
            self.bytes_written += writing.size
            directory.contents.setdefault(key, Known(writing.name))
        directory.submitted.add(key)

    def save(self, path: str, saver: Saver) -> None:
        """Have `saver` write a file under a hidden name. Raises what it raises; then there is no file."""
        os.makedirs(os.path.dirname(path), exist_ok=True)  # the flush thread may not have come to it yet
        hidden = tensor_file.unfinished(path)
        _unlink_if_there(hidden)
        try:
            saver(hidden)
            size = os.stat(hidden).st_size
            os.replace(hidden, path)
        except BaseException:
            _unlink_if_there(hidden)
            _unlink_if_there(path)
            raise
        with self._lock:
            self.files += 1
            self.bytes_written += size

    def write(self, batch: list[Job]) -> None:
        """Write and link what the jobs, all of one directory, name."""
        directory = batch[0].directory
        operations: list[Writing | Linking] = []
        doing: list[Job] = []
        orphans: list[Job] = []
        with self._lock:
            for job in batch:
                known = job.known
                if job.is_first and job.writing is not None:
                    operations.append(job.writing)
                elif known is None:
                    orphans.append(job)
                    continue
                elif known.name is not None:
                    operations.append(Linking(job.name, known.name))
                elif known.batch is batch:  # its file is written a moment before
                    operations.append(Linking(job.name, known.first))
                elif directory.contents.get(job.key) is known:  # type: ignore[arg-type]
                    known.waiting.append(job.name)
                    continue
                else:
                    orphans.append(job)
                    continue
                doing.append(job)
        for job in orphans:
            self._failed.add(job.path, same_content_failed())
        problems = self._carry_out(directory, operations)
        settled: list[tuple[Known, Job]] = []
        with self._lock:
            for job, operation, problem in zip(doing, operations, problems, strict=True):
                known = job.known
                if problem is None:
                    self.files += 1
                if problem is None and job.is_first and known is not None:
                    self.bytes_written += operation.size if type(operation) is Writing else 0
                    if known.waiting:
                        settled.append((known, job))
                    else:
                        known.name, known.batch = job.name, None
        for job, operation, problem in zip(doing, operations, problems, strict=True):
            if problem is not None and job.is_first:
                self._lost(job, problem)
            elif problem is not None:
                self._not_linked(job, operation, problem)
        for known, job in settled:
            self._link_waiting(known, job)

    def _link_waiting(self, known: Known, job: Job) -> None:
        """Link the names that came while the file of `job` was being written."""
        while True:
            with self._lock:
                names, known.waiting = known.waiting, []
                if not names:
                    known.name, known.batch = known.name or job.name, None
                    return
            links = [Linking(name, job.name) for name in names]
            problems = self._carry_out(job.directory, links)
            with self._lock:
                self.files += problems.count(None)
            for link, problem in zip(links, problems, strict=True):
                if problem is not None:
                    self._not_linked(job, link, problem)

    def _not_linked(self, job: Job, link: Writing | Linking, problem: OSError) -> None:
        """A file system without hard links, or a file that has as many as it may. `job`: any of that content."""
        directory, known = job.directory, job.known
        path = os.path.join(directory.path, link.name)
        if known is None or job.key is None or directory.contents.get(job.key) is not known or not isinstance(link, Linking):
            self._failed.add(path, same_content_failed())
        elif problem.errno not in _NO_MORE_LINKS:
            self._failed.add(path, problem)
        elif known.name not in (None, link.original) and self._carry_out(directory, [Linking(link.name, known.name)]) == [None]:
            with self._lock:  # there has been a new file meanwhile
                self.files += 1
        else:
            try:
                self._copy(os.path.join(directory.path, link.original), path)
                known.name = link.name
            except Exception as failure:
                with self._lock:  # the next of this content brings its data along
                    directory.submitted.discard(job.key)
                    directory.contents.pop(job.key, None)
                self._failed.add(path, failure)

    def _lost(self, job: Job, problem: OSError) -> None:
        """The file of a content could not be written: nor are its other names, and the next of this content brings its data along."""
        assert job.key is not None and job.known is not None
        with self._lock:
            job.directory.contents.pop(job.key, None)
            job.directory.submitted.discard(job.key)
            names, job.known.waiting = job.known.waiting, []
        self._failed.add(job.path, problem)
        for name in names:
            self._failed.add(os.path.join(job.directory.path, name), same_content_failed())

    def _carry_out(self, directory: Directory, operations: Sequence[Writing | Linking]) -> list[OSError | None]:
        try:
            try:
                return tensor_files.carry_out(directory.path, operations)
            except FileNotFoundError:  # the flush thread has not come to it yet
                os.makedirs(directory.path, exist_ok=True)
                return tensor_files.carry_out(directory.path, operations)
        except OSError as problem:
            return [problem] * len(operations)

    def _copy(self, original: str, path: str) -> None:
        hidden = tensor_file.unfinished(path)
        try:
            shutil.copyfile(original, hidden)
            os.replace(hidden, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(hidden)
            raise
        with self._lock:
            self.files += 1
            self.bytes_written += os.stat(path).st_size


def _unlink_if_there(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
