"""The bytes of a `.pt` file around a tensor's data, as `torch.save` lays them out: an uncompressed zip archive.

Sources: PKWARE APPNOTE 6.3 (4.3 records, 4.5.3 ZIP64); the pickle is protocol 2 with one persistent id for the storage,
`torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks)`, for dtypes without a typed storage
`_rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype)`.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from msprobe.format.dtypes import SPELLING

ALIGNMENT = 64
_LOCAL = struct.Struct("<4sHHHHHLLLHH")
_CENTRAL = struct.Struct("<4sHHHHHHLLLHHHHHLL")
_END = struct.Struct("<4sHHHHLLH")
_END64 = struct.Struct("<4sQHHLLQQQQ")
_LOCATOR64 = struct.Struct("<4sLQL")
_DOS_DATE = 0x21  # 1980-01-01: the same bytes for the same tensor
_MAX32 = 0xFFFFFFFF
_ROOT = b"archive/"
_DATA = _ROOT + b"data/0"


@dataclass(frozen=True)
class Frame:
    """What surrounds the data of one dtype and shape; the checksum of the data has to be put in at two places."""

    nbytes: int
    head: bytes
    head_crc: int  # offset of the four bytes in `head`
    tail: bytes
    tail_crc: int

    def around(self, crc: int) -> tuple[bytes, bytes]:
        """The bytes before and after the data, whose CRC-32 is `crc`."""
        four = crc.to_bytes(4, "little")
        head, tail, at, end = self.head, self.tail, self.head_crc, self.tail_crc
        return head[:at] + four + head[at + 4 :], tail[:end] + four + tail[end + 4 :]


@lru_cache(maxsize=4096)
def frame(dtype: str, shape: tuple[int, ...], zip64_from: int = _MAX32) -> Frame:
    """The frame for a contiguous tensor. KeyError for an unknown dtype, ValueError for a negative size."""
    if any(size < 0 for size in shape):
        raise ValueError(f"shape {shape} has a negative size")
    nbytes = SPELLING[dtype][0] * prod(shape)
    small = [(_ROOT + b"data.pkl", tensor_pickle(dtype, shape)), (_ROOT + b"byteorder", b"little"), (_ROOT + b"version", b"3\n")]
    head, central = bytearray(), bytearray()
    for name, content in small:
        crc, size = zlib.crc32(content), len(content)
        central += _CENTRAL.pack(b"PK\1\2", 0, 0, 0, 0, 0, _DOS_DATE, crc, size, size, len(name), 0, 0, 0, 0, 0, len(head)) + name
        head += _LOCAL.pack(b"PK\3\4", 0, 0, 0, 0, _DOS_DATE, crc, size, size, len(name), 0) + name + content
    start = len(head)
    big = nbytes >= zip64_from
    size32 = _MAX32 if big else nbytes
    extra = struct.pack("<HHQQ", 1, 16, nbytes, nbytes) if big else b""
    version = 45 if big else 0
    filled = start + _LOCAL.size + len(_DATA) + len(extra) + 4
    padding = -filled % ALIGNMENT
    local_extra = extra + b"FB" + struct.pack("<H", padding) + b"Z" * padding
    head_crc = start + 14
    head += _LOCAL.pack(b"PK\3\4", version, 0, 0, 0, _DOS_DATE, 0, size32, size32, len(_DATA), len(local_extra)) + _DATA + local_extra
    tail_crc = len(central) + 16
    central += _CENTRAL.pack(b"PK\1\2", version, version, 0, 0, 0, _DOS_DATE, 0, size32, size32, len(_DATA), len(extra), 0, 0, 0, 0, start)
    central += _DATA + extra
    at, count = len(head) + nbytes, len(small) + 1
    length = len(central)
    tail = bytes(central)
    if at >= zip64_from:
        tail += _END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, count, count, length, at)
        tail += _LOCATOR64.pack(b"PK\6\7", 0, at + length, 1)
        at = _MAX32
    tail += _END.pack(b"PK\5\6", 0, 0, count, count, length, at, 0)
    return Frame(nbytes, bytes(head), head_crc, tail, tail_crc)


def tensor_pickle(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The `data.pkl` of a contiguous tensor at the start of its storage."""
    itemsize, storage = SPELLING[dtype]
    numel = prod(shape)
    if storage:
        rebuild, kind, count, last = b"_rebuild_tensor_v2", b"ctorch\n" + storage.encode() + b"\n", numel, b""
    else:
        rebuild, kind, count = b"_rebuild_tensor_v3", b"ctorch.storage\nUntypedStorage\n", numel * itemsize
        last = b"ctorch\n" + dtype.encode() + b"\n"
    persistent_id = b"(" + _text("storage") + kind + _text("0") + _text("cpu") + _int(count) + b"tQ"
    return (
        b"\x80\x02ctorch._utils\n" + rebuild + b"\n(" + persistent_id
        + _int(0) + _tuple(shape) + _tuple(contiguous_strides(shape))
        + b"\x89ccollections\nOrderedDict\n)R" + last + b"tR."
    )  # fmt: skip


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements, as torch gives them: sizes of 0 count as 1."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _text(value: str) -> bytes:
    data = value.encode()
    return b"X" + len(data).to_bytes(4, "little") + data


def _int(value: int) -> bytes:
    if value < 1 << 8:
        return b"K" + value.to_bytes(1, "little")
    if value < 1 << 16:
        return b"M" + value.to_bytes(2, "little")
    if value < 1 << 31:
        return b"J" + value.to_bytes(4, "little")
    data = value.to_bytes(value.bit_length() // 8 + 1, "little")
    return b"\x8a" + len(data).to_bytes(1, "little") + data


def _tuple(values: tuple[int, ...]) -> bytes:
    if not values:
        return b")"
    return b"(" + b"".join(map(_int, values)) + b"t"
