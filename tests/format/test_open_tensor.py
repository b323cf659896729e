"""Tensor files read piece by piece: only those of which every byte is where the file says, and the same bytes as `read` gives."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from msprobe.errors import DumpFormatError
from msprobe.format import tensor_file


def pieces(path: Path, size: int) -> bytes:
    opened = tensor_file.open_tensor(path)
    assert opened is not None
    with opened:
        parts = []
        for at in range(0, opened.nbytes, size):
            buffer = memoryview(bytearray(min(size, opened.nbytes - at)))
            opened.read_into(buffer, at)
            parts.append(bytes(buffer))
    return b"".join(parts)


@pytest.mark.parametrize("by_torch", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64])
def test_the_same_bytes(tmp_path: Path, by_torch: bool, dtype: torch.dtype) -> None:
    tensor = torch.arange(60).reshape(3, 20).to(dtype)
    path = tmp_path / "x.pt"
    if by_torch:
        torch.save(tensor, path)
    else:
        tensor_file.write(str(path), str(dtype).removeprefix("torch."), (3, 20), bytes(tensor.contiguous().view(torch.uint8).numpy().data))
    whole = tensor_file.read(path)
    opened = tensor_file.open_tensor(path)
    assert opened is not None
    with opened:
        assert (opened.dtype, opened.shape, opened.nbytes) == (whole.dtype, whole.shape, len(whole.data))
    assert pieces(path, 7) == bytes(whole.data)


def test_a_view_at_an_offset(tmp_path: Path) -> None:
    torch.save(torch.arange(100.0)[10:20], tmp_path / "x.pt")
    assert np.frombuffer(pieces(tmp_path / "x.pt", 16), np.float32).tolist() == list(range(10, 20))


def test_what_only_the_other_reader_reads_or_refuses(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.arange(12.0).reshape(3, 4).T, path)
    assert tensor_file.open_tensor(path) is None
    torch.save({"a": torch.zeros(3)}, path)
    assert tensor_file.open_tensor(path) is None
    torch.save(torch.zeros(1000), path)
    path.write_bytes(path.read_bytes()[:-100])
    assert tensor_file.open_tensor(path) is None
    np.save(tmp_path / "x.npy", np.zeros(3))
    assert tensor_file.open_tensor(tmp_path / "x.npy") is None
    assert tensor_file.open_tensor(tmp_path / "missing.pt") is None
    assert tensor_file.open_tensor(tmp_path) is None


def test_no_file_stays_open(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(3)}, tmp_path / "refused.pt")
    torch.save(torch.zeros(3), tmp_path / "x.pt")
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for name in ("refused.pt", "x.pt", "missing.pt"):
        opened = tensor_file.open_tensor(tmp_path / name)
        if opened is not None:
            opened.close()
    assert (len(os.listdir("/proc/self/fd")) if before else 0) == before


def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.zeros(10000), path)
    opened = tensor_file.open_tensor(path)
    assert opened is not None
    with opened:
        os.truncate(path, 5000)
        with pytest.raises(DumpFormatError, match=r"x\.pt cannot be read: it became shorter"):
            opened.read_into(memoryview(bytearray(40000)), 0)
