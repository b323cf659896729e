"""Threads that write tensor files."""

from __future__ import annotations

import errno
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msprobe.format import tensor_file, tensor_files
from msprobe.format.tensor_files import Linking, Writing
from msprobe.log import logger
from msprobe.writer import TensorPool, native_pool, tensor_pool
from msprobe.writer.native_pool import NativePool
from msprobe.writer.staging_ring import StagingRing
from msprobe.writer.tensor_contents import TensorContents

_IN_C = tensor_files._in_c


@pytest.fixture(params=["threads in C", "files in C", "one by one"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How files are written and linked."""
    if request.param == "one by one":
        monkeypatch.setattr(tensor_files, "_in_c", None)
    elif _IN_C is None or native_pool._queue_type is None:
        pytest.skip("installed without a compiler")
    return str(request.param)


@pytest.fixture
def in_python(way: str) -> None:
    """For tests of what is inside of the pool whose threads are Python's."""
    if way == "threads in C":
        pytest.skip("see test_native_pool.py")


@pytest.fixture
def pool_of(way: str) -> Callable[..., TensorPool]:
    """Makes pools."""
    return NativePool if way == "threads in C" else TensorPool


def make_fail(monkeypatch: pytest.MonkeyPatch, why: Callable[[str, Writing | Linking], int]) -> None:
    """Operations fail with the number that `why(directory, operation)` gives, unless that is 0."""
    real = tensor_files.carry_out

    def some(directory: str, operations: list[Writing | Linking]) -> list[OSError | None]:
        problems: list[OSError | None] = []
        for operation in operations:
            number = why(directory, operation)
            problems += [OSError(number, os.strerror(number))] if number else real(directory, [operation])
        return problems

    monkeypatch.setattr(tensor_files, "carry_out", some)


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []

    class Keep(logging.Handler):
        def emit(self, line: logging.LogRecord) -> None:
            seen.append(line.getMessage())

    monkeypatch.setattr(logger, "handlers", [Keep()])
    return seen


def submit(pool: TensorPool, path: Path, data: bytes | bytearray | memoryview) -> None:
    pool.submit(str(path), "uint8", (len(data),), data)


def content(path: Path) -> bytes:
    return bytes(tensor_file.read(path).data)


def inodes(directory: Path) -> set[int]:
    return {item.stat().st_ino for item in directory.iterdir()}


def test_each_content_once_per_directory(tmp_path: Path, pool_of: Callable[..., TensorPool]) -> None:
    pool = pool_of()
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


def test_equal_bytes_of_another_dtype_or_shape_are_another_content(tmp_path: Path, pool_of: Callable[..., TensorPool]) -> None:
    pool = pool_of()
    kinds = [("int32", (2,)), ("float32", (2,)), ("float32", (1, 2)), ("uint8", (8,)), ("int64", ())]
    for number, (dtype, shape) in enumerate(kinds):
        pool.submit(str(tmp_path / f"{number}.pt"), dtype, shape, bytes(8))
    pool.drain()
    for number, (dtype, shape) in enumerate(kinds):
        data = tensor_file.read(tmp_path / f"{number}.pt")
        assert (data.dtype, data.shape) == (dtype, shape)
    assert len(inodes(tmp_path)) == 5


def test_buffers_that_are_no_bytes(tmp_path: Path, pool_of: Callable[..., TensorPool]) -> None:
    pool = pool_of()
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


@pytest.mark.parametrize("most", [0, 1 << 16, 64 << 20])
@pytest.mark.parametrize("size", [4, 300, 4096, 40_000, 100_000, 3_000_000])
def test_memory_that_changes_after_it_was_digested(
    most: int, size: int, tmp_path: Path, pool_of: Callable[..., TensorPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another thread changes it: what nobody changes has its own content all the same, and each file is whole."""
    before, after, digest = b"1" * size, b"2" * size, xxhash.xxh3_128_digest
    values = bytearray(before)

    def digest_and_change(data: Any) -> bytes:
        found = digest(data)
        values[:] = after
        return found

    with monkeypatch.context() as patch:
        patch.setattr(xxhash, "xxh3_128_digest", digest_and_change)
        pool = pool_of(max_bytes=most, threads=1)
        submit(pool, tmp_path / "changed.pt", values)
    for number in range(2):
        submit(pool, tmp_path / f"before{number}.pt", bytearray(before))
        submit(pool, tmp_path / f"after{number}.pt", bytearray(after))
    pool.drain()
    assert not pool.problems
    assert [content(tmp_path / f"before{number}.pt") == before for number in range(2)] == [True, True]
    assert [content(tmp_path / f"after{number}.pt") == after for number in range(2)] == [True, True]
    assert content(tmp_path / "changed.pt") in (before, after)
    assert zipfile.ZipFile(tmp_path / "changed.pt").testzip() is None
    assert len(inodes(tmp_path)) == 2


@pytest.mark.parametrize("most", [0, 1 << 20, 64 << 20])
def test_memory_that_another_thread_changes(most: int, tmp_path: Path, pool_of: Callable[..., TensorPool]) -> None:
    pool = pool_of(max_bytes=most)
    size, over = 400_000, threading.Event()
    before, after = b"1" * size, b"2" * size
    values = torch.full((size,), ord("1"), dtype=torch.uint8)

    def change() -> None:
        while not over.is_set():
            values.fill_(ord("2"))
            values.fill_(ord("1"))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for number in range(60):
            directory = tmp_path / str(number)
            for index in range(3):
                submit(pool, directory / f"changing{index}.pt", memoryview(values.numpy()))
            submit(pool, directory / "before.pt", bytearray(before))
            submit(pool, directory / "after.pt", bytearray(after))
    finally:
        over.set()
        thread.join()
    pool.drain()
    assert not pool.problems
    assert all(content(tmp_path / str(number) / "before.pt") == before for number in range(60))
    assert all(content(tmp_path / str(number) / "after.pt") == after for number in range(60))
    assert all(zipfile.ZipFile(path).testzip() is None for path in tmp_path.glob("*/changing*.pt"))


@pytest.mark.parametrize("most", [0, 64 << 20])
def test_memory_of_any_size_is_known_again(most: int, tmp_path: Path, pool_of: Callable[..., TensorPool]) -> None:
    """What is digested as it is copied, in pieces, has the digest that it had as a whole."""
    pool = pool_of(max_bytes=most)
    sizes = [where + more for where in (4096, 1 << 15, 1 << 19, 1 << 20) for more in (-1025, -64, -63, -1, 0, 1, 63, 64, 65, 1024, 1087)]
    for size in sizes:
        values = bytearray(os.urandom(size))
        submit(pool, tmp_path / f"{size}.pt", values)
        submit(pool, tmp_path / f"{size} again.pt", values)
    pool.drain()
    assert all((tmp_path / f"{size}.pt").samefile(tmp_path / f"{size} again.pt") for size in sizes)
    assert len(inodes(tmp_path)) == len(set(sizes))


@pytest.mark.parametrize("threads", [1, 4])
def test_the_same_name_again_holds_the_later_content(threads: int, tmp_path: Path, pool_of: Callable[..., TensorPool]) -> None:
    pool = pool_of(threads=threads)
    for name, data in (("a", b"1"), ("b", b"1"), ("a", b"2"), ("c", b"1"), ("a", b"2"), ("b", b"2")):
        submit(pool, tmp_path / f"{name}.pt", data)
    pool.drain()
    assert {name: content(tmp_path / f"{name}.pt") for name in "abc"} == {"a": b"2", "b": b"2", "c": b"1"}
    assert not pool.problems


def test_files_of_an_earlier_run_are_replaced_one_by_one(tmp_path: Path, pool_of: Callable[..., TensorPool]) -> None:
    old = pool_of()
    for name in "abc":
        submit(old, tmp_path / f"{name}.pt", b"old")
    old.drain()
    new = pool_of()
    submit(new, tmp_path / "a.pt", b"new")
    submit(new, tmp_path / "b.pt", b"new")
    new.submit_saver(str(tmp_path / "c.pt"), lambda path: torch.save(torch.ones(2), path), 8)
    new.drain()
    assert content(tmp_path / "a.pt") == content(tmp_path / "b.pt") == b"new"
    submit(new, tmp_path / "a.pt", b"newer")
    new.drain()
    assert content(tmp_path / "b.pt") == b"new"


@pytest.mark.parametrize("number", [errno.EPERM, errno.EMLINK, errno.EXDEV, errno.EOPNOTSUPP])
@pytest.mark.usefixtures("in_python")
def test_where_links_are_refused_the_content_is_written_again(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_fail(monkeypatch, lambda directory, operation: number if type(operation) is Linking else 0)
    pool = TensorPool()
    for index in range(20):
        submit(pool, tmp_path / f"{index}.pt", b"same")
    pool.drain()
    assert len(inodes(tmp_path)) == len(os.listdir(tmp_path)) == 20
    assert not pool.problems


@pytest.mark.usefixtures("in_python")
def test_a_copy_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_fail(monkeypatch, lambda directory, operation: errno.EPERM if type(operation) is Linking else 0)

    def full(original: str, copy: str) -> None:
        Path(copy).write_bytes(b"torn")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfile", full)
    pool = TensorPool(threads=1)
    for name in ("a.pt", "b.pt"):
        submit(pool, tmp_path / name, b"same")
    pool.drain()
    assert os.listdir(tmp_path) == ["a.pt"]
    assert pool.problems == {os.strerror(errno.ENOSPC): 1}


@pytest.mark.usefixtures("in_python")
def test_a_full_inode_starts_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ext4 takes 65,000 names for one file; here five."""

    def limited(directory: str, operation: Writing | Linking) -> int:
        full = type(operation) is Linking and os.stat(os.path.join(directory, operation.original)).st_nlink >= 5
        return errno.EMLINK if full else 0

    make_fail(monkeypatch, limited)
    pool = TensorPool(threads=1)
    for index in range(40):
        submit(pool, tmp_path / f"{index}.pt", b"same")
        if index % 10 == 0:
            pool.drain()
    pool.drain()
    assert all(content(tmp_path / f"{index}.pt") == b"same" for index in range(40))
    assert len(inodes(tmp_path)) < 20
    assert not pool.problems


def test_a_missing_directory_is_made(tmp_path: Path, pool_of: Callable[..., TensorPool]) -> None:
    pool = pool_of()
    submit(pool, tmp_path / "x" / "y" / "a.pt", b"1")
    pool.drain()
    assert content(tmp_path / "x" / "y" / "a.pt") == b"1"


@pytest.mark.usefixtures("in_python")
def test_failures_are_counted_and_logged_once(tmp_path: Path, warnings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pool = TensorPool()
    pool.submit(str(tmp_path / "bad.pt"), "quint8", (1,), b"1")
    pool.submit(str(tmp_path / "short.pt"), "int64", (3,), b"1")
    pool.drain()
    assert sum(pool.problems.values()) == 2
    with monkeypatch.context() as patch:
        make_fail(patch, lambda directory, operation: errno.ENOSPC if type(operation) is Writing else 0)
        for index in range(30):
            submit(pool, tmp_path / f"{index}.pt", b"same")
        pool.drain()
    assert sum(pool.problems.values()) == 32
    assert pool.problems["No space left on device"] >= 1
    assert len(warnings) == 1
    submit(pool, tmp_path / "later.pt", b"same")
    pool.drain()
    assert os.listdir(tmp_path) == ["later.pt"]
    assert sum(pool.problems.values()) == 32


@pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")  # torch's quantized tensors and typed storages
def test_savers(tmp_path: Path, warnings: list[str], pool_of: Callable[..., TensorPool]) -> None:
    pool = pool_of()
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


_READ_ONLY = """
import sys
from msprobe.format import tensor_files
from msprobe.writer.native_pool import NativePool
from msprobe.writer.tensor_pool import TensorPool
way, directory = sys.argv[1:]
if way == "one by one":
    tensor_files._in_c = None
pool = (NativePool if way == "threads in C" else TensorPool)()
pool.submit(directory + "/a/b/c/x.pt", "uint8", (1,), b"1")
pool.submit(directory + "/x.pt", "uint8", (1,), b"1")
pool.drain()
print(dict(pool.problems), end="")
"""


def test_a_read_only_file_system_is_told(tmp_path: Path, way: str) -> None:
    mounted = ["unshare", "--mount", "--map-root-user", "sh", "-c", 'mount -t tmpfs -o size=1m,ro tmpfs "$0" && exec "$@"', str(tmp_path)]
    try:
        subprocess.run([*mounted, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nothing can be mounted here")
    told = subprocess.run([*mounted, sys.executable, "-c", _READ_ONLY, way, str(tmp_path)], capture_output=True, text=True)
    assert told.stdout == str({os.strerror(errno.EROFS): 2})


_KILLED = """
import os, resource, signal, sys
from msprobe.format import tensor_files
from msprobe.writer.native_pool import NativePool
from msprobe.writer.tensor_pool import TensorPool
way, directory, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
if way == "one by one":
    tensor_files._in_c = None
os.mkdir(directory)
pool = (NativePool if way == "threads in C" else TensorPool)(max_bytes=0)
pool.submit(directory + "/whole.pt", "uint8", (1,), b"1")
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
data = os.urandom(size)
pool.submit(directory + "/torn.pt", "uint8", (size,), bytearray(data) if sys.argv[4] == "live" else data)
"""


@pytest.mark.parametrize("kind", ["live", "bytes"])
@pytest.mark.parametrize("size", [1600, 60_000, 2_000_000])
def test_a_kill_while_a_file_is_written_leaves_nothing_under_its_name(size: int, kind: str, tmp_path: Path, way: str) -> None:
    """The kernel ends the process in the middle of a write."""
    directory = tmp_path / "d"
    ended = subprocess.run([sys.executable, "-c", _KILLED, way, str(directory), str(size), kind])
    assert ended.returncode == -signal.SIGXFSZ
    visible = [name for name in os.listdir(directory) if not name.startswith(".")]
    assert visible == ["whole.pt"]
    left = [name for name in os.listdir(directory) if name.endswith(tensor_file.UNFINISHED)]
    assert len(left) == 1 and (directory / left[0]).stat().st_size <= 1500


def test_a_saver_writes_under_a_hidden_name(tmp_path: Path, pool_of: Callable[..., TensorPool]) -> None:
    pool, seen = pool_of(), []

    def saver(path: str) -> None:
        Path(path).write_bytes(b"half")
        seen.append((os.path.basename(path), sorted(os.listdir(tmp_path))))
        Path(path).write_bytes(b"whole")

    pool.submit_saver(str(tmp_path / "a.pt"), saver, 3)
    pool.drain()
    hidden, names = seen[0]
    assert hidden.startswith(".") and hidden.endswith(tensor_file.UNFINISHED) and names == [hidden]
    assert os.listdir(tmp_path) == ["a.pt"] and (tmp_path / "a.pt").read_bytes() == b"whole"


def test_an_earlier_content_does_not_stay_where_a_later_one_fails(tmp_path: Path, pool_of: Callable[..., TensorPool]) -> None:
    pool = pool_of(max_bytes=0)
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    submit(pool, tmp_path / "a.pt", b"1")
    submit(pool, tmp_path / "b.pt", b"1")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, before[1]))
    try:
        submit(pool, tmp_path / "a.pt", bytearray(9000))
        submit(pool, tmp_path / "b.pt", bytes(9001))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert dict(pool.problems) == {os.strerror(errno.EFBIG): 2}
    assert os.listdir(tmp_path) == []


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Callable[[TensorPool, int], None]]:
    """Keeps the only thread of a pool busy, with so many bytes, until the test ends."""
    gate, begun = threading.Event(), threading.Event()
    pools = []

    def saver(path: str) -> None:
        begun.set()
        gate.wait(20)
        Path(path).touch()

    def block(pool: TensorPool, nbytes: int) -> None:
        pools.append(pool)
        pool.submit_saver(str(tmp_path / "gate"), saver, nbytes)
        assert begun.wait(20)

    yield block
    gate.set()
    for pool in pools:
        pool.drain()


@pytest.mark.usefixtures("in_python")
def test_memory_is_bounded(tmp_path: Path, stuck: Callable[[TensorPool, int], None]) -> None:
    """While max_bytes wait, more is written by who submits it: before submit() returns."""
    pool = TensorPool(max_bytes=100_000, threads=1)
    stuck(pool, 0)
    for number in range(20):
        submit(pool, tmp_path / f"{number}.pt", bytes([number]) * 30_000)
        submit(pool, tmp_path / f"view{number}.pt", memoryview(bytes([number, 255]) * 15_000))
    held = pool._submitted - pool._finished
    assert held <= 100_000 + 30_000
    written = [name for name in os.listdir(tmp_path) if name != "gate"]
    assert len(written) == 40 - held // 30_000
    assert all(len(content(tmp_path / name)) == 30_000 for name in written)


def test_a_saver_waits_for_room(tmp_path: Path, stuck: Callable[[TensorPool, int], None], pool_of: Callable[..., TensorPool]) -> None:
    """It may run the framework's code, which is no business of the thread that records."""
    pool = pool_of(max_bytes=1000, threads=1)
    stuck(pool, 1000)
    thread = threading.Thread(target=pool.submit_saver, args=(str(tmp_path / "b"), lambda path: Path(path).touch(), 10))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    assert not (tmp_path / "b").exists()


@pytest.mark.usefixtures("in_python")
def test_values_are_those_of_the_call(tmp_path: Path, stuck: Callable[[TensorPool, int], None]) -> None:
    """Whatever becomes of the memory afterwards: small and large, with room and without."""
    pool = TensorPool(max_bytes=1 << 20, threads=1)
    stuck(pool, 0)
    expected = {}
    for number, size in enumerate((1, 100, 4095, 4096, 5000, 70_000, 500_000, 400_000, 300_000, 2_000_000, 200)):
        values = bytearray(os.urandom(size))
        expected[number] = bytes(values)
        submit(pool, tmp_path / f"{number}.pt", values)
        submit(pool, tmp_path / f"again{number}.pt", values)
        values[:] = bytes(size)
    with pool._lock:
        while pool._jobs:
            pool._help()
    for number, data in expected.items():
        assert content(tmp_path / f"{number}.pt") == content(tmp_path / f"again{number}.pt") == data
    assert not pool.problems


@pytest.mark.usefixtures("in_python")
def test_what_has_an_owner_is_not_copied(tmp_path: Path, stuck: Callable[[TensorPool, int], None]) -> None:
    class Owner:
        pass

    pool = TensorPool(threads=1)
    stuck(pool, 0)
    owner, values = Owner(), bytearray(b"1" * 9000)
    gone = weakref.ref(owner)
    pool.submit(str(tmp_path / "a.pt"), "uint8", (9000,), memoryview(values), owner)
    del owner
    assert gone() is not None
    with pool._lock:
        assert pool._jobs[0].writing is not None
        assert tensor_files.address(pool._jobs[0].writing.data) == tensor_files.address(values)
        pool._help()
    assert gone() is None
    assert content(tmp_path / "a.pt") == b"1" * 9000


class Interruption(BaseException):
    """Like KeyboardInterrupt, but never taken for a real one."""


def interrupt(monkeypatch: pytest.MonkeyPatch, owner: Any, method: str, when: str) -> None:
    """The next call of a method is interrupted before it has done anything, or when it has done everything."""
    real = getattr(owner, method)

    def once(*args: Any) -> Any:
        monkeypatch.setattr(owner, method, real)
        if when == "after":
            real(*args)
        raise Interruption

    monkeypatch.setattr(owner, method, once)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("max_bytes", "owner", "method"),
    [
        (0, TensorContents, "_carry_out"),
        (1 << 20, StagingRing, "take"),
        (1 << 20, TensorPool, "_holding"),
        (1 << 20, TensorPool, "_put"),
        (1 << 20, TensorPool, "_noted"),
    ],
)
@pytest.mark.usefixtures("in_python")
def test_an_interrupted_submit_loses_one_file_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_bytes: int, owner: Any, method: str, when: str
) -> None:
    pool = TensorPool(max_bytes=max_bytes)
    contents = {name: name.encode() * 5000 for name in "abcd"}
    submit(pool, tmp_path / "a.pt", contents["a"])
    interrupt(monkeypatch, owner, method, when)
    with pytest.raises(Interruption):
        submit(pool, tmp_path / "b.pt", memoryview(contents["b"]))
    for name in "cd":
        submit(pool, tmp_path / f"{name}.pt", memoryview(contents[name]))
        submit(pool, tmp_path / f"{name}2.pt", memoryview(contents[name]))
    submit(pool, tmp_path / "b2.pt", memoryview(contents["b"]))
    pool.drain()
    assert {*os.listdir(tmp_path), "b.pt"} == {f"{name}.pt" for name in ("a", "b", "b2", "c", "c2", "d", "d2")}
    for name in os.listdir(tmp_path):
        assert content(tmp_path / name) == contents[name[0]]
    assert not pool.problems
    assert pool._submitted == pool._finished
    assert max_bytes == 0 or pool._ring.take(max_bytes // 2) is not None


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("owner", "method"), [(TensorPool, "_do"), (TensorPool, "_take"), (TensorContents, "_carry_out"), (TensorContents, "write")]
)
@pytest.mark.usefixtures("in_python")
def test_an_interrupted_drain_is_made_up_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, when: str) -> None:
    pool = TensorPool()
    pool._threads = pool._max_threads  # they never come
    expected = {}
    for number in range(150):
        expected[f"{number}.pt"] = b"%d" % (number % 30)
        submit(pool, tmp_path / f"{number}.pt", expected[f"{number}.pt"])
    interrupt(monkeypatch, owner, method, when)
    with pytest.raises(Interruption):
        pool.drain()
    pool.drain()
    assert {name: content(tmp_path / name) for name in os.listdir(tmp_path)} == expected
    assert not pool.problems


def test_one_tensor_larger_than_the_bound_passes(tmp_path: Path, pool_of: Callable[..., TensorPool]) -> None:
    pool = pool_of(max_bytes=10)
    for index in range(3):
        submit(pool, tmp_path / f"{index}.pt", bytes(100))
    pool.drain()
    assert len(os.listdir(tmp_path)) == 3


@pytest.mark.usefixtures("in_python")
def test_threads_end_when_idle_and_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_pool, "_IDLE_SECONDS", 0.01)
    pool = TensorPool(threads=2)
    assert pool._threads == 0
    for index in range(3):
        submit(pool, tmp_path / f"{index}.pt", b"%d" % index)
        pool.drain()
        assert content(tmp_path / f"{index}.pt") == b"%d" % index
        until(lambda: pool._threads == 0)


