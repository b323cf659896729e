"""The checksums with zlib and numpy alone, for where the C kernels could not be built: the same values, slower."""

from __future__ import annotations

import ctypes
import math
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

_STORAGE: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}
_POLYNOMIAL = 0xEDB88320
_ORDER = 0xFFFFFFFF  # the powers of x repeat after this many
# Expanded dimensions of at least so many bytes are computed from one repetition.
_REPEAT_FROM = 1024
_PIECE = 1 << 20
# Two and four elements of these share a byte, so that numel says nothing of the memory.
_PACKED = ("torch.quint4x2", "torch.quint2x4")

Memory = npt.NDArray[Any]
# The checksum of two parts from the checksum and the number of bytes of the first, and those of the second.
Join = Callable[[int, int, int, int], int]


def _multiply(a: int, b: int) -> int:
    """The product of two polynomials modulo CRC-32's; bit 31 is the coefficient of x**0."""
    product = 0
    while a:
        if a >> 31:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


def _shift(nbytes: int) -> int:
    """x ** (8 nbytes): what a CRC is multiplied by when so many bytes follow."""
    power, square, exponent = 1 << 31, 1 << 30, nbytes * 8 % _ORDER
    while exponent:
        if exponent & 1:
            power = _multiply(power, square)
        square = _multiply(square, square)
        exponent >>= 1
    return power


def crc32_combine(first: int, second: int, nbytes: int) -> int:
    """The CRC-32 of two byte strings, one after the other, from that of each and the length of the second.

    ValueError for a CRC that has more than 32 bits, OverflowError for a negative argument.
    """
    if first < 0 or second < 0 or nbytes < 0:
        raise OverflowError("can't convert negative int to unsigned")
    if first > _ORDER or second > _ORDER:
        raise ValueError("a CRC-32 has 32 bits")
    return _multiply(first, _shift(nbytes)) ^ second


def _join_crc32(first: int, first_bytes: int, second: int, second_bytes: int) -> int:
    return crc32_combine(first, second, second_bytes)


def _join_xor(first: int, first_bytes: int, second: int, second_bytes: int) -> int:
    by = first_bytes % 8 * 8  # the bytes of the second move round to their places in the words
    return first ^ ((second << by | second >> (64 - by)) & 0xFFFFFFFFFFFFFFFF)


