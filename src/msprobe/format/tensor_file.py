"""One tensor in one file: `.pt` in torch's zip format, written and read without torch; `.npy` read too.

Reading runs nothing that a file says: see safe_pickle. What it cannot read (quantized, sparse, subclasses, legacy files) it names in a
DumpFormatError, and a caller that has torch may try `torch.load(weights_only=True)`.
"""

from __future__ import annotations

import io
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from typing import IO, Protocol

import numpy as np

from msprobe.errors import DumpFormatError
from msprobe.format.dtypes import SPELLING
from msprobe.format.safe_pickle import MAX_SIZE, Refused, TensorView, tensor_view
from msprobe.format.torch_zip import Frame, contiguous_strides, frame
from msprobe.numerics.checksum import crc32_of

Buffer = bytes | bytearray | memoryview
# A view that repeats its elements (`expand`) is written out up to this size, however small its file.
_MAX_EXPANSION = 256 << 20
_FASTER_FROM = 1 << 13
_PIECE = 1 << 20
UNFINISHED = ".next"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Digest(Protocol):
    """Of bytes that come in pieces."""

    def update(self, piece: Buffer, /) -> None:
        """The next ones."""


def write(path: str, dtype: str, shape: Sequence[int], data: Buffer, live: Digest | None = None) -> int:
    """Write a `.pt` that `torch.load(path, weights_only=True)` reads as a contiguous CPU tensor; returns the file's size in bytes.

    dtype: torch's name without "torch."; data: the elements in row-major order, little-endian, any object with a contiguous buffer.
    live: given where other threads may change the data meanwhile; it is told every byte that is written.
    It has a hidden name until it is complete: opening and writing are two calls, and a kill may end a write at any page. An existing file
    of the name is replaced, not overwritten: other names may be hard links to it.
    Raises KeyError (a dtype that such files cannot hold), ValueError (data does not fit dtype and shape), OSError (nothing is left then).
    """
    around = frame(dtype, tuple(shape))
    view = memoryview(data).cast("B") if around.nbytes else memoryview(b"")
    if len(view) != around.nbytes:
        raise ValueError(f"{len(view)} bytes given for {dtype} of shape {tuple(shape)}, which has {around.nbytes}")
    size = len(around.head) + len(view) + len(around.tail)
    hidden = unfinished(path)
    try:
        descriptor = os.open(hidden, _FLAGS, 0o666)
    except FileExistsError:  # a killed process left it
        os.unlink(hidden)
        descriptor = os.open(hidden, _FLAGS, 0o666)
    try:
        try:
            if live is None:
                head, tail = around.around(_crc32(view))
                _write_all(descriptor, [head, view, tail], size)
            else:
                _write_live(descriptor, around, view, live)
        finally:
            os.close(descriptor)
        os.rename(hidden, path)
    except BaseException:
        for left in (hidden, path):  # the latter with an earlier content
            with suppress(OSError):
                os.unlink(left)
        raise
    return size


def unfinished(path: str) -> str:
    """What a file is called until it is complete."""
    return os.path.join(os.path.dirname(path), f".{zlib.crc32(os.fsencode(path)):08x}{UNFINISHED}")


def _crc32(view: memoryview) -> int:
    """zlib's CRC-32; that of the kernels is ten times as fast, once there is enough to do."""
    if len(view) < _FASTER_FROM:
        return zlib.crc32(view)
    bytes_ = np.frombuffer(view, np.uint8)
    return crc32_of(bytes_.ctypes.data, 1, bytes_.shape, (1,))


def _write_live(descriptor: int, around: Frame, view: memoryview, live: Digest) -> None:
    """What is digested, checksummed and written is one copy of each piece."""
    copied, crc = memoryview(bytearray(min(len(view), _PIECE))), 0
    os.lseek(descriptor, len(around.head), os.SEEK_SET)
    for at in range(0, len(view), _PIECE):
        piece = copied[: len(view) - at]
        piece[:] = view[at : at + _PIECE]
        live.update(piece)
        crc = zlib.crc32(piece, crc)
        _write_all(descriptor, [piece], len(piece))
    head, tail = around.around(crc)
    _write_all(descriptor, [tail], len(tail))
    os.lseek(descriptor, 0, os.SEEK_SET)
    _write_all(descriptor, [head], len(head))


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


