"""How far two tensors lie apart: one value object, filled in one pass over both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import add
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .dtypes import lookup

try:
    from ._kernels import compare_pair
except ImportError:
    from .fallback_pairs import compare_pair


_PIECE = 1 << 20
"""Elements compared at a time where tensors are read in pieces."""


class TensorLike(Protocol):
    """What :func:`compare_arrays` needs of a tensor: elements side by side in ``data``, native byte order."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def data(self) -> bytes | bytearray | memoryview: ...


@dataclass(frozen=True)
class PairMetrics:
    """Differences of a target *a* from a golden *b*, in float64.

    A position is *compared* if both values are finite there; every sum, maximum and ``within_*`` is over compared positions only.
    Complex values are measured by |a|, |b| and |a - b|. Values that leave the range of float64 are ``inf``, never NaN.
    """

    numel: int
    equal: int  # positions with equal values; NaN equals NaN, inf equals inf of the same sign, -0 equals 0
    nan_differ: int  # exactly one of the two is NaN
    inf_differ: int  # no NaN, and one is infinite where the other is finite or infinite with another sign
    nonfinite_equal: int  # those of `equal` that are not finite
    within_1e3: int  # compared positions whose relative difference is below 0.001
    within_5e3: int  # ... below 0.005
    dot: float  # sum of a b; of the real part of conj(a) b
    sumsq_a: float
    sumsq_b: float
    sumsq_diff: float
    max_abs_diff: float  # 0.0 where nothing was compared
    # Largest |a - b| / |b|. Where b is 0 the machine epsilon stands below the bar: float32's if both types fit into float32,
    # float64's otherwise (so for integers and bool).
    max_rel_diff: float
    max_abs_a: float
    max_abs_b: float
    norm_a: float  # square roots of the sums, right also where the sums over- or underflow
    norm_b: float
    distance: float  # Euclidean, the norm of a - b
    cosine: float  # dot / (norm_a norm_b), within -1..1; 1.0 if both norms are 0; NaN if one is 0 or nothing was compared

    @property
    def compared(self) -> int:
        """Number of positions where both values are finite."""
        return self.numel - self.nonfinite_equal - self.nan_differ - self.inf_differ


def metrics_from(numel: int, parts: tuple[Any, ...]) -> PairMetrics:
    """The value object from what ``compare_pair`` returns, whose sums are scaled by powers of two."""
    equal, nan_differ, inf_differ, nonfinite_equal, within_1e3, within_5e3 = parts[:6]
    dot, sumsq_a, sumsq_b, sumsq_diff, max_abs, max_rel, max_a, max_b, exp_a, exp_b, exp_diff = parts[6:]
    root_a, root_b = math.sqrt(sumsq_a), math.sqrt(sumsq_b)
    if numel == nonfinite_equal + nan_differ + inf_differ:
        cosine = math.nan
    elif root_a and root_b:
        # One root of the product is exactly the dot product where b = k a; the product may leave the range of float64.
        product = sumsq_a * sumsq_b
        cosine = dot / math.sqrt(product) if 2.0**-900 < product < math.inf else dot / root_a / root_b
        cosine = max(-1.0, min(1.0, cosine))
    else:
        cosine = 1.0 if root_a == root_b else math.nan
    return PairMetrics(
        numel=numel,
        equal=equal,
        nan_differ=nan_differ,
        inf_differ=inf_differ,
        nonfinite_equal=nonfinite_equal,
        within_1e3=within_1e3,
        within_5e3=within_5e3,
        dot=scaled(dot, exp_a + exp_b),
        sumsq_a=scaled(sumsq_a, 2 * exp_a),
        sumsq_b=scaled(sumsq_b, 2 * exp_b),
        sumsq_diff=scaled(sumsq_diff, 2 * exp_diff),
        max_abs_diff=max_abs,
        max_rel_diff=max_rel,
        max_abs_a=max_a,
        max_abs_b=max_b,
        norm_a=scaled(root_a, exp_a),
        norm_b=scaled(root_b, exp_b),
        distance=scaled(math.sqrt(sumsq_diff), exp_diff),
        cosine=cosine,
    )


def scaled(value: float, exponent: int) -> float:
    """``value * 2**exponent``, infinite instead of an error where float64 cannot hold it."""
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.copysign(math.inf, value)


def compare_arrays(a: TensorLike, b: TensorLike) -> PairMetrics:
    """Metrics of target ``a`` against golden ``b``: equal shapes, any two known dtypes.

    ValueError for different shapes, unknown dtypes, and data whose length does not fit the shape.
    """
    if tuple(a.shape) != tuple(b.shape):
        raise ValueError(f"cannot compare shape {tuple(a.shape)} with shape {tuple(b.shape)} element by element")
    numel = math.prod(a.shape)
    # The memory is good to be read as long as these two arrays live.
    bytes_a, code_a = _readable("target", a, numel)
    bytes_b, code_b = _readable("golden", b, numel)
    return metrics_from(numel, compare_pair(bytes_a.ctypes.data, code_a, bytes_b.ctypes.data, code_b, numel))


class ReadInto(Protocol):
    """Fills a buffer with the bytes of a tensor from the given one on."""

    def __call__(self, buffer: memoryview, at: int, /) -> None: ...


def compare_pieces(dtypes: tuple[str, str], numel: int, read: tuple[ReadInto, ReadInto]) -> PairMetrics | None:
    """`compare_arrays` of two tensors too large to be in memory: a piece of each at a time, in buffers that are used again.

    Args:
        dtypes, read: of the target and of the golden side.
        numel: number of elements of each.

    Returns:
        None where sums of squares leave the range of float64: then the pieces have no common scale, and both tensors are needed at once.
    """
    kinds = lookup(dtypes[0]), lookup(dtypes[1])
    buffers = [np.empty(min(numel, _PIECE) * kind.itemsize, np.uint8) for kind in kinds]
    total: tuple[Any, ...] | None = None
    for start in range(0, numel, _PIECE):
        count = min(_PIECE, numel - start)
        for kind, buffer, side in zip(kinds, buffers, read, strict=True):
            side(buffer.data[: count * kind.itemsize], start * kind.itemsize)
        part = compare_pair(buffers[0].ctypes.data, kinds[0].code, buffers[1].ctypes.data, kinds[1].code, count)
        if any(part[-3:]):
            return None
        total = part if total is None else (*map(add, total[:10], part[:10]), *map(max, total[10:14], part[10:14]), 0, 0, 0)
    return None if total is None or not all(map(math.isfinite, total[6:10])) else metrics_from(numel, total)


def _readable(side: str, tensor: TensorLike, numel: int) -> tuple[npt.NDArray[np.uint8], int]:
    entry = lookup(tensor.dtype)
    data = memoryview(tensor.data)
    needed = numel * entry.itemsize
    if data.nbytes != needed:
        raise ValueError(f"{side} holds {data.nbytes} bytes; shape {tuple(tensor.shape)} of {entry.name} needs {needed}")
    return np.frombuffer(data, np.uint8) if needed else np.empty(0, np.uint8), entry.code