def _pieces(view: Memory, flip: Memory | None) -> Iterator[Memory]:
    """The bytes in the order of the indices, not much at a time where they must be copied."""
    if view.flags.c_contiguous and flip is None:
        yield view.reshape(-1).view(np.uint8)
    elif view.nbytes <= _PIECE or view.ndim == 0:
        raw = np.frombuffer(view.tobytes(), np.uint8)
        yield raw if flip is None else raw ^ np.resize(flip, raw.size)
    elif len(view) == 1:
        yield from _pieces(view[0], flip)
    else:
        yield from _pieces(view[: len(view) // 2], flip)
        yield from _pieces(view[len(view) // 2 :], flip)


def _crc32(view: Memory, flip: Memory | None) -> int:
    crc = 0
    for piece in _pieces(view, flip):
        crc = zlib.crc32(piece.data, crc)
    return crc


def _xor(view: Memory, flip: Memory | None) -> int:
    value = position = 0
    for piece in _pieces(view, flip):
        raw = np.frombuffer(piece, np.uint8)
        whole = raw.size // 8 * 8
        words = int(np.bitwise_xor.reduce(raw[:whole].view("<u8"), initial=np.uint64(0)))
        value = _join_xor(value, position, words ^ int.from_bytes(raw[whole:].tobytes(), "little"), raw.size)
        position += raw.size
    return value


def _repeated(one: int, nbytes: int, count: int, join: Join) -> int:
    """The checksum of ``count`` equal parts, by doubling."""
    total, done = 0, 0
    while count:
        if count & 1:
            total = join(total, done, one, nbytes)
            done += nbytes
        one = join(one, nbytes, one, nbytes)
        nbytes *= 2
        count >>= 1
    return total


def _digest(view: Memory, flip: Memory | None, of: Callable[[Memory, Memory | None], int], join: Join) -> int:
    inner = [view.itemsize * math.prod(view.shape[k + 1 :]) for k in range(view.ndim)]
    if not any(view.strides[k] == 0 and view.shape[k] > 1 and inner[k] * view.shape[k] >= _REPEAT_FROM for k in range(view.ndim)):
        return of(view, flip)
    if view.strides[0] == 0:
        return _repeated(_digest(view[0], flip, of, join), inner[0], len(view), join)
    total = 0
    for k in range(len(view)):
        total = join(total, k * inner[0], _digest(view[k], flip, of, join), inner[0])
    return total


def _crc32_of_view(view: Memory, flip: Memory | None = None) -> int:
    return _digest(view, flip, _crc32, _join_crc32)


def _xor_of_view(view: Memory, flip: Memory | None = None) -> int:
    return _digest(view, flip, _xor, _join_xor)


def _at(address: int, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Memory:
    """The elements of a view as an array, not copied."""
    if itemsize not in _STORAGE:
        raise ValueError(f"an element has {itemsize} bytes; it may have 1, 2, 4, 8 or 16")
    if len(shape) != len(strides):
        raise ValueError(f"shape has {len(shape)} dimensions and strides has {len(strides)}")
    for k, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        if size < 0 or stride < 0:
            what, wrong = ("size", size) if size < 0 else ("stride", stride)
            raise ValueError(f"dimension {k} has {what} {wrong}; it may not be negative")
    if itemsize * math.prod(size for size in shape if size) > 1 << 62:
        raise ValueError("more bytes than 62 bits can count")
    if 0 in shape:
        return np.empty(0, _STORAGE[itemsize])
    if address == 0:
        raise ValueError(f"address 0 cannot hold {math.prod(shape)} elements")
    kept = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size > 1]
    extent = 1 + sum((size - 1) * stride for size, stride in kept)
    memory: Any = (ctypes.c_char * (extent * itemsize)).from_address(address)
    flat = np.frombuffer(memory, _STORAGE[itemsize])
    return np.lib.stride_tricks.as_strided(flat, [n for n, _ in kept], [s * itemsize for _, s in kept], writeable=False)


def crc32_of(address: int, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """zlib.crc32 of the elements of a view in the order of its indices; the twin of the kernel.

    Args:
        address: of the first element.
        itemsize: bytes of an element: 1, 2, 4, 8 or 16.
        shape: sizes, outermost first.
        strides: in elements, none negative.

    ValueError for anything else.
    """
    return _crc32_of_view(_at(address, itemsize, shape, strides))


def xor_of(address: int, itemsize: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """The bytes of a view, as little-endian 64-bit words, the last filled up with zeros, added by XOR; arguments as for `crc32_of`."""
    return _xor_of_view(_at(address, itemsize, shape, strides))


def _flip(dtype: Any, conjugate: bool, negative: bool) -> Memory:
    """One element's worth of the bits that are turned over. ValueError for types without a sign bit of their own."""
    size = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
    if not (dtype.is_complex or dtype.is_floating_point) or size < 2:
        raise ValueError(f"negated {dtype} is more than other signs")
    flip = np.zeros((2 if dtype.is_complex else 1, size), np.uint8)
    sign = -1 if sys.byteorder == "little" else 0
    flip[0, sign] = 0x80 * negative
    flip[-1, sign] = 0x80 * (negative != (conjugate and dtype.is_complex))
    return flip.reshape(-1)


def _read(tensor: Any) -> tuple[Memory, Memory | None] | None:
    try:
        dtype = tensor.dtype
        if tensor.is_cpu is not True or str(dtype) in _PACKED:
            return None
        conjugate, negative = bool(dtype.is_complex and tensor.is_conj()), bool(tensor.is_neg())
        flip = _flip(dtype, conjugate, negative) if conjugate or negative else None
        address = tensor.data_ptr()  # raises for tensors without memory
        return _at(address, dtype.itemsize, tuple(int(n) for n in tensor.shape), tensor.stride()), flip
    except Exception:  # whatever kind of tensor refused an answer: the caller has a slower way that finds out
        return None


def checksum(tensor: Any) -> str | None:
    """CRC-32 of a tensor's values as 8 hexadecimal digits; None for a tensor without strided memory of its own on the host."""
    read = _read(tensor)
    return None if read is None else f"{_crc32_of_view(*read):08x}"


def xor_checksum(tensor: Any) -> str | None:
    """XOR of a tensor's 64-bit words as 0x and 16 hexadecimal digits; None for an empty tensor and where `checksum` gives None."""
    read = _read(tensor)
    return None if read is None or not read[0].size else f"0x{_xor_of_view(*read):016x}"
