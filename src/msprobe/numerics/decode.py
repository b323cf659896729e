"""Raw bytes of any dtype as float64 or complex128 numbers, in numpy alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .dtypes import DType, lookup

# What numpy reads the bytes as where it has no such type; the rest have numpy types of the same name.
_STORAGE = {"bfloat16": "uint16", "complex32": "uint32"}


def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy dtype, of the same item size, that holds the bits of ``dtype``."""
    if dtype.name.startswith("float8"):
        return np.dtype(np.uint8)
    return np.dtype(_STORAGE.get(dtype.name, dtype.name))


@cache
def _float8_values(name: str) -> npt.NDArray[np.float64]:
    """The value of each of the 256 bytes of an eight-bit format.

    Sources: OCP 8-bit Floating Point Specification (e4m3fn, e5m2); arXiv:2206.02915 (the fnuz forms: bias one larger, no infinity,
    NaN in place of -0); OCP Microscaling Formats (e8m0fnu: a bare exponent, 255 is NaN).
    """
    byte = np.arange(256)
    if name == "float8_e8m0fnu":
        values: npt.NDArray[np.float64] = np.ldexp(1.0, byte - 127)
        values[255] = np.nan
        return values
    fnuz = name.endswith("fnuz")
    mantissa_bits = 3 if "e4m3" in name else 2
    bias = (7 if mantissa_bits == 3 else 15) + fnuz
    exponent = (byte & 0x7F) >> mantissa_bits
    mantissa = byte & ((1 << mantissa_bits) - 1)
    hidden = np.where(exponent > 0, 1 << mantissa_bits, 0)
    values = np.ldexp((mantissa + hidden).astype(np.float64), np.maximum(exponent, 1) - bias - mantissa_bits)
    values = np.where(byte & 0x80, -values, values)
    if fnuz:
        values[0x80] = np.nan
    elif name == "float8_e4m3fn":
        values[[0x7F, 0xFF]] = np.nan
    else:  # e5m2 is laid out like an IEEE type
        values[exponent == 31] = np.nan
        values[[0x7C, 0xFC]] = np.inf, -np.inf
    return values


def decode(stored: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """Elements as :func:`storage_dtype` holds them, as float64 (complex128 for complex). The shape stays."""
    if dtype.name == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype.name == "complex32":
        halves = np.ascontiguousarray(stored)[..., None].view(np.float16).astype(np.float64)
        return halves.view(np.complex128)[..., 0]
    if dtype.name.startswith("float8"):
        values: npt.NDArray[Any] = _float8_values(dtype.name)[stored]
        return values
    return stored.astype(np.complex128 if dtype.kind == "c" else np.float64, copy=False)


def to_float64(raw: bytes | bytearray | memoryview, dtype: str) -> npt.NDArray[Any]:
    """All elements in ``raw`` as a one-dimensional float64 array, complex ones as complex128.

    Every value is exact but for integers above 2**53, which are rounded. For float64 and complex128 the result is a read-only view of
    ``raw`` where ``raw`` is read-only. ValueError for an unknown dtype and for a length that is no whole number of elements.
    """
    entry = lookup(dtype)
    view = memoryview(raw)
    if view.nbytes % entry.itemsize:
        raise ValueError(f"{view.nbytes} bytes are no whole number of {entry.name} elements of {entry.itemsize} bytes")
    if not view.nbytes:
        return np.empty(0, np.complex128 if entry.kind == "c" else np.float64)
    with np.errstate(invalid="ignore"):  # numpy warns when it converts a signalling NaN
        return decode(np.frombuffer(view, storage_dtype(entry)), entry)
