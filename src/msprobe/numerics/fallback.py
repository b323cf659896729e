"""The statistics in numpy alone, for where the C kernels could not be built: the same meaning, slower."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .decode import decode, storage_dtype
from .dtypes import DType, by_code
from .fallback_checksum import crc32_of, xor_of

EMPTY = (None, None, None, None)
_CHUNK = 1 << 16
# Sums of squares from here on lost nothing to underflow (csrc/summary.h has the same bound).
_SAFE_LOW = 2.0**-900


def set_threads(n: int) -> int:
    """Accepted for the kernels' sake; numpy works on one thread."""
    return 1


def share_threads(library: str | None) -> bool:
    """Like :func:`set_threads`."""
    return False


def stored_at(address: int, dtype: DType, nbytes: int) -> npt.NDArray[Any]:
    """The memory at ``address`` as a flat array of stored elements, not copied; it need not be aligned."""
    if address == 0:
        raise ValueError(f"address 0 cannot hold {nbytes // dtype.itemsize} elements")
    memory: Any = (ctypes.c_char * nbytes).from_address(address)
    return np.frombuffer(memory, storage_dtype(dtype))


def summarize(address: int, code: int, numel: int) -> tuple[Any, ...]:
    """(Max, Min, Mean, Norm) of ``numel`` contiguous elements at ``address``; the twin of the kernel."""
    dtype = by_code(code)
    if numel < 0:
        raise ValueError(f"numel is {numel}, which no tensor has")
    if numel == 0:
        return EMPTY
    return summarize_stored(stored_at(address, dtype, numel * dtype.itemsize), dtype)


def summarize_strided(address: int, code: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[Any, ...]:
    """(Max, Min, Mean, Norm) of a view, strides in elements and not negative; the twin of the kernel."""
    dtype = by_code(code)
    if len(shape) != len(strides):
        raise ValueError(f"shape has {len(shape)} dimensions and strides has {len(strides)}")
    for k, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        for what, number in (("size", size), ("stride", stride)):
            if number < 0:
                raise ValueError(f"dimension {k} has {what} {number}; it may not be negative")
    if 0 in shape:
        return EMPTY
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    flat = stored_at(address, dtype, extent * dtype.itemsize)
    kept = [(size, stride) for size, stride in zip(shape, strides, strict=True) if stride and size > 1]
    repeat = math.prod(size for size, stride in zip(shape, strides, strict=True) if not stride)
    view = np.lib.stride_tricks.as_strided(flat, [n for n, _ in kept], [s * dtype.itemsize for _, s in kept], writeable=False)
    return summarize_stored(view, dtype, repeat)


def summarize_stored(stored: npt.NDArray[Any], dtype: DType, repeat: int = 1) -> tuple[Any, ...]:
    """(Max, Min, Mean, Norm) of stored elements of any strides, each of which counts ``repeat`` times."""
    if stored.size == 0:
        return EMPTY

    def chunks() -> Iterator[npt.NDArray[Any]]:
        walk: Any = np.nditer(stored, flags=["external_loop", "buffered"], order="K", buffersize=_CHUNK)
        with walk:
            for part in walk:
                yield from (part[k : k + _CHUNK] for k in range(0, part.size, _CHUNK))

    with np.errstate(all="ignore"):
        if dtype.kind == "b":
            return (bool(stored.any()), bool(stored.all()), None, None)
        if dtype.kind in "ui":
            return _integers(chunks, stored.size, repeat)
        return _floats(chunks, dtype, stored.size, repeat)


def _integers(chunks: Callable[[], Iterator[npt.NDArray[Any]]], count: int, repeat: int) -> tuple[Any, ...]:
    highest: list[int] = []
    lowest: list[int] = []
    total = 0
    squares = 0.0
    for part in chunks():
        highest.append(int(part.max()))
        lowest.append(int(part.min()))
        # halves, because a sum of 64-bit integers does not fit 64 bits
        total += (int((part >> 32).sum(dtype=part.dtype)) << 32) + int((part & 0xFFFFFFFF).sum()) if part.itemsize == 8 else int(part.sum())
        real = part.astype(np.float64)
        squares += float(np.square(real).sum())
    return (max(highest), min(lowest), total / count, math.sqrt(squares * repeat))


def _floats(chunks: Callable[[], Iterator[npt.NDArray[Any]]], dtype: DType, count: int, repeat: int) -> tuple[Any, ...]:
    def one_pass(scale: float) -> tuple[float, float, float, float]:
        highest, lowest, total, squares = -math.inf, math.inf, 0.0, 0.0
        for part in chunks():
            values = decode(part, dtype)
            if scale != 1.0:
                values = values * scale
            if dtype.kind == "c":
                if np.isnan(values).any():  # the magnitude of (inf, nan) would be inf
                    return (math.nan, math.nan, math.nan, math.nan)
                values = np.hypot(values.real, values.imag)
            highest = max(highest, float(np.fmax.reduce(values)))
            lowest = min(lowest, float(np.fmin.reduce(values)))
            total += float(values.sum())
            squares += float(np.square(values).sum())
        return (highest, lowest, total, squares)

    highest, lowest, total, squares = one_pass(1.0)
    if math.isnan(squares):
        return (math.nan, math.nan, math.nan, math.nan)
    mean, norm = total / count, math.sqrt(squares * repeat) if squares * repeat < math.inf else math.inf
    big = max(abs(highest), abs(lowest))
    overflow = norm == math.inf and (big < math.inf or dtype.kind == "c")
    if overflow or (0 < big < math.inf and squares < _SAFE_LOW):
        exponent = max(-1000, min(1000, math.frexp(big)[1])) if big < math.inf else 1000
        _, _, total, squares = one_pass(math.ldexp(1.0, -exponent))
        mean, norm = float(np.ldexp(total / count, exponent)), float(np.ldexp(np.sqrt(squares * repeat), exponent))
    # the true mean lies between the two; rounding may have carried it over
    mean = mean if math.isnan(mean) else min(max(mean, lowest), highest)
    return (highest + 0.0, lowest + 0.0, mean, norm)


def describe(tensor: Any, table: dict[Any, tuple[Any, ...]]) -> dict[str, Any] | None:
    """The record of a plain strided tensor in host memory, None for every other kind.

    Args:
        tensor: anything with the attributes of a torch tensor.
        table: dtype object -> (type text, code, dtype text[, what the record holds]). It holds 0 or nothing: Max, Min, Mean, Norm; 1: and
            md5, the CRC-32; 2: md5 alone, the XOR; 3: four None.
    """
    try:
        row = table.get(tensor.dtype)
        if row is None or tensor.is_cpu is not True or tensor.is_neg() or tensor.is_conj():
            return None
        type_text, code, dtype_text, holds = row if len(row) > 3 else (*row, 0)
        shape = tuple(int(n) for n in tensor.shape)
        count = math.prod(shape)
        address = tensor.data_ptr()  # raises for tensors without memory
        if not address and count:
            return None
        record: dict[str, Any] = {"type": type_text, "dtype": dtype_text, "shape": list(shape)}
        strides = tensor.stride()
        size = by_code(code).itemsize
        extent = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) if count else 0
        if extent * size >= 1 << 16 and (tensor.storage_offset() + extent) * size > tensor.untyped_storage().nbytes():
            return None  # somebody has shrunk the storage
        if holds == 2:
            checksum = xor_of(address, by_code(code).itemsize, shape, strides)
            record["md5"] = f"0x{checksum:016x}" if count else None
        else:
            summary = EMPTY if holds == 3 else summarize_strided(address, code, shape, strides)
            record["Max"], record["Min"], record["Mean"], record["Norm"] = summary
        record["requires_grad"] = tensor.requires_grad
        if holds == 1:
            record["md5"] = f"{crc32_of(address, by_code(code).itemsize, shape, strides):08x}"
        return record
    except Exception:  # whatever kind of tensor refused an answer: the caller has a slower way that finds out
        return None


