"""Tensor files against torch: every dtype, both directions."""

from __future__ import annotations

import os
import sys
import zipfile
from math import prod
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msprobe.errors import DumpFormatError
from msprobe.format import tensor_file
from msprobe.format.dtypes import SPELLING
from msprobe.format.safe_pickle import tensor_view
from msprobe.format.torch_zip import contiguous_strides, frame, tensor_pickle

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
GOLDEN = Path(__file__).parent.parent / "golden"
DTYPES = [name for name in SPELLING if hasattr(torch, name)]
SHAPES = [(), (1,), (0,), (2, 3), (4, 0, 2), (300,), (1, 70000), (2, 1, 3, 1, 2)]


def some_bytes(dtype: str, shape: tuple[int, ...]) -> bytes:
    size = SPELLING[dtype][0] * prod(shape)
    return bytes(np.random.default_rng(size).integers(0, 2 if dtype == "bool" else 256, size, dtype=np.uint8))


def storage_bytes(tensor: torch.Tensor) -> bytes:
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy().tobytes()


def make(dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    raw = torch.frombuffer(bytearray(some_bytes(dtype, shape) or b"\0"), dtype=torch.uint8)
    if 0 in shape:
        return torch.empty(shape, dtype=getattr(torch, dtype))
    return raw.view(getattr(torch, dtype)).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_reads_what_is_written(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    path = str(tmp_path / "x.pt")
    data = some_bytes(dtype, shape)
    size = tensor_file.write(path, dtype, shape, data)
    assert size == os.path.getsize(path)
    for mmap in (False, True):
        tensor = torch.load(path, weights_only=True, mmap=mmap)
        assert type(tensor) is torch.Tensor
        assert (tensor.dtype, tuple(tensor.shape), tensor.device.type) == (getattr(torch, dtype), shape, "cpu")
        assert tensor.is_contiguous()
        assert not tensor.requires_grad
        assert tensor.stride() == torch.empty(shape, dtype=torch.uint8).stride()
        assert storage_bytes(tensor) == data
    again = tensor_file.read(path)
    assert (again.dtype, again.shape, bytes(again.data)) == (dtype, shape, data)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_torch_writes_is_read(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    torch.save(make(dtype, shape), tmp_path / "x.pt")
    data = tensor_file.read(tmp_path / "x.pt")
    assert (data.dtype, data.shape, bytes(data.data)) == (dtype, shape, some_bytes(dtype, shape))
    assert data.data.contiguous


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_archive_is_as_torch_makes_it(dtype: str, tmp_path: Path) -> None:
    torch.save(make(dtype, (2, 3)), tmp_path / "torch.pt")
    tensor_file.write(str(tmp_path / "ours.pt"), dtype, (2, 3), some_bytes(dtype, (2, 3)))
    with zipfile.ZipFile(tmp_path / "ours.pt") as ours, zipfile.ZipFile(tmp_path / "torch.pt") as theirs:
        assert ours.testzip() is None  # checks the CRCs
        root = theirs.namelist()[0].split("/")[0]
        for info in ours.infolist():
            name = info.filename.removeprefix("archive/")
            assert info.compress_type == zipfile.ZIP_STORED
            if name != "data.pkl":
                assert ours.read(info) == theirs.read(f"{root}/{name}")
    raw = (tmp_path / "ours.pt").read_bytes()
    assert raw.find(some_bytes(dtype, (2, 3)), raw.find(b"archive/data/0")) % 64 == 0


def test_the_same_tensor_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        tensor_file.write(str(tmp_path / name), "float32", (2,), b"12345678")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, np.array], ids=["bytes", "bytearray", "memoryview", "ndarray"])
def test_any_contiguous_buffer(kind: type, tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    data = values if kind is np.array else kind(values.tobytes())
    tensor_file.write(str(tmp_path / "x.pt"), "float32", (2, 3), data)
    assert torch.equal(torch.load(tmp_path / "x.pt"), torch.from_numpy(values))


def test_bad_arguments(tmp_path: Path) -> None:
    path = str(tmp_path / "x.pt")
    with pytest.raises(KeyError, match="quint8"):
        tensor_file.write(path, "quint8", (1,), b"1")
    with pytest.raises(ValueError, match="7 bytes given for float32 of shape"):
        tensor_file.write(path, "float32", (2,), b"1234567")
    with pytest.raises(ValueError, match="negative"):
        tensor_file.write(path, "float32", (-1, -1), b"1234")
    with pytest.raises(FileNotFoundError):
        tensor_file.write(str(tmp_path / "missing" / "x.pt"), "float32", (), b"1234")
    assert os.listdir(tmp_path) == []


def test_an_existing_file_keeps_its_other_names(tmp_path: Path) -> None:
    for size in (4, 200_000):
        first, other = str(tmp_path / f"first{size}.pt"), str(tmp_path / f"other{size}.pt")
        tensor_file.write(first, "int8", (size,), b"a" * size)
        os.link(first, other)
        tensor_file.write(first, "int8", (size,), b"b" * size)
        assert bytes(tensor_file.read(first).data) == b"b" * size
        assert bytes(tensor_file.read(other).data) == b"a" * size


@pytest.mark.parametrize("size", [100, 200_000])
def test_a_full_disk_leaves_nothing(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, parts: real(fd, [parts[0]]))

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        tensor_file.write(str(tmp_path / "x.pt"), "int8", (size,), b"x" * size)
    assert os.listdir(tmp_path) == []


def test_partial_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(256)) * 4
    tensor_file.write(str(tmp_path / "whole.pt"), "uint8", (1024,), data)
    real = os.write
    for cut in (1, 100, 300, 500, 700, 1500):
        monkeypatch.setattr(os, "writev", lambda fd, parts, cut=cut: real(fd, b"".join(parts)[:cut]))
        monkeypatch.setattr(os, "write", lambda fd, part: real(fd, part[:37]))
        tensor_file.write(str(tmp_path / "cut.pt"), "uint8", (1024,), data)
        monkeypatch.undo()
        assert (tmp_path / "cut.pt").read_bytes() == (tmp_path / "whole.pt").read_bytes()


def test_zip64_for_tensors_beyond_4_gib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same structures, used from 100 bytes on so that the test stays small."""
    monkeypatch.setattr(tensor_file, "frame", lambda dtype, shape: frame(dtype, shape, 100))
    for count in (24, 25, 26, 1000):
        path = tmp_path / f"{count}.pt"
        values = torch.arange(count, dtype=torch.float32)
        tensor_file.write(str(path), "float32", (count,), values.numpy())
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
        assert torch.equal(torch.load(path, weights_only=True), values)
        assert bytes(tensor_file.read(path).data) == values.numpy().tobytes()
    assert b"PK\6\6" in (tmp_path / "1000.pt").read_bytes()


def test_sizes_of_large_tensors() -> None:
    for dtype, shape in (("float64", (3, 1 << 31)), ("uint16", (1 << 40, 5)), ("int8", ((1 << 31) - 1, 255, 256, 2))):
        view = tensor_view(tensor_pickle(dtype, shape))
        assert (view.dtype, view.shape, view.strides) == (dtype, shape, contiguous_strides(shape))
        assert view.storage.count == prod(shape) * (2 if dtype == "uint16" else 1)


def test_torch_maps_a_file_beyond_4_gib(tmp_path: Path) -> None:
    """A hole in the file instead of data: nothing is written or read in between."""
    around = frame("int8", ((1 << 32) + 5,))
    with open(tmp_path / "x.pt", "wb") as file:
        file.write(around.head)
        file.seek(around.nbytes, os.SEEK_CUR)
        file.write(around.tail)
    tensor = torch.load(tmp_path / "x.pt", weights_only=True, mmap=True)
    assert tuple(tensor.shape) == ((1 << 32) + 5,)
    assert tensor[-1].item() == 0


@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("slice", lambda x: x[1:3]),
        ("column", lambda x: x[:, 2]),
        ("step", lambda x: x[::2, 1::2]),
        ("transposed", lambda x: x.t()),
        ("expanded", lambda x: x[:, :1].expand(5, 7)),
        ("element", lambda x: x[2, 3]),
        ("empty", lambda x: x[2:2]),
        ("unsqueezed", lambda x: x[1:2].unsqueeze(0).transpose(0, 2)),
        ("overlapping", lambda x: x.as_strided((3, 4), (1, 1), 2)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "complex32", "complex128", "uint16"])
def test_views(name: str, view, dtype: str, tmp_path: Path) -> None:
    tensor = view(make(dtype, (5, 6)))
    torch.save(tensor, tmp_path / "x.pt")
    data = tensor_file.read(tmp_path / "x.pt")
    assert data.shape == tuple(tensor.shape)
    assert bytes(data.data) == (storage_bytes(tensor.clone(memory_format=torch.contiguous_format)) if tensor.numel() else b"")


def test_more_dimensions_than_numpy_has(tmp_path: Path) -> None:
    tensor = torch.arange(4.0).reshape([1] * 70 + [2, 2]).transpose(-1, -2)
    torch.save(tensor, tmp_path / "x.pt")
    data = tensor_file.read(tmp_path / "x.pt")
    assert data.shape == tuple(tensor.shape)
    assert np.frombuffer(data.data, np.float32).tolist() == [0, 2, 1, 3]


def test_parameters_and_gradients_flags(tmp_path: Path) -> None:
    for tensor in (
        torch.nn.Parameter(torch.ones(2)),
        torch.nn.Parameter(torch.ones(2), requires_grad=False),
        torch.ones(2, requires_grad=True),
    ):
        torch.save(tensor, tmp_path / "x.pt")
        assert np.frombuffer(tensor_file.read(tmp_path / "x.pt").data, np.float32).tolist() == [1, 1]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickle_protocols(protocol: int, tmp_path: Path) -> None:
    torch.save(torch.arange(3.0), tmp_path / "x.pt", pickle_protocol=protocol)
    assert np.frombuffer(tensor_file.read(tmp_path / "x.pt").data, np.float32).tolist() == [0, 1, 2]


def test_files_of_the_existing_tool() -> None:
    read = 0
    for path in sorted((GOLDEN / "reference_tensor_dump" / "dump_tensor_data").glob("*.pt")):
        try:
            data = tensor_file.read(path)
        except DumpFormatError as problem:
            assert "quantized" in str(problem) or "subclass" in str(problem)
            continue
        tensor = torch.load(path, weights_only=True)
        assert (data.dtype, data.shape) == (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        assert bytes(data.data) == storage_bytes(tensor)
        read += 1
    assert read >= 35


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 5), max_size=5).map(tuple))
def test_any_shape(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    path = str(tmp_path / "x.pt")
    tensor_file.write(path, dtype, shape, some_bytes(dtype, shape))
    tensor = torch.load(path, weights_only=True)
    assert tuple(tensor.shape) == shape
    assert storage_bytes(tensor) == bytes(tensor_file.read(path).data) == some_bytes(dtype, shape)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint16", "bool", "complex64", ">f4", ">c16", ">i2"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3), (600, 600)], ids=str)
def test_npy(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    array = (np.arange(prod(shape)).reshape(shape) % 100).astype(dtype)
    for order in "CF":
        np.save(tmp_path / "x.npy", np.asarray(array, order=order))
        data = tensor_file.read(tmp_path / "x.npy")
        assert (data.dtype, data.shape) == (np.dtype(dtype).name, shape)
        assert bytes(data.data) == array.astype(array.dtype.newbyteorder("<")).tobytes()


def test_npy_of_texts_and_objects(tmp_path: Path) -> None:
    texts = np.array(["ab", "c"])
    np.save(tmp_path / "x.npy", texts)
    assert bytes(tensor_file.read(tmp_path / "x.npy").data) == texts.tobytes()
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DumpFormatError, match="holds Python objects"):
        tensor_file.read(tmp_path / "x.npy")


def test_npy_that_promises_more_than_it_has(tmp_path: Path) -> None:
    np.save(tmp_path / "cut.npy", np.zeros(2 << 20, np.uint8))
    os.truncate(tmp_path / "cut.npy", 1 << 21)
    with open(tmp_path / "bomb.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (1 << 50,)})
    with open(tmp_path / "negative.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (-1,)})
    (tmp_path / "short.npy").write_bytes(b"\x93NUMPY")
    for name in ("cut", "bomb", "negative", "short"):
        with pytest.raises(DumpFormatError, match=rf"{name}\.npy (cannot be read as a tensor: its .npy content is damaged|is too large)"):
            tensor_file.read(tmp_path / f"{name}.npy")


def test_reading_needs_no_torch() -> None:
    assert "torch" not in vars(tensor_file)
    assert sys.modules["msprobe.format.tensor_file"] is tensor_file
