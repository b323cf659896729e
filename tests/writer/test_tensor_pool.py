"""Threads that write tensor files."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msprobe.format import tensor_file
from msprobe.log import logger
from msprobe.writer import TensorPool, tensor_pool


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []

    class Keep(logging.Handler):
        def emit(self, line: logging.LogRecord) -> None:
            seen.append(line.getMessage())

    monkeypatch.setattr(logger, "handlers", [Keep()])
    return seen


def submit(pool: TensorPool, path: Path, data: bytes) -> None:
    pool.submit(str(path), "uint8", (len(data),), data)


def content(path: Path) -> bytes:
    return bytes(tensor_file.read(path).data)


def inodes(directory: Path) -> set[int]:
    return {item.stat().st_ino for item in directory.iterdir()}


def test_each_content_once_per_directory(tmp_path: Path) -> None:
    pool = TensorPool()
    for step in ("step0", "step1"):
        (tmp_path / step).mkdir()
        for number in range(60):
            submit(pool, tmp_path / step / f"{number}.pt", b"%d" % (number % 7))
    pool.drain()
    for step in ("step0", "step1"):
        assert len(os.listdir(tmp_path / step)) == 60
        assert len(inodes(tmp_path / step)) == 7
        for number in range(60):
            assert content(tmp_path / step / f"{number}.pt") == b"%d" % (number % 7)
    assert not inodes(tmp_path / "step0") & inodes(tmp_path / "step1")
    assert pool.files == 120
    assert pool.bytes_written == sum((tmp_path / step / f"{n}.pt").stat().st_size for step in ("step0", "step1") for n in range(7))
    assert not pool.problems


def test_equal_bytes_of_another_dtype_or_shape_are_another_content(tmp_path: Path) -> None:
    pool = TensorPool()
    kinds = [("int32", (2,)), ("float32", (2,)), ("float32", (1, 2)), ("uint8", (8,)), ("int64", ())]
    for number, (dtype, shape) in enumerate(kinds):
        pool.submit(str(tmp_path / f"{number}.pt"), dtype, shape, bytes(8))
    pool.drain()
    for number, (dtype, shape) in enumerate(kinds):
        data = tensor_file.read(tmp_path / f"{number}.pt")
        assert (data.dtype, data.shape) == (dtype, shape)
    assert len(inodes(tmp_path)) == 5


def test_buffers_that_are_no_bytes(tmp_path: Path) -> None:
    pool = TensorPool()
    values = torch.arange(6, dtype=torch.float32)
    pool.submit(str(tmp_path / "a.pt"), "float32", (2, 3), values.numpy())  # type: ignore[arg-type]
    pool.submit(str(tmp_path / "b.pt"), "float32", (2, 3), memoryview(values.numpy().reshape(2, 3)))
    pool.submit(str(tmp_path / "c.pt"), "float32", (2, 3), bytearray(values.numpy().tobytes()))
    pool.submit(str(tmp_path / "d.pt"), "float32", (0,), b"")
    pool.drain()
    assert not pool.problems
    for name in "abc":
        assert torch.equal(torch.load(tmp_path / f"{name}.pt"), values.reshape(2, 3))
    assert torch.load(tmp_path / "d.pt").shape == (0,)
    assert len(inodes(tmp_path)) == 2


@pytest.mark.parametrize("threads", [1, 4])
def test_the_same_name_again_holds_the_later_content(threads: int, tmp_path: Path) -> None:
    pool = TensorPool(threads=threads)
    for name, data in (("a", b"1"), ("b", b"1"), ("a", b"2"), ("c", b"1"), ("a", b"2"), ("b", b"2")):
        submit(pool, tmp_path / f"{name}.pt", data)
    pool.drain()
    assert {name: content(tmp_path / f"{name}.pt") for name in "abc"} == {"a": b"2", "b": b"2", "c": b"1"}
    assert not pool.problems


def test_files_of_an_earlier_run_are_replaced_one_by_one(tmp_path: Path) -> None:
    old = TensorPool()
    for name in "abc":
        submit(old, tmp_path / f"{name}.pt", b"old")
    old.drain()
    new = TensorPool()
    submit(new, tmp_path / "a.pt", b"new")
    submit(new, tmp_path / "b.pt", b"new")
    new.submit_saver(str(tmp_path / "c.pt"), lambda path: torch.save(torch.ones(2), path), 8)
    new.drain()
    assert content(tmp_path / "a.pt") == content(tmp_path / "b.pt") == b"new"
    submit(new, tmp_path / "a.pt", b"newer")
    new.drain()
    assert content(tmp_path / "b.pt") == b"new"


@pytest.mark.parametrize("number", [errno.EPERM, errno.EMLINK, errno.EXDEV, errno.EOPNOTSUPP])
def test_where_links_are_refused_the_content_is_written_again(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    pool = TensorPool()
    for index in range(20):
        submit(pool, tmp_path / f"{index}.pt", b"same")
    pool.drain()
    assert len(inodes(tmp_path)) == len(os.listdir(tmp_path)) == 20
    assert not pool.problems


def test_a_full_inode_starts_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ext4 takes 65,000 names for one file; here five."""
    real = os.link

    def limited(source: str, target: str) -> None:
        if os.stat(source).st_nlink >= 5:
            raise OSError(errno.EMLINK, "Too many links")
        real(source, target)

    monkeypatch.setattr(os, "link", limited)
    pool = TensorPool(threads=1)
    for index in range(40):
        submit(pool, tmp_path / f"{index}.pt", b"same")
        if index % 10 == 0:
            pool.drain()
    pool.drain()
    assert all(content(tmp_path / f"{index}.pt") == b"same" for index in range(40))
    assert len(inodes(tmp_path)) < 20
    assert not pool.problems