def _plain_record(value: Any) -> dict[str, Any] | None:
    kind = type(value)
    if kind in (bool, float, str) or (kind is int and -(1 << 63) <= value < 1 << 63):
        return {"type": kind.__name__, "value": value}
    return None


def describe_each(
    values: tuple[Any, ...],
    classes: tuple[type, type],
    table: dict[Any, tuple[Any, ...]],
    leaves: list[Any],
    other: Callable[[Any, Any], Any],
) -> tuple[list[Any], int, bool]:
    """Records of the values of a tuple, the number of tensors that were described here, and False: the records may hold anything.

    Args:
        values: what is recorded.
        classes: the two classes of tensors that `describe` takes.
        table: of `describe`.
        leaves: a list that gets the tensors that require grad.
        other: `other(value, position)` makes the record of every value that is neither such a tensor, nor None, nor a plain number or text.
    """
    records: list[Any] = []
    tensors = 0
    for position, value in enumerate(values):
        record, is_tensor = _value_record(value, position, classes, table, leaves, other)
        records.append(record)
        tensors += is_tensor
    return records, tensors, False


def describe_items(
    values: dict[str, Any],
    classes: tuple[type, type],
    table: dict[Any, tuple[Any, ...]],
    leaves: list[Any],
    other: Callable[[Any, Any], Any],
) -> tuple[dict[str, Any], int, bool]:
    """Like `describe_each`, of a dict's values, by their keys. Values under the keys dtype, output_dtype and device go to `other`, unless
    they are tensors or None."""
    records: dict[str, Any] = {}
    tensors = 0
    for key, value in list(values.items()):
        if key in ("dtype", "output_dtype", "device") and value is not None and type(value) not in classes:
            records[key] = other(value, key)
            continue
        records[key], is_tensor = _value_record(value, key, classes, table, leaves, other)
        tensors += is_tensor
    return records, tensors, False


def _value_record(
    value: Any,
    name: Any,
    classes: tuple[type, type],
    table: dict[Any, tuple[Any, ...]],
    leaves: list[Any],
    other: Callable[[Any, Any], Any],
) -> tuple[Any, bool]:
    if value is None:
        return None, False
    if type(value) in classes:
        record = describe(value, table)
        if record is not None:
            if record["requires_grad"] is True:
                leaves.append(value)
            return record, True
    else:
        record = _plain_record(value)
    return (record if record is not None else other(value, name)), False
