"""The pool whose threads are in C: what test_tensor_pool.py cannot see from outside of both kinds."""

from __future__ import annotations

import errno
import logging
import os
import resource
import shutil
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msprobe.format import tensor_file
from msprobe.log import logger
from msprobe.writer import native_pool
from msprobe.writer.native_pool import NativePool

pytestmark = pytest.mark.skipif(native_pool._queue_type is None, reason="there was no compiler when msprobe was installed")


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []

    class Keep(logging.Handler):
        def emit(self, line: logging.LogRecord) -> None:
            seen.append(line.getMessage())

    monkeypatch.setattr(logger, "handlers", [Keep()])
    return seen


def submit(pool: NativePool, path: Path, data: bytes | bytearray | memoryview) -> None:
    pool.submit(str(path), "uint8", (len(data),), data)


def content(path: Path) -> bytes:
    return bytes(tensor_file.read(path).data)


def inodes(directory: Path) -> set[int]:
    return {item.stat().st_ino for item in directory.iterdir()}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def idle(pool: NativePool) -> None:
    """No thread of the pool's takes anything up from now on."""
    until(lambda: pool.queue.counts()[3] == 0)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EMLINK, errno.EXDEV, errno.EOPNOTSUPP])
def test_where_links_are_refused_the_content_is_written_again(number: int, tmp_path: Path) -> None:
    pool = NativePool()
    pool.queue.refuse_links(number)
    for index in range(20):
        submit(pool, tmp_path / f"{index}.pt", b"same" * 5000)
    pool.drain()
    assert len(inodes(tmp_path)) == len(os.listdir(tmp_path)) == 20
    assert all(content(tmp_path / f"{index}.pt") == b"same" * 5000 for index in range(20))
    size = (tmp_path / "0.pt").stat().st_size
    assert (pool.files, pool.bytes_written) == (20, 20 * size)
    assert not pool.problems


def test_a_file_that_takes_no_more_names_is_followed_by_another(tmp_path: Path) -> None:
    pool = NativePool()
    for index in range(30):
        if index in (10, 20):
            pool.drain()
            pool.queue.refuse_links(errno.EMLINK)
        submit(pool, tmp_path / f"{index:02}.pt", b"same")
        pool.drain()
        pool.queue.refuse_links(0)
    groups = [(tmp_path / f"{index:02}.pt").stat().st_ino for index in range(30)]
    assert [len(set(groups[k : k + 10])) for k in (0, 10, 20)] == [1, 1, 1]
    assert len(set(groups)) == 3


def test_a_link_that_fails_otherwise_is_told(tmp_path: Path) -> None:
    pool = NativePool()
    submit(pool, tmp_path / "a.pt", b"same")
    pool.drain()
    pool.queue.refuse_links(errno.EIO)
    submit(pool, tmp_path / "b.pt", b"same")
    pool.drain()
    pool.queue.refuse_links(0)
    submit(pool, tmp_path / "c.pt", b"same")
    pool.drain()
    assert sorted(os.listdir(tmp_path)) == ["a.pt", "c.pt"]
    assert dict(pool.problems) == {os.strerror(errno.EIO): 1}