def test_a_missing_directory_is_made(tmp_path: Path) -> None:
    pool = TensorPool()
    submit(pool, tmp_path / "x" / "y" / "a.pt", b"1")
    pool.drain()
    assert content(tmp_path / "x" / "y" / "a.pt") == b"1"


def test_failures_are_counted_and_logged_once(tmp_path: Path, warnings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, *rest: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    pool = TensorPool()
    pool.submit(str(tmp_path / "bad.pt"), "quint8", (1,), b"1")
    pool.submit(str(tmp_path / "short.pt"), "int64", (3,), b"1")
    pool.drain()
    assert sum(pool.problems.values()) == 2
    monkeypatch.setattr(tensor_file, "write", full)
    for index in range(30):
        submit(pool, tmp_path / f"{index}.pt", b"same")
    pool.drain()
    assert sum(pool.problems.values()) == 32
    assert pool.problems["No space left on device"] >= 1
    assert len(warnings) == 1
    monkeypatch.undo()
    submit(pool, tmp_path / "later.pt", b"same")
    pool.drain()
    assert os.listdir(tmp_path) == ["later.pt"]
    assert sum(pool.problems.values()) == 32


@pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")  # torch's quantized tensors and typed storages
def test_savers(tmp_path: Path, warnings: list[str]) -> None:
    pool = TensorPool()
    value = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
    pool.submit_saver(str(tmp_path / "good.pt"), lambda path: torch.save(value, path), 3)

    def half(path: str) -> None:
        Path(path).write_bytes(b"half a file")
        raise RuntimeError("saver failed")

    pool.submit_saver(str(tmp_path / "bad.pt"), half, 3)
    pool.submit_saver(str(tmp_path / "lazy.pt"), lambda path: None, 3)
    pool.drain()
    assert os.listdir(tmp_path) == ["good.pt"]
    assert torch.equal(torch.load(tmp_path / "good.pt", weights_only=True).dequantize(), value.dequantize())
    assert pool.problems["RuntimeError: saver failed"] == 1
    assert sum(pool.problems.values()) == 2
    assert (pool.files, pool.bytes_written) == (1, (tmp_path / "good.pt").stat().st_size)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_memory_is_bounded(tmp_path: Path) -> None:
    """submit() blocks while max_bytes wait."""
    pool = TensorPool(max_bytes=1000, threads=1)
    gate = threading.Event()
    pool.submit_saver(str(tmp_path / "gate"), lambda path: (gate.wait(20), Path(path).touch())[1], 600)
    submit(pool, tmp_path / "0.pt", bytes(600))
    sent = []

    def more() -> None:
        submit(pool, tmp_path / "1.pt", bytes(600))
        sent.append(1)

    thread = threading.Thread(target=more)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert not sent
    gate.set()
    thread.join(20)
    pool.drain()
    assert sorted(os.listdir(tmp_path)) == ["0.pt", "1.pt", "gate"]


def test_one_tensor_larger_than_the_bound_passes(tmp_path: Path) -> None:
    pool = TensorPool(max_bytes=10)
    for index in range(3):
        submit(pool, tmp_path / f"{index}.pt", bytes(100))
    pool.drain()
    assert len(os.listdir(tmp_path)) == 3


def test_threads_end_when_idle_and_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_pool, "_IDLE_SECONDS", 0.01)
    pool = TensorPool(threads=2)
    assert pool._threads == 0
    for index in range(3):
        submit(pool, tmp_path / f"{index}.pt", b"%d" % index)
        pool.drain()
        assert content(tmp_path / f"{index}.pt") == b"%d" % index
        until(lambda: pool._threads == 0)


def test_close_ends_the_threads_and_a_late_tensor_is_still_written(tmp_path: Path) -> None:
    pool = TensorPool()
    submit(pool, tmp_path / "a.pt", b"1")
    pool.close()
    until(lambda: pool._threads == 0)
    submit(pool, tmp_path / "late.pt", b"1")
    pool.drain()
    assert content(tmp_path / "late.pt") == b"1"


def test_without_threads_the_caller_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    pool = TensorPool(max_bytes=100)
    for index in range(10):
        submit(pool, tmp_path / f"{index}.pt", bytes(60))
    pool.drain()
    assert len(os.listdir(tmp_path)) == 10
    assert len(inodes(tmp_path)) == 1


def test_memory_of_earlier_directories_is_let_go(tmp_path: Path) -> None:
    pool = TensorPool()
    for step in range(10):
        (tmp_path / str(step)).mkdir()
        submit(pool, tmp_path / str(step) / "a.pt", b"1")
        pool.drain()
    assert len(pool._directories) <= 2


def test_a_dropped_pool_is_collected() -> None:
    import gc
    import weakref

    pool = weakref.ref(TensorPool())
    gc.collect()
    assert pool() is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4)), max_size=60), st.integers(1, 4))
def test_any_load(tmp_path: Path, files: list[tuple[int, int]], threads: int) -> None:
    """Names in any order, some again, on any number of threads: each name has its last content, each content one file at most."""
    for name in os.listdir(tmp_path):
        os.unlink(tmp_path / name)
    pool = TensorPool(max_bytes=5000, threads=threads)
    expected = {}
    for name, value in files:
        expected[name] = b"%d" % value * 700
        submit(pool, tmp_path / f"{name}.pt", expected[name])
    pool.close()
    assert {name: content(tmp_path / f"{name}.pt") for name in expected} == expected
    if len(expected) == len(files):
        assert len(inodes(tmp_path)) == len(set(expected.values()))
    assert not pool.problems