@pytest.mark.usefixtures("in_python")
def test_close_ends_the_threads_and_a_late_tensor_is_still_written(tmp_path: Path) -> None:
    pool = TensorPool()
    submit(pool, tmp_path / "a.pt", b"1")
    pool.close()
    until(lambda: pool._threads == 0)
    submit(pool, tmp_path / "late.pt", b"1")
    pool.drain()
    assert content(tmp_path / "late.pt") == b"1"


@pytest.mark.usefixtures("in_python")
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


@pytest.mark.usefixtures("in_python")
def test_memory_of_earlier_directories_is_let_go(tmp_path: Path) -> None:
    pool = TensorPool()
    for step in range(10):
        (tmp_path / str(step)).mkdir()
        submit(pool, tmp_path / str(step) / "a.pt", b"1")
        pool.drain()
    assert len(pool._directories) <= 2


def test_a_dropped_pool_is_collected(pool_of: Callable[..., TensorPool]) -> None:
    import gc
    import weakref

    pool = weakref.ref(pool_of())
    gc.collect()
    assert pool() is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4)), max_size=60), st.integers(1, 4))
def test_any_load(tmp_path: Path, pool_of: Callable[..., TensorPool], files: list[tuple[int, int]], threads: int) -> None:
    """Names in any order, some again, on any number of threads: each name has its last content, each content one file at most."""
    for name in os.listdir(tmp_path):
        os.unlink(tmp_path / name)
    pool = pool_of(max_bytes=5000, threads=threads)
    expected = {}
    for name, value in files:
        expected[name] = b"%d" % value * 700
        submit(pool, tmp_path / f"{name}.pt", expected[name])
    pool.close()
    assert {name: content(tmp_path / f"{name}.pt") for name in expected} == expected
    if len(expected) == len(files):
        assert len(inodes(tmp_path)) == len(set(expected.values()))
    assert not pool.problems
