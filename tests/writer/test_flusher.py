"""The thread, the end of a process, forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from msprobe.writer import StepWriter, TensorPool, flusher, growing_file
from msprobe.writer.flusher import Flusher

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(growing_file.__file__).parents[2])}


def run(code: str, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=check, timeout=60)


class Fake:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def flush_if_dirty(self, wait: bool = True) -> None:
        self.calls.append(threading.current_thread().name)

    def settle(self) -> None:
        self.calls.append("settle")

    def become_inert(self) -> None:
        self.calls.append("inert")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Flusher:
    monkeypatch.setattr(flusher, "INTERVAL", 0.002)
    return Flusher()


def until(condition: Any) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_the_thread_flushes_live_writers_ends_when_idle_and_starts_again(quick: Flusher) -> None:
    for _ in range(2):
        writer = Fake()
        quick.register(writer)
        until(lambda: len(writer.calls) > 2)  # noqa: B023
        assert set(writer.calls) == {"msprobe-flush"}
        quick.unregister(writer)
        until(lambda: quick._thread is None)
    quick.end()


def test_end_settles_and_no_thread_starts_afterwards(quick: Flusher) -> None:
    writer = Fake()
    quick.register(writer)
    thread = quick._thread
    quick.end()
    assert thread is not None
    assert not thread.is_alive()
    assert writer.calls[-1] == "settle"
    late = Fake()
    quick.register(late)
    quick.flush_all()
    assert late.calls == ["MainThread"]
    assert quick._thread is thread


def test_no_thread_to_be_had(quick: Flusher, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    writer = Fake()
    quick.register(writer)
    quick.flush_all()
    assert writer.calls == ["MainThread"]


def test_signals_stay_with_the_users_threads(quick: Flusher) -> None:
    masks: list[set[int]] = []

    class Looking(Fake):
        def flush_if_dirty(self, wait: bool = True) -> None:
            masks.append(set(signal.pthread_sigmask(signal.SIG_BLOCK, [])))

    writer = Looking()
    quick.register(writer)
    until(lambda: masks)
    quick.end()
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD} <= masks[0]
    assert signal.SIGSEGV not in masks[0]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_importing_starts_nothing() -> None:
    code = "import threading, msprobe.writer; print(threading.active_count())"
    assert run(code).stdout == "1\n"


OPEN = "import sys, os; from msprobe.writer import StepWriter; w = StepWriter(sys.argv[1], task='statistics', level='L1');"


@pytest.mark.parametrize(
    "ending",
    ["pass", "sys.exit(3)", "1 / 0", "raise KeyboardInterrupt", "import atexit; atexit.register(lambda: w.add('last', {}, True))"],
)
def test_a_process_that_ends_without_close(ending: str, tmp_path: Path, strict: Any) -> None:
    run(OPEN + f"w.add('a', {{}}, True); w.flush(); w.add('b', {{}}); w.add('c', {{}}, True)\n{ending}", tmp_path, check=False)
    assert {"a", "b", "c"} <= set(strict(tmp_path / "dump.json")["data"])
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_an_exit_function_that_was_there_before_may_still_close(tmp_path: Path, strict: Any) -> None:
    """It runs after ours."""
    code = (
        "import atexit; atexit.register(lambda: (w.add('last', {}, True), print(w.close().lost)));"
        + OPEN
        + "w.add('a', {}, True); w.flush()"
    )
    assert run(code, tmp_path).stdout == "0\n"
    assert list(strict(tmp_path / "dump.json")["data"]) == ["a", "last"]
    assert sorted(os.listdir(tmp_path)) == ["construct.json", "dump.json", "meta.json", "stack.json"]


FORK = (
    OPEN
    + """
import time, threading
w.add('parent', {}, True)
w.flush()
before = {n: os.stat(os.path.join(sys.argv[1], n)).st_mtime_ns for n in os.listdir(sys.argv[1])}
pid = os.fork()
if pid == 0:
    w.add('child', {}, True)
    w.add_call('child', None)
    w.error('child')
    w.flush()
    from msprobe.writer import flush_all
    flush_all()
    time.sleep(0.6)
    assert threading.active_count() == 1
    report = w.close()
    assert (report.bytes_written, report.lost, len(w._entries)) == (0, 0, 0), report
    after = {n: os.stat(os.path.join(sys.argv[1], n)).st_mtime_ns for n in os.listdir(sys.argv[1])}
    assert before == after
    own = StepWriter(os.path.join(sys.argv[1], 'own'), task='statistics', level='L1')
    own.add('own', {}, True)
    sys.exit(0)  # through atexit, where the parent's functions are registered too
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 0
w.add('after', {}, True)
w.close()
"""
)


def test_a_forked_child_touches_nothing_of_the_parent(tmp_path: Path, strict: Any) -> None:
    run(FORK, tmp_path)
    assert list(strict(tmp_path / "dump.json")["data"]) == ["parent", "after"]
    assert list(strict(tmp_path / "own" / "dump.json")["data"]) == ["own"]
    assert not (tmp_path / "dump_error_info.log").exists()


def test_forks_in_the_middle_of_flushes(tmp_path: Path, strict: Any) -> None:
    """A lock that another thread held at the fork must not stop the child."""
    code = (
        OPEN
        + """
import threading, time
stop = False
def flushing():
    number = 0
    while not stop:
        w.add(f'n{number}', {'x': 'y' * 1000}, True)
        w.flush()
        number += 1
thread = threading.Thread(target=flushing)
thread.start()
for _ in range(30):
    pid = os.fork()
    if pid == 0:
        w.add('child', {}, True)
        w.flush()
        w.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
stop = True
thread.join()
w.close()
"""
    )
    run(code, tmp_path)
    assert "child" not in strict(tmp_path / "dump.json")["data"]


def test_a_pool_in_a_forked_child_does_nothing(tmp_path: Path) -> None:
    pool = TensorPool()
    pool.submit(str(tmp_path / "a.pt"), "int8", (1,), b"a")
    pid = os.fork()
    if pid == 0:
        try:
            pool.submit(str(tmp_path / "child.pt"), "int8", (1,), b"c")
            pool.submit_saver(str(tmp_path / "child2.pt"), lambda path: Path(path).touch(), 1)
            pool.drain()
            pool.close()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    pool.drain()
    assert os.listdir(tmp_path) == ["a.pt"]


def test_tensor_files_are_finished_before_the_process_ends(tmp_path: Path) -> None:
    code = (
        "import sys; from msprobe.writer import TensorPool; pool = TensorPool()\n"
        "for number in range(300): pool.submit(f'{sys.argv[1]}/{number}.pt', 'int32', (1,), number.to_bytes(4, 'little'))"
    )
    run(code, tmp_path)
    assert len(os.listdir(tmp_path)) == 300


def test_flush_all(tmp_path: Path, strict: Any) -> None:
    writers = [StepWriter(tmp_path / name, task="statistics", level="L1") for name in "ab"]
    for writer in writers:
        writer.add("x", {}, True)
    flusher.flush_all()
    for writer in writers:
        assert strict(Path(writer.directory) / "dump.json")["data"] == {"x": {}}
        writer.close()
