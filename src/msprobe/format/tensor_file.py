"""One tensor in one file: `.pt` in torch's zip format, written and read without torch."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence

from msprobe.format.torch_zip import frame

Buffer = bytes | bytearray | memoryview
# Bytes from which a file is written under another name first: smaller ones are written by one system call, which nothing tears.
_CAREFUL_FROM = 1 << 16
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def write(path: str, dtype: str, shape: Sequence[int], data: Buffer) -> int:
    """Write a `.pt` that `torch.load(path, weights_only=True)` reads as a contiguous CPU tensor; returns the file's size in bytes.

    dtype: torch's name without "torch."; data: the elements in row-major order, little-endian, any object with a contiguous buffer.
    An existing file of the name is unlinked, not overwritten: other names may be hard links to it.
    Raises KeyError (a dtype that such files cannot hold), ValueError (data does not fit dtype and shape), OSError (nothing is left then).
    """
    around = frame(dtype, tuple(shape))
    view = memoryview(data).cast("B") if around.nbytes else memoryview(b"")
    if len(view) != around.nbytes:
        raise ValueError(f"{len(view)} bytes given for {dtype} of shape {tuple(shape)}, which has {around.nbytes}")
    head, tail = around.around(zlib.crc32(view))
    size = len(head) + len(view) + len(tail)
    target = path if size < _CAREFUL_FROM else os.path.join(os.path.dirname(path), f".{zlib.crc32(os.fsencode(path)):08x}.next")
    try:
        descriptor = os.open(target, _FLAGS, 0o666)
    except FileExistsError:
        os.unlink(target)
        descriptor = os.open(target, _FLAGS, 0o666)
    try:
        try:
            _write_all(descriptor, [head, view, tail], size)
        finally:
            os.close(descriptor)
        if target is not path:
            os.rename(target, path)
    except BaseException:
        os.unlink(target)
        raise
    return size


def _write_all(descriptor: int, parts: list[Buffer], size: int) -> None:
    written = os.writev(descriptor, parts)
    if written == size:
        return
    rest = memoryview(b"")
    for part in parts:
        rest = memoryview(part)[written:]
        written = max(0, written - len(part))
        while rest:
            rest = rest[os.write(descriptor, rest) :]
