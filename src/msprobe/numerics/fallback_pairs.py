"""The pairwise metrics in numpy alone, for where the C kernels could not be built: the same meaning, slower."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .decode import decode
from .dtypes import DType, by_code
from .fallback import stored_at

Array = npt.NDArray[Any]
_CHUNK = 1 << 16
_SAFE_LOW = 2.0**-900


class _Part(NamedTuple):
    """One chunk, without the positions where a side is not finite. lo: what float64 cannot hold of a 64-bit integer."""

    a: Array
    b: Array
    lo_a: Array | float
    lo_b: Array | float

    def distances(self) -> Array:
        difference = (self.a - self.b) + (self.lo_a - self.lo_b)
        return _size(difference)


def compare_pair(address_a: int, code_a: int, address_b: int, code_b: int, numel: int) -> tuple[Any, ...]:
    """The twin of the kernel: counts, sums scaled by powers of two, maxima, exponents; ``_kernels.compare_pair.__doc__`` lists them."""
    types = by_code(code_a), by_code(code_b)
    if numel < 0:
        raise ValueError(f"numel is {numel}, which no tensor has")
    if numel == 0:
        return (0,) * 6 + (0.0,) * 8 + (0,) * 3
    stored = [stored_at(at, t, numel * t.itemsize) for at, t in zip((address_a, address_b), types, strict=True)]
    eps = 2.0**-23 if all(_narrow(t) for t in types) else 2.0**-52
    with np.errstate(all="ignore"):
        return _Measurement(stored, types, eps).run()


def _narrow(dtype: DType) -> bool:
    return dtype.kind in "fc" and dtype.name not in ("float64", "complex128")


def _size(values: Array) -> Array:
    return np.hypot(values.real, values.imag) if values.dtype.kind == "c" else np.abs(values)


def _low_part(stored: Array, high: Array) -> Array | float:
    """x - float64(x) of 64-bit integers, exact; 0.0 for every other type."""
    if stored.dtype.kind not in "ui" or stored.dtype.itemsize < 8:
        return 0.0
    top = 2.0 ** (63 if stored.dtype.kind == "i" else 64)
    at_top = high >= top
    back = np.where(at_top, 0.0, high).astype(stored.dtype)
    below_top = (np.iinfo(stored.dtype).max - np.where(at_top, stored, 0)).astype(np.float64) + 1.0
    return np.where(at_top, -below_top, (stored - back).view(np.int64).astype(np.float64))


class _Measurement:
    def __init__(self, stored: list[Array], types: tuple[DType, DType], eps: float) -> None:
        self.stored, self.types, self.eps = stored, types, eps
        self.equal = self.nan_differ = self.inf_differ = self.nonfinite_equal = 0

    def parts(self) -> Iterator[_Part]:
        """The chunks; counts what is not finite."""
        self.nan_differ = self.inf_differ = self.nonfinite_equal = 0
        for k in range(0, self.stored[0].size, _CHUNK):
            raw_a, raw_b = (s[k : k + _CHUNK] for s in self.stored)
            a, b = decode(raw_a, self.types[0]), decode(raw_b, self.types[1])
            lo_a, lo_b = _low_part(raw_a, a), _low_part(raw_b, b)
            finite = np.isfinite(a) & np.isfinite(b)
            if not finite.all():
                nan_a, nan_b = np.isnan(a), np.isnan(b)
                same = ~finite & ((nan_a & nan_b) | (~nan_a & ~nan_b & (a == b)))
                self.nan_differ += int(np.count_nonzero(nan_a != nan_b))
                self.nonfinite_equal += int(np.count_nonzero(same))
                self.inf_differ += int(np.count_nonzero(~finite & ~same & (nan_a == nan_b)))
                a, b = a[finite], b[finite]
                lo_a = lo_a if isinstance(lo_a, float) else lo_a[finite]
                lo_b = lo_b if isinstance(lo_b, float) else lo_b[finite]
            if a.size:
                yield _Part(a, b, lo_a, lo_b)

    def run(self) -> tuple[Any, ...]:
        max_a = max_b = max_abs = 0.0
        for part in self.parts():
            distances = part.distances()
            max_a, max_b = max(max_a, float(_size(part.a).max())), max(max_b, float(_size(part.b).max()))
            max_abs = max(max_abs, float(distances.max()))
            self.equal += int(np.count_nonzero(distances == 0))
        exponents = (0, 0, 0)
        sums = self.sums(exponents)
        if any(s == math.inf or (big > 0 and s < _SAFE_LOW) for s, big in zip(sums[1:4], (max_a, max_b, max_abs), strict=True)):
            exponents = (_exponent(max_a), _exponent(max_b), _exponent(max_abs))
            sums = self.sums(exponents)
        dot, sumsq_a, sumsq_b, sumsq_diff, max_rel, within_1e3, within_5e3 = sums
        counts = (self.equal + self.nonfinite_equal, self.nan_differ, self.inf_differ, self.nonfinite_equal, within_1e3, within_5e3)
        return (*counts, dot, sumsq_a, sumsq_b, sumsq_diff, max_abs, max_rel, max_a, max_b, *exponents)

    def sums(self, exponents: tuple[int, int, int]) -> tuple[float, float, float, float, float, int, int]:
        """Dot product and sums of squares in units of the exponents; the largest relative difference; counts below 0.001 and 0.005."""
        scale_a, scale_b, scale_d = (math.ldexp(1.0, -e) for e in exponents)
        dot = sumsq_a = sumsq_b = sumsq_diff = max_rel = 0.0
        within_1e3 = within_5e3 = 0
        for part in self.parts():
            a, b = part.a * scale_a, part.b * scale_b
            dot += float((a.real * b.real + a.imag * b.imag).sum())
            sumsq_a += float(np.square(_size(a)).sum())
            sumsq_b += float(np.square(_size(b)).sum())
            distance, size_b = part.distances(), _size(part.b)
            relative = distance / np.where(size_b == 0, self.eps, size_b)
            distance_scaled = distance * scale_d
            beyond = np.isinf(distance) | np.isinf(size_b)
            if beyond.any():  # a difference that float64 cannot hold is measured in quarters
                quarter = _size(0.25 * part.a - 0.25 * part.b)
                relative = np.where(beyond, np.where(size_b == 0, np.inf, quarter / _size(0.25 * part.b)), relative)
                distance_scaled = np.where(beyond, quarter * scale_d * 4.0, distance_scaled)
            sumsq_diff += float(np.square(distance_scaled).sum())
            max_rel = max(max_rel, float(relative.max()))
            within_1e3 += int(np.count_nonzero(relative < 0.001))
            within_5e3 += int(np.count_nonzero(relative < 0.005))
        return dot, sumsq_a, sumsq_b, sumsq_diff, max_rel, within_1e3, within_5e3


def _exponent(big: float) -> int:
    return max(-1000, min(1000, math.frexp(big)[1])) if big < math.inf else 1000
