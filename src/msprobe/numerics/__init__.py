"""Numbers about tensors in memory: one-pass kernels in C, and their numpy twin where these could not be built.

Importing this package imports neither torch nor, where the kernels exist, numpy.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .dtypes import CODE, DTYPES, ITEMSIZE

if TYPE_CHECKING:
    import numpy.typing as npt

    from .pairs import PairMetrics, TensorLike

try:
    from ._kernels import describe, describe_each, describe_items, set_threads, share_threads, summarize, summarize_strided

    HAVE_KERNELS = True
except ImportError:
    from .fallback import describe, describe_each, describe_items, set_threads, share_threads, summarize, summarize_strided

    HAVE_KERNELS = False

__all__ = [
    "CODE",
    "DTYPES",
    "HAVE_KERNELS",
    "ITEMSIZE",
    "PairMetrics",
    "compare_arrays",
    "describe",
    "describe_each",
    "describe_items",
    "set_threads",
    "share_threads",
    "summarize",
    "summarize_array",
    "summarize_strided",
    "to_float64",
]


def _usable_cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


set_threads(min(4, _usable_cpus()))


def summarize_array(array: npt.NDArray[Any]) -> tuple[Any, ...]:
    """(Max, Min, Mean, Norm) of an array of any numeric dtype, any layout and byte order; four None for other dtypes and empty arrays."""
    from . import arrays

    return arrays.summarize_array(array)


def to_float64(raw: bytes | bytearray | memoryview, dtype: str) -> npt.NDArray[Any]:
    """All elements in ``raw`` as a one-dimensional float64 array, complex ones as complex128; see :func:`.decode.to_float64`."""
    from . import decode

    return decode.to_float64(raw, dtype)


def compare_arrays(a: TensorLike, b: TensorLike) -> PairMetrics:
    """Metrics of target ``a`` against golden ``b``, tensors of one shape; see :func:`.pairs.compare_arrays`."""
    from . import pairs

    return pairs.compare_arrays(a, b)


def __getattr__(name: str) -> Any:
    if name == "PairMetrics":  # its module needs numpy, which importing this package must not load
        from .pairs import PairMetrics

        return PairMetrics
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
