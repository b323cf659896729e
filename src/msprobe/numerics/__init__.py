"""Numbers about tensors in memory: one-pass kernels in C, and their numpy twin where these could not be built.

Importing this package imports neither torch nor, where the kernels exist, numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .dtypes import CODE, DTYPES, ITEMSIZE

if TYPE_CHECKING:
    import numpy.typing as npt

try:
    from ._kernels import summarize, summarize_strided

    HAVE_KERNELS = True
except ImportError:
    from .fallback import summarize, summarize_strided

    HAVE_KERNELS = False

__all__ = [
    "CODE",
    "DTYPES",
    "HAVE_KERNELS",
    "ITEMSIZE",
    "summarize",
    "summarize_array",
    "summarize_strided",
    "to_float64",
]


def summarize_array(array: npt.NDArray[Any]) -> tuple[Any, ...]:
    """(Max, Min, Mean, Norm) of an array of any numeric dtype, any layout and byte order; four None for other dtypes and empty arrays."""
    from . import arrays

    return arrays.summarize_array(array)


def to_float64(raw: bytes | bytearray | memoryview, dtype: str) -> npt.NDArray[Any]:
    """All elements in ``raw`` as a one-dimensional float64 array, complex ones as complex128; see :func:`.decode.to_float64`."""
    from . import decode

    return decode.to_float64(raw, dtype)
