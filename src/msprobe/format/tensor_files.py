"""Many tensor files of one directory at a time: written and linked in C without Python's lock, one after the other without the C.

files = [writing("a.pt", "float32", (2, 3), data), Linking("b.pt", "a.pt")]
problems = carry_out("/dump/step0/rank0/dump_tensor_data", files)    # [None, None], or an OSError in the place of what failed
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from msprobe.format import tensor_file
from msprobe.format.tensor_file import Buffer, Digest
from msprobe.format.torch_zip import frame

try:
    from msprobe.format import _tensor_files

    _in_c: Any = _tensor_files.carry_out
except ImportError:
    _in_c = None


class Writing(NamedTuple):
    """A file to write; see `tensor_file.write`. `data` stays as it is until that is done."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Buffer
    size: int
    """Of the file, in bytes."""
    live: Digest | None = None
    """Given where other threads may change `data` meanwhile: it is told every byte that is written."""


class Linking(NamedTuple):
    """Another name for a file that is there; a file that has the name already is replaced."""

    name: str
    original: str


def writing(name: str, dtype: str, shape: tuple[int, ...], data: Buffer) -> Writing:
    """A file to write. Raises KeyError (a dtype that such files cannot hold), ValueError (data does not fit dtype and shape)."""
    around = frame(dtype, shape)
    given = data.nbytes if type(data) is memoryview else len(data)
    if given != around.nbytes:
        raise ValueError(f"{given} bytes given for {dtype} of shape {shape}, which has {around.nbytes}")
    return Writing(name, dtype, shape, data, len(around.head) + around.nbytes + len(around.tail))


def carry_out(directory: str, operations: Sequence[Writing | Linking]) -> list[OSError | None]:
    """Do the operations in their order; gives for each None, or why it failed: nothing is left of it then.

    Raises FileNotFoundError or another OSError where the directory cannot be opened: nothing was done.
    """
    if _in_c is None or any(type(operation) is Writing and operation.live is not None for operation in operations):
        return _one_by_one(directory, operations)
    errors = _in_c(os.fsencode(directory), [_for_c(operation) for operation in operations])
    return [OSError(error, os.strerror(error)) if error else None for error in errors]


def _for_c(operation: Writing | Linking) -> tuple[Any, ...]:
    name = os.fsencode(operation.name)
    if type(operation) is Linking:
        return name, os.fsencode(operation.original)
    assert type(operation) is Writing
    around, data = frame(operation.dtype, operation.shape), operation.data
    where = data if type(data) is bytes else address(data) if around.nbytes else 0
    return name, around.head, around.head_crc, where, around.nbytes, around.tail, around.tail_crc


def address(data: Buffer) -> int:
    """Where a buffer of at least one byte lies."""
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0])


def _one_by_one(directory: str, operations: Sequence[Writing | Linking]) -> list[OSError | None]:
    os.stat(directory)
    return [_attempt(directory, operation) for operation in operations]


def _attempt(directory: str, operation: Writing | Linking) -> OSError | None:
    path = os.path.join(directory, operation.name)
    try:
        if type(operation) is Linking:
            _link(os.path.join(directory, operation.original), path)
        else:
            assert type(operation) is Writing
            tensor_file.write(path, operation.dtype, operation.shape, operation.data, operation.live)
    except OSError as problem:
        return problem
    return None


def _link(original: str, path: str) -> None:
    try:
        os.link(original, path)
    except FileExistsError:
        if path != original:
            os.unlink(path)
            os.link(original, path)
