"""Statistics of numpy arrays: where the memory can be read as it lies the kernels do it, everything else is brought to such a form."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from . import fallback
from .dtypes import BY_NAME

try:
    from . import _kernels
except ImportError:
    _kernels = None  # type: ignore[assignment]


def summarize_array(array: npt.NDArray[Any]) -> tuple[Any, ...]:
    """(Max, Min, Mean, Norm) of an array of any numeric dtype, any layout and byte order; four None for other dtypes and empty arrays."""
    array = np.asarray(array)
    if array.dtype.byteorder not in "=|" and not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind in "fc" and array.dtype.name not in BY_NAME:  # longdouble: statistics are float64
        with np.errstate(all="ignore"):
            array = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    entry = BY_NAME.get(array.dtype.name)
    if entry is None or array.dtype.fields is not None or array.size == 0:
        return fallback.EMPTY
    if _kernels is None:
        return fallback.summarize_stored(array.view(fallback.storage_dtype(entry)), entry)
    if array.flags.c_contiguous:
        return _kernels.summarize(array.ctypes.data, entry.code, array.size)
    steps = [divmod(stride, entry.itemsize) for stride in array.strides]
    if any(stride < 0 or rest for stride, rest in steps):
        array = np.ascontiguousarray(array)
        return _kernels.summarize(array.ctypes.data, entry.code, array.size)
    return _kernels.summarize_strided(array.ctypes.data, entry.code, array.shape, tuple(stride for stride, _ in steps))