@pytest.fixture
def small_files() -> Iterator[Callable[[int], None]]:
    """Nothing this process writes may become larger; 0: it may again."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def limit(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]) if size else before)

    yield limit
    limit(0)
    signal.signal(signal.SIGXFSZ, handler)


def test_failures_are_counted_and_logged_once(tmp_path: Path, warnings: list[str], small_files: Callable[[int], None]) -> None:
    pool = NativePool()
    data = os.urandom(200_000)
    submit(pool, tmp_path / "good.pt", data)
    pool.drain()
    small_files(50_000)
    for index in range(10):
        submit(pool, tmp_path / f"{index}.pt", data[1:])
    submit(pool, tmp_path / "link.pt", data)
    pool.drain()
    small_files(0)
    assert sorted(os.listdir(tmp_path)) == ["good.pt", "link.pt"]
    assert sum(pool.problems.values()) == 10
    assert pool.problems[os.strerror(errno.EFBIG)] >= 1
    assert set(pool.problems) <= {os.strerror(errno.EFBIG), "the file with the same content could not be written"}
    assert len(warnings) == 1
    submit(pool, tmp_path / "later.pt", data[1:])
    pool.drain()
    assert content(tmp_path / "later.pt") == data[1:]
    assert sum(pool.problems.values()) == 10


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    pool = NativePool()
    submit(pool, tmp_path / ("x" * 300), b"1")
    pool.submit(f"{tmp_path}/a\0b", "uint8", (1,), b"1")
    submit(pool, tmp_path / "good.pt", b"2")
    pool.drain()
    assert os.listdir(tmp_path) == ["good.pt"]
    assert sum(pool.problems.values()) == 2


def test_names_that_are_no_text_of_the_file_system(tmp_path: Path) -> None:
    pool = NativePool()
    directory = tmp_path / os.fsdecode(b"d\xff") / "ü"
    for name in ("ä.pt", os.fsdecode(b"\xfe.pt")):
        submit(pool, directory / name, b"1")
    pool.drain()
    assert sorted(os.listdir(directory)) == sorted(["ä.pt", os.fsdecode(b"\xfe.pt")])


def test_a_directory_that_is_taken_away_is_made_anew(tmp_path: Path) -> None:
    pool = NativePool()
    submit(pool, tmp_path / "d" / "a.pt", b"1")
    pool.drain()
    shutil.rmtree(tmp_path / "d")
    submit(pool, tmp_path / "d" / "b.pt", b"2")
    submit(pool, tmp_path / "d" / "c.pt", b"1")  # what it would be a link to has gone
    pool.drain()
    submit(pool, tmp_path / "d" / "e.pt", b"1")
    pool.drain()
    assert {name: content(tmp_path / "d" / name) for name in os.listdir(tmp_path / "d")} == {"b.pt": b"2", "e.pt": b"1"}
    assert dict(pool.problems) == {os.strerror(errno.ENOENT): 1}


def test_a_directory_that_is_a_file(tmp_path: Path) -> None:
    pool = NativePool()
    (tmp_path / "d").touch()
    submit(pool, tmp_path / "d" / "a.pt", b"1")
    submit(pool, tmp_path / "d" / "e" / "a.pt", b"1")
    pool.drain()
    assert dict(pool.problems) == {os.strerror(errno.ENOTDIR): 2}


def test_memory_is_bounded(tmp_path: Path) -> None:
    """While max_bytes wait, more is written by who submits it: before submit() returns."""
    pool = NativePool(max_bytes=0, threads=1)
    for number in range(5):
        submit(pool, tmp_path / f"{number}.pt", bytes([number]) * 30_000)
        assert (tmp_path / f"{number}.pt").exists()
        submit(pool, tmp_path / f"view{number}.pt", memoryview(bytes([number, 255]) * 15_000))
        assert (tmp_path / f"view{number}.pt").exists()
        assert pool.queue.counts()[2] == 0


def test_values_are_those_of_the_call(tmp_path: Path) -> None:
    """Whatever becomes of the memory afterwards: small and large, with room and without."""
    for most in (0, 1 << 16, 1 << 20, 64 << 20):
        pool = NativePool(max_bytes=most, threads=1)
        directory = tmp_path / str(most)
        expected = {}
        for number, size in enumerate((1, 100, 4095, 4096, 5000, 70_000, 500_000, 400_000, 300_000, 2_000_000, 200)):
            values = bytearray(os.urandom(size))
            expected[number] = bytes(values)
            submit(pool, directory / f"{number}.pt", values)
            submit(pool, directory / f"again{number}.pt", values)
            values[:] = bytes(size)
        pool.drain()
        for number, data in expected.items():
            assert content(directory / f"{number}.pt") == content(directory / f"again{number}.pt") == data
        assert len(inodes(directory)) == len(expected)
        assert not pool.problems
        assert pool.queue.counts()[2] == 0


def test_what_has_an_owner_keeps_it_until_it_is_written(tmp_path: Path) -> None:
    class Owner:
        pass

    pool = NativePool()
    gone = []
    for number in range(300):
        owner, values = Owner(), bytearray(b"%d" % number * 3000)
        gone.append(weakref.ref(owner))
        pool.submit(str(tmp_path / f"{number}.pt"), "uint8", (len(values),), memoryview(values), (owner, values))
        del owner, values
    pool.drain()
    assert all(reference() is None for reference in gone)
    assert all(content(tmp_path / f"{number}.pt") == b"%d" % number * 3000 for number in range(300))


def test_an_owner_of_what_is_known_or_written_now_is_let_go_of(tmp_path: Path) -> None:
    class Owner:
        pass

    for most in (0, 1 << 20):
        pool = NativePool(max_bytes=most)
        values = bytearray(b"1" * 9000)
        for name in "ab":
            owner = Owner()
            gone = weakref.ref(owner)
            pool.submit(f"{tmp_path}/{most}/{name}.pt", "uint8", (9000,), memoryview(values), owner)
            del owner
            pool.drain()
            assert gone() is None
        assert len(inodes(tmp_path / str(most))) == 1


def test_threads_end_when_idle_and_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msprobe.writer.tensor_pool._IDLE_SECONDS", 0.01)
    pool = NativePool(threads=2)
    assert pool.queue.counts()[3] == 0
    for index in range(3):
        submit(pool, tmp_path / f"{index}.pt", b"%d" % index)
        pool.drain()
        assert content(tmp_path / f"{index}.pt") == b"%d" % index
        idle(pool)


def test_few_bytes_are_written_without_more_to_come(tmp_path: Path) -> None:
    pool = NativePool()
    submit(pool, tmp_path / "a.pt", b"1")
    until((tmp_path / "a.pt").exists)
    time.sleep(0.15)  # the thread has gone to sleep
    submit(pool, tmp_path / "b.pt", b"2")
    until((tmp_path / "b.pt").exists)


def test_close_ends_the_threads_and_a_late_tensor_is_still_written(tmp_path: Path) -> None:
    pool = NativePool()
    submit(pool, tmp_path / "a.pt", b"1")
    pool.close()
    idle(pool)
    submit(pool, tmp_path / "late.pt", b"1")
    submit(pool, tmp_path / "later.pt", bytearray(b"1" * 9000))
    pool.drain()
    assert content(tmp_path / "late.pt") == b"1"
    assert content(tmp_path / "later.pt") == b"1" * 9000
    assert pool.queue.counts()[3] == 0


def test_a_dropped_pool_writes_what_it_has(tmp_path: Path) -> None:
    for index in range(20):
        pool = NativePool()
        for number in range(30):
            submit(pool, tmp_path / f"{index}.{number}.pt", b"%d" % number * 5000)
        gone = weakref.ref(pool)
        del pool
        assert gone() is None
    assert len(os.listdir(tmp_path)) == 600


def test_a_forked_child_does_nothing(tmp_path: Path) -> None:
    pool = NativePool()
    submit(pool, tmp_path / "a.pt", b"1" * 100_000)
    child = os.fork()
    if child == 0:
        try:
            submit(pool, tmp_path / "b.pt", b"2")
            assert pool.queue.submit(str(tmp_path), "c.pt", "uint8", (1,), b"3", 1, None)  # as the recording in C does
            pool.drain()
            pool.close()
            assert pool.queue.settle(1.0)
            assert pool.files >= 0 and not pool.problems
            del pool
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    submit(pool, tmp_path / "d.pt", b"1" * 100_000)
    pool.drain()
    assert sorted(os.listdir(tmp_path)) == ["a.pt", "d.pt"]


def test_ctrl_c_ends_a_drain_and_nothing_is_lost(tmp_path: Path) -> None:
    pool = NativePool(threads=1)
    saver_runs, gate = threading.Event(), threading.Event()

    def saver(path: str) -> None:
        saver_runs.set()
        gate.wait(20)
        Path(path).touch()

    pool.submit_saver(str(tmp_path / "gate"), saver, 1)
    assert saver_runs.wait(20)
    for number in range(200):
        submit(pool, tmp_path / f"{number}.pt", b"%d" % number)
    timer = threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        pool.drain()
    gate.set()
    pool.drain()
    assert len(os.listdir(tmp_path)) == 201


def test_several_threads_submit_at_once(tmp_path: Path) -> None:
    pool = NativePool(max_bytes=1 << 18, threads=2)

    def submit_some(thread: int) -> None:
        for number in range(150):
            submit(pool, tmp_path / f"{thread}.{number}.pt", bytearray(b"%d" % (number % 40) * 3000))

    threads = [threading.Thread(target=submit_some, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool.drain()
    assert all(content(tmp_path / f"{t}.{n}.pt") == b"%d" % (n % 40) * 3000 for t in range(4) for n in range(150))
    assert pool.files == 600 and not pool.problems


def test_names_of_savers_and_of_tensors(tmp_path: Path) -> None:
    """Each name holds what came last under it, and a file that others are linked to stays theirs."""
    pool = NativePool()
    submit(pool, tmp_path / "a.pt", b"1")
    submit(pool, tmp_path / "b.pt", b"1")
    pool.submit_saver(str(tmp_path / "a.pt"), lambda path: tensor_file.write(path, "uint8", (1,), b"2"), 1)
    submit(pool, tmp_path / "c.pt", b"1")
    submit(pool, tmp_path / "a.pt", b"3")
    pool.drain()
    assert [content(tmp_path / f"{name}.pt") for name in "abc"] == [b"3", b"1", b"1"]


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (("d", "n", "uint8", (1,), b"1"), TypeError),
        (("d", "n", "uint8", (1,), b"1", 2, None), ValueError),
        (("d", "n", "uint8", (2,), b"1", 1, None), ValueError),
        (("d", "n", "nothing", (1,), b"1", 1, None), KeyError),
        (("d", "n", "uint8", (1,), 0, 1, None), ValueError),
        (("d", "n", "uint8", (1,), b"1", -1, None), ValueError),
        (("d", "n", "uint8", [1], b"1", 1, None), TypeError),
        ((b"d", "n", "uint8", (1,), b"1", 1, None), TypeError),
        (("d", "n\0", "uint8", (1,), b"1", 1, None), ValueError),
        (("d\0", "n", "uint8", (1,), b"1", 1, None), ValueError),
    ],
)
def test_wrong_arguments_of_the_queue(given: tuple[object, ...], wrong: type[Exception], tmp_path: Path) -> None:
    queue = NativePool().queue
    with pytest.raises(wrong):
        queue.submit(*given)
    assert queue.settle(1.0)
    assert queue.counts() == (0, 0, 0, 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6), st.sampled_from((10, 4095, 4096, 20_000)), st.booleans()), max_size=60),
    st.sampled_from((0, 10_000, 100_000, 1 << 22)),
    st.integers(1, 4),
    st.booleans(),
)
def test_any_load(tmp_path: Path, files: list[tuple[int, int, int, bool]], most: int, threads: int, refuse: bool) -> None:
    """Names in any order, some again, copied or not, linked or not: each name has its last content."""
    for name in os.listdir(tmp_path):
        os.unlink(tmp_path / name)
    pool = NativePool(max_bytes=most, threads=threads)
    pool.queue.refuse_links(errno.EMLINK if refuse else 0)
    expected = {}
    for name, value, size, as_bytes in files:
        expected[name] = bytes([value]) * size
        submit(pool, tmp_path / f"{name}.pt", expected[name] if as_bytes else bytearray(expected[name]))
    pool.close()
    assert {name: content(tmp_path / f"{name}.pt") for name in expected} == expected
    if len(expected) == len(files) and not refuse:
        assert len(inodes(tmp_path)) == len(set(expected.values()))
    assert not pool.problems
