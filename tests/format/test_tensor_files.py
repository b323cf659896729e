"""Many tensor files at once: in C and without it, byte for byte the same files."""

from __future__ import annotations

import errno
import os
import resource
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path

import numpy as np
import pytest
import torch

from msprobe.format import tensor_file, tensor_files
from msprobe.format.dtypes import SPELLING
from msprobe.format.tensor_files import Linking, carry_out, writing

_IN_C = tensor_files._in_c
PIECE = 1 << 19
"""Of csrc: data beyond it goes to the file in pieces."""


@pytest.fixture(params=["in C", "one by one"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "one by one":
        monkeypatch.setattr(tensor_files, "_in_c", None)
    elif _IN_C is None:
        pytest.skip("installed without a compiler")
    return str(request.param)


def some_bytes(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 3), (4, 0, 2), (1, 9000), (2, 1, 3, 1, 2)], ids=str)
@pytest.mark.parametrize("dtype", SPELLING)
def test_every_dtype_and_shape(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    data = some_bytes(SPELLING[dtype][0] * prod(shape))
    operation = writing("a.pt", dtype, shape, data)
    assert carry_out(str(tmp_path), [operation]) == [None]
    size = tensor_file.write(str(tmp_path / "b.pt"), dtype, shape, data)
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "b.pt").read_bytes()
    assert operation.size == size
    assert sorted(os.listdir(tmp_path)) == ["a.pt", "b.pt"]


@pytest.mark.parametrize("at", [0, 1 << 12, 1 << 16, PIECE, 2 * PIECE, 3 * PIECE])
def test_sizes_around_every_border(at: int, tmp_path: Path) -> None:
    """One system call or several, under its own name or another first: the checksum in the archive is that of the data."""
    around = len(tensor_files.frame("uint8", (at,)).head) + len(tensor_files.frame("uint8", (at,)).tail)
    sizes = [size for size in (at - around - 1, at - around, at - 1, at, at + 1, at + 63) if size >= 0]
    data = [memoryview(some_bytes(size)) for size in sizes]
    operations = [writing(f"{size}.pt", "uint8", (size,), part) for size, part in zip(sizes, data, strict=True)]
    assert carry_out(str(tmp_path), operations) == [None] * len(sizes)
    assert sorted(os.listdir(tmp_path)) == sorted(f"{size}.pt" for size in sizes)
    for size, part, operation in zip(sizes, data, operations, strict=True):
        path = tmp_path / f"{size}.pt"
        assert path.stat().st_size == operation.size
        assert zipfile.ZipFile(path).testzip() is None
        assert torch.load(path, weights_only=True).numpy().tobytes() == part
        assert tensor_file.read(path).data == part


def test_kinds_of_buffers(tmp_path: Path) -> None:
    values = np.arange(5000, dtype=np.float32)
    buffers = [
        values.tobytes(),
        bytearray(values.tobytes()),
        memoryview(values),
        memoryview(values.reshape(50, 100)),
        memoryview(values.tobytes()),
    ]
    operations = [writing(f"{number}.pt", "float32", (5000,), buffer) for number, buffer in enumerate(buffers)]
    assert carry_out(str(tmp_path), operations) == [None] * 5
    assert len({(tmp_path / f"{number}.pt").read_bytes() for number in range(5)}) == 1


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(KeyError):
        writing("a.pt", "quint8", (1,), b"1")
    with pytest.raises(ValueError, match="1 bytes given for int64"):
        writing("a.pt", "int64", (3,), b"1")


def test_a_file_is_replaced_and_its_other_names_keep_the_content(tmp_path: Path) -> None:
    for size in (3, 1 << 17):
        (tmp_path / "a.pt").write_bytes(b"old")
        os.link(tmp_path / "a.pt", tmp_path / f"other{size}")
        assert carry_out(str(tmp_path), [writing("a.pt", "uint8", (size,), bytes(size))]) == [None]
        assert (tmp_path / f"other{size}").read_bytes() == b"old"
        assert tensor_file.read(tmp_path / "a.pt").data == bytes(size)


def test_links(tmp_path: Path) -> None:
    (tmp_path / "in the way").write_bytes(b"old")
    operations = [
        writing("a", "uint8", (2,), b"12"),
        Linking("b", "a"),
        Linking("in the way", "a"),
        Linking("a", "a"),
        Linking("c", "nothing"),
        Linking("d", "b"),
    ]
    problems = carry_out(str(tmp_path), operations)
    assert [problem and problem.errno for problem in problems] == [None, None, None, None, errno.ENOENT, None]
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "d", "in the way"]
    assert len({item.stat().st_ino for item in tmp_path.iterdir()}) == 1


def test_names_that_are_no_text(tmp_path: Path) -> None:
    names = ["größe.pt", os.fsdecode(b"\xff.pt"), "a b'c.pt"]
    for size in (4, 1 << 17):
        assert carry_out(str(tmp_path), [writing(name, "uint8", (size,), bytes(size)) for name in names]) == [None] * 3
    assert sorted(os.listdir(tmp_path)) == sorted(names)


def test_without_the_directory_nothing_is_done(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        carry_out(str(tmp_path / "none"), [writing("a", "uint8", (2,), b"12")])
    assert os.listdir(tmp_path) == []


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_the_disk_does_not_take_leaves_nothing(tmp_path: Path) -> None:
    sizes = (100, 300_000, 100, 3_000_000)
    operations = [writing(f"{number}.pt", "uint8", (size,), bytes(size)) for number, size in enumerate(sizes)]
    with files_of_at_most(200_000):
        problems = carry_out(str(tmp_path), operations)
    assert [problem and problem.errno for problem in problems] == [None, errno.EFBIG, None, errno.EFBIG]
    assert sorted(os.listdir(tmp_path)) == ["0.pt", "2.pt"]


@pytest.mark.skipif(_IN_C is None, reason="installed without a compiler")
def test_the_kernel_refuses_what_it_cannot_read(tmp_path: Path, way: str) -> None:
    directory = os.fsencode(tmp_path)
    good = (b"a", b"12345678", 0, b"1", 1, b"12345678", 4)
    for place, value in ((2, -1), (2, 5), (4, 2), (4, -1), (6, 5), (3, 0)):
        with pytest.raises(ValueError, match="not within what was given"):
            _IN_C(directory, [(*good[:place], value, *good[place + 1 :])])
    with pytest.raises(ValueError, match="2 or 7 parts, not 3"):
        _IN_C(directory, [(b"a", b"b", b"c")])
    for wrong in (["a"], [("a", b"b")], [(*good[:3], 1.5, *good[4:])]):
        with pytest.raises(TypeError):
            _IN_C(directory, wrong)
    with pytest.raises(ValueError, match="null"):
        _IN_C(directory, [(b"a\0", b"b")])
    assert os.listdir(tmp_path) == []