@dataclass(frozen=True)
class TensorData:
    """dtype: torch's name without "torch." (for `.npy` of texts numpy's); data: the elements' bytes, row-major, little-endian."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview = field(repr=False)


def read(path: str | os.PathLike[str]) -> TensorData:
    """The tensor in a `.pt` or `.npy` file, told apart by content. Raises DumpFormatError with the path and the reason.

    The whole file is read once; `data` is a view of it, or a copy where the file holds a strided view of a larger storage.
    """
    try:
        raw = _read_regular(path)
        if raw[:6] == b"\x93NUMPY":
            return _read_npy(path, raw)
        if raw[:4] != b"PK\3\4":
            raise Refused("it is neither a zip archive (.pt) nor a .npy file" if raw else "it is empty")
        return _read_zip(raw)
    except Refused as refusal:
        raise DumpFormatError(f"{os.fspath(path)} cannot be read as a tensor: {refusal}") from None
    except OSError as problem:
        raise DumpFormatError(f"{os.fspath(path)} cannot be read: {problem.strerror or problem}") from None
    except MemoryError:
        raise DumpFormatError(f"{os.fspath(path)} is too large for the memory of this machine") from None


def _read_regular(path: str | os.PathLike[str]) -> bytes:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise Refused("it is no regular file")
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _read_zip(raw: bytes) -> TensorData:
    source = memoryview(raw)
    view, (start, length) = _described(_Records(io.BytesIO(raw), len(raw), lambda at, size: source[at : at + size]))
    return TensorData(view.dtype, view.shape, _elements(view, source[start : start + length], len(raw)))


class OpenTensor:
    """A tensor file of which the elements are read piece by piece. Closed by `close` or as a context manager.

    Attributes:
        dtype, shape: as in TensorData.
        nbytes: of all elements.
    """

    def __init__(self, path: str | os.PathLike[str], descriptor: int, view: TensorView, start: int, nbytes: int) -> None:
        self.dtype, self.shape, self.nbytes = view.dtype, view.shape, nbytes
        self._path, self._descriptor, self._start = path, descriptor, start

    def read_into(self, buffer: memoryview, at: int) -> None:
        """Fills `buffer` with the bytes from the `at`-th on. Raises DumpFormatError when the file has become shorter or fails."""
        done = 0
        try:
            while done < len(buffer):
                count = os.preadv(self._descriptor, [buffer[done:]], self._start + at + done)
                if not count:
                    raise DumpFormatError(f"{os.fspath(self._path)} cannot be read: it became shorter while it was read")
                done += count
        except OSError as problem:
            raise DumpFormatError(f"{os.fspath(self._path)} cannot be read: {problem.strerror or problem}") from None

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)

    def __enter__(self) -> OpenTensor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_tensor(path: str | os.PathLike[str]) -> OpenTensor | None:
    """A `.pt` whose elements lie side by side in the file; None for whatever only `read` can read or has to refuse."""
    if not hasattr(os, "preadv"):
        return None
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        if os.pread(descriptor, 4, 0) == b"PK\3\4":
            with open(descriptor, "rb", closefd=False) as file:
                records = _Records(file, size, lambda at, count: memoryview(os.pread(descriptor, count, at)))
                view, (start, length) = _described(records)
            extent = _extent(view, length)
            if extent is not None:
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(descriptor, start, length, os.POSIX_FADV_SEQUENTIAL)
                return OpenTensor(path, descriptor, view, start + extent[0], extent[1])
    except (Refused, OSError, MemoryError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _described(records: _Records) -> tuple[TensorView, tuple[int, int]]:
    """What tensor an archive holds, and where in the file its storage is."""
    view = tensor_view(bytes(records.get("data.pkl", limit=MAX_SIZE)))
    order = bytes(records.get("byteorder", limit=16)) if records.has("byteorder") else b"little"
    if order.strip() != b"little":
        raise Refused("it was written on a big-endian machine")
    if not view.storage.key.isascii() or not view.storage.key.isalnum():
        raise Refused("its storage has no proper name")
    return view, records.span(f"data/{view.storage.key}")


class _Records:
    """The records of an archive that was only ever stored, never compressed: every record is a slice of the file.

    Args:
        file: what zipfile can read.
        size: of the file.
        slice_of: gives some bytes of the file by offset and number; fewer where it ends.
    """

    def __init__(self, file: IO[bytes], size: int, slice_of: Callable[[int, int], memoryview]) -> None:
        self._size, self._slice = size, slice_of
        try:
            infos = zipfile.ZipFile(file).infolist()
        except MemoryError:
            raise
        except Exception:  # zipfile has no list of what it raises for damaged files
            raise Refused("its zip archive is cut off or damaged") from None
        self._infos = {info.filename: info for info in infos}
        if len(self._infos) != len(infos):
            raise Refused("its zip archive has two records of one name")
        pickles = [name for name in self._infos if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise Refused("it is a zip archive without a data.pkl" if not pickles else "its zip archive has more than one data.pkl")
        self._root = pickles[0].removesuffix("data.pkl")

    def has(self, name: str) -> bool:
        return self._root + name in self._infos

    def get(self, name: str, limit: int) -> memoryview:
        """The content of a record of at most `limit` bytes."""
        start, length = self.span(name)
        if length > limit:
            raise Refused(f"its record {name} has {length} bytes, more than any plain tensor needs")
        return self._slice(start, length)

    def span(self, name: str) -> tuple[int, int]:
        """Where a record begins, and its length; it lies within the file."""
        info = self._infos.get(self._root + name)
        if info is None:
            raise Refused(f"its zip archive has no record {name}")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size or info.flag_bits & 1:
            raise Refused(f"its record {name} is compressed or encrypted, which torch never writes")
        at = info.header_offset
        header = self._slice(at, 30) if at >= 0 else memoryview(b"")
        if len(header) != 30 or bytes(header[:4]) != b"PK\3\4":
            raise Refused(f"its record {name} is not where its zip archive says")
        start = at + 30 + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        if start + info.file_size > self._size:
            raise Refused(f"its record {name} goes beyond the end of the file")
        return start, info.file_size


def _extent(view: TensorView, storage_length: int) -> tuple[int, int] | None:
    """Offset and number of the bytes of a view within its storage; None where they do not lie side by side."""
    itemsize = SPELLING[view.dtype][0]
    length = view.storage.count * (itemsize if view.storage.dtype else 1)
    if length > storage_length:
        raise Refused(f"its storage should have {length} bytes and has {storage_length}")
    numel = prod(view.shape)
    if numel == 0:
        return 0, 0
    last = view.offset + sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True))
    if (last + 1) * itemsize > length:
        raise Refused(f"its elements reach beyond its storage of {length} bytes")
    expected = contiguous_strides(view.shape)
    if all(size == 1 or stride == right for size, stride, right in zip(view.shape, view.strides, expected, strict=True)):
        return view.offset * itemsize, numel * itemsize
    return None


def _elements(view: TensorView, storage: memoryview, file_size: int) -> memoryview:
    """The bytes of a view's elements in row-major order."""
    extent = _extent(view, len(storage))
    if extent is not None:
        return storage[extent[0] : extent[0] + extent[1]]
    itemsize = SPELLING[view.dtype][0]
    nbytes = prod(view.shape) * itemsize
    if nbytes > max(file_size, _MAX_EXPANSION):
        raise Refused(f"it repeats its {view.storage.count * (itemsize if view.storage.dtype else 1)} bytes to {nbytes}")
    return _gather(view, storage, itemsize)


def _gather(view: TensorView, storage: memoryview, itemsize: int) -> memoryview:
    import numpy as np

    kept = [(size, stride * itemsize) for size, stride in zip(view.shape, view.strides, strict=True) if size != 1]
    try:
        array = np.ndarray(
            tuple(size for size, _ in kept), f"V{itemsize}", storage, view.offset * itemsize, tuple(stride for _, stride in kept)
        )
    except (ValueError, OverflowError):
        raise Refused("its shape is more than numpy can handle") from None
    return memoryview(array.tobytes())


def _read_npy(path: str | os.PathLike[str], raw: bytes) -> TensorData:
    import numpy as np

    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False) if len(raw) > 1 << 20 else np.load(io.BytesIO(raw), allow_pickle=False)
    except (ValueError, EOFError, TypeError, SyntaxError, OverflowError) as problem:
        raise Refused(f"its .npy content is damaged or holds Python objects ({str(problem).splitlines()[0]})") from None
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    return TensorData(array.dtype.name, array.shape, data)
