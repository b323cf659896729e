"""Units of work over several processes of this machine.

Each worker is a fresh interpreter that takes pickled units on its standard input. Nothing is forked, and the caller's script is not
imported again, as multiprocessing would do; so `compare(..., jobs=4)` needs no `if __name__ == "__main__"`.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msprobe.comparison import temporary
from msprobe.comparison.outcome import Failure, PairReport
from msprobe.comparison.work import Unit, attempt
from msprobe.format import layout

Progress = Callable[[int, int, str], None]
"""Called with how many of how many units are done, and the title of the last one."""

_WORTH = 16 << 20
"""Bytes of dump.json from which several processes are faster than one: each takes a quarter of a second to start."""

_GRACE = 2.0
"""Seconds that a worker has to end by itself."""

_TENSORS_WEIGH = 8
"""A dump.json whose tensors lie beside it is as much work as one so many times its size."""


def number_of_jobs(units: Sequence[Unit], asked: int | None) -> int:
    """As many as asked for, never more than units; by default one per core where the work is large enough, else 1."""
    if asked is not None:
        return max(1, min(asked, len(units)))
    if len(units) < 2:
        return 1
    size = 0
    for unit in units:
        try:
            for path in (unit.pair.target, unit.pair.golden):
                size += path.stat().st_size * (_TENSORS_WEIGH if (path.parent / layout.TENSORS).is_dir() else 1)
        except (OSError, AttributeError):  # the unit will tell
            continue
        if size >= _WORTH:
            return min(_cores(), len(units))
    return 1


def run(units: Sequence[Unit], jobs: int, progress: Progress | None = None) -> Iterator[PairReport | Failure]:
    """The results in the order of the units.

    A worker that dies costs its own unit only. Raises what `attempt` raises. When the caller stops asking (Ctrl-C), the workers end.
    """
    if jobs <= 1:
        for number, unit in enumerate(units):
            result = attempt(unit)
            if progress is not None:
                progress(number + 1, len(units), unit.pair.title)
            yield result
        return
    pool = _Pool(units, jobs)
    try:
        waiting: dict[int, Any] = {}
        done = given = 0
        while given < len(units):
            number, result = pool.next()
            done += 1
            waiting[number] = result
            if progress is not None:
                progress(done, len(units), units[number].pair.title)
            if isinstance(result, BaseException):
                raise result
            while given in waiting:
                yield waiting.pop(given)
                given += 1
    finally:
        pool.close()


class _Pool:
    """One thread per worker process; each takes the next unit when it is done with one."""

    def __init__(self, units: Sequence[Unit], jobs: int) -> None:
        self._units = units
        self._todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()
        self._workers: set[subprocess.Popen[bytes]] = set()
        self._threads = max(1, _cores() // jobs)
        # Where the workers put what is temporary: one that is killed cannot remove it.
        self._temporary = temporary.make_directory()
        for number in range(len(units)):
            self._todo.put(number)
        for _ in range(jobs):
            threading.Thread(target=self._serve, name="msprobe-compare", daemon=True).start()

    def next(self) -> tuple[int, Any]:
        """The number of a unit and its result, or the exception it raised."""
        while True:
            try:
                return self._results.get(timeout=0.5)  # with a timeout Ctrl-C is noticed on every system
            except queue.Empty:
                continue

    def close(self) -> None:
        """Ends the workers, whatever they do. They get a moment to take half a file away."""
        with self._lock:
            self._closed = True
            workers = list(self._workers)
        for worker in workers:
            worker.terminate()
        end = time.monotonic() + _GRACE
        try:
            for worker in workers:
                worker.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:  # a second Ctrl-C comes here as well
            for worker in workers:
                worker.kill()
                worker.wait()
            temporary.remove_directory(self._temporary)

    def _serve(self) -> None:
        worker: subprocess.Popen[bytes] | None = None
        while True:
            try:
                number = self._todo.get_nowait()
            except queue.Empty:
                break
            try:
                worker = worker or self._start()
                if worker is None:
                    return
                result = _ask(worker, self._units[number])
            except (OSError, EOFError, pickle.UnpicklingError):
                code = self._end(worker)
                worker = None
                result = Failure(self._units[number].pair, f"the process that compared it ended early ({_why(code)}); the others went on")
            except BaseException as error:
                result = error
            self._results.put((number, result))
        self._end(worker)

    def _start(self) -> subprocess.Popen[bytes] | None:
        code = f"import sys; sys.path[:] = {sys.path!r}; from msprobe.comparison import jobs; jobs.work({self._threads})"
        with self._lock:
            if self._closed:
                return None
            # A session of its own: Ctrl-C in the terminal reaches the parent alone, which ends the workers.
            worker = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, "TMPDIR": self._temporary},
            )
            self._workers.add(worker)
            return worker

    def _end(self, worker: subprocess.Popen[bytes] | None) -> int:
        if worker is None:
            return 1
        for stream in (worker.stdin, worker.stdout):
            try:
                if stream is not None:
                    stream.close()
            except OSError:
                pass
        code = worker.wait()
        with self._lock:
            self._workers.discard(worker)
        return code


def _ask(worker: subprocess.Popen[bytes], unit: Unit) -> Any:
    assert worker.stdin is not None and worker.stdout is not None
    pickle.dump(unit, worker.stdin, pickle.HIGHEST_PROTOCOL)
    worker.stdin.flush()
    return pickle.load(worker.stdout)


def _why(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"signal {name}: out of memory?" if name == "SIGKILL" else f"signal {name}"


def work(threads: int) -> None:
    """A worker: units from standard input until it ends, results to standard output."""
    from msprobe import numerics

    at_work, leave = True, os._exit  # local names: the interpreter clears those of the module while it ends

    def end(*_: object) -> None:
        if not at_work:
            leave(1)  # an exception would be shown: there is nobody to catch it while the interpreter ends
        sys.exit(1)  # on the way out what is half written is removed

    signal.signal(signal.SIGTERM, end)
    numerics.set_threads(threads)
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not end up among the results
    while True:
        try:
            unit = pickle.load(sys.stdin.buffer)
        except EOFError:
            at_work = False
            return
        result: Any
        try:
            result = attempt(unit)
        except Exception as error:
            result = error
        pickle.dump(result, results, pickle.HIGHEST_PROTOCOL)
        results.flush()


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1
