"""How the errors of two tensors are distributed: their sizes, and their sizes against those of the values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from msprobe import numerics
from msprobe.format.tensor_file import TensorData

BLOCK = 1 << 20
"""Elements taken at a time: what is needed beside the two tensors is some tens of megabytes, whatever their size."""

OCTAVES = 80
"""Powers of two below the largest that have a bin of their own (24 decades); what is smaller lies in the lowest bin."""

WORST = 5

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Distribution:
    """Errors |target - golden| of two tensors of one shape, in float64; complex elements by magnitude.

    Attributes:
        numel: elements. Of them `equal` are equal (NaN and NaN, too), `nonfinite` are not equal and not finite on a side.
            All others are counted.
        sizes: exponent -> elements whose error lies in [2^(exponent-1), 2^exponent).
        grid: (exponent of |golden|, exponent of the error) -> elements; `zeros`: exponent of the error -> elements whose golden value is 0.
        worst: the largest errors: index, target, golden.
    """

    numel: int
    equal: int
    nonfinite: int
    sizes: dict[int, int]
    grid: dict[tuple[int, int], int]
    zeros: dict[int, int]
    worst: tuple[tuple[tuple[int, ...], Any, Any], ...]


def distribution(target: TensorData, golden: TensorData) -> Distribution:
    """Raises ValueError where the shapes differ."""
    if target.shape != golden.shape:
        raise ValueError(f"shapes {target.shape} and {golden.shape} differ")
    numel = int(np.prod(target.shape, dtype=np.int64))
    equal = nonfinite = 0
    grid: Counter[tuple[int, int]] = Counter()
    zeros: Counter[int] = Counter()
    worst: list[tuple[float, int, Any, Any]] = []
    for start in range(0, numel, BLOCK):
        a, b = (_block(side, start) for side in (target, golden))
        with np.errstate(all="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            finite = np.isfinite(a) & np.isfinite(b)
            error = np.abs(a - b)
        equal += int(np.count_nonzero(same))
        nonfinite += int(np.count_nonzero(~finite & ~same))
        counted = np.flatnonzero(finite & ~same & (error > 0))
        if not counted.size:
            continue
        sizes = error[counted]
        magnitude = np.abs(b[counted])
        rows, columns = np.frexp(np.minimum(sizes, np.finfo(float).max))[1], np.frexp(magnitude)[1]
        zero = magnitude == 0
        zeros.update(_counts(rows[zero]))
        grid.update(_pairs(columns[~zero], rows[~zero]))
        top = np.argpartition(sizes, -WORST)[-WORST:] if sizes.size > WORST else np.arange(sizes.size)
        worst += [(float(sizes[i]), start + int(counted[i]), _plain(a[counted[i]]), _plain(b[counted[i]])) for i in top]
        worst = sorted(worst, key=lambda item: (-item[0], item[1]))[:WORST]
    grid, zeros = _clipped(grid, zeros)
    sizes_of: Counter[int] = Counter(zeros)
    for (_, row), count in grid.items():
        sizes_of[row] += count
    places = tuple((tuple(int(i) for i in np.unravel_index(index, target.shape)), ours, theirs) for _, index, ours, theirs in worst)
    return Distribution(numel, equal, nonfinite, dict(sizes_of), dict(grid), dict(zeros), places)


def _block(tensor: TensorData, start: int) -> npt.NDArray[Any]:
    size = numerics.ITEMSIZE[tensor.dtype]
    return numerics.to_float64(memoryview(tensor.data).cast("B")[start * size : (start + BLOCK) * size], tensor.dtype)


def _counts(exponents: npt.NDArray[Any]) -> dict[int, int]:
    values, counts = np.unique(exponents, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _pairs(columns: npt.NDArray[Any], rows: npt.NDArray[Any]) -> dict[tuple[int, int], int]:
    if not rows.size:
        return {}
    low, width = int(rows.min()), int(rows.max()) - int(rows.min()) + 1
    left = int(columns.min())
    flat = np.bincount((columns.astype(np.int64) - left) * width + (rows - low))
    found = np.flatnonzero(flat)
    return {(left + int(i) // width, low + int(i) % width): int(flat[i]) for i in found}


def _clipped(grid: Counter[tuple[int, int]], zeros: Counter[int]) -> tuple[Counter[tuple[int, int]], Counter[int]]:
    if not grid and not zeros:
        return grid, zeros
    bottom = max([row for _, row in grid] + list(zeros)) - OCTAVES
    left = max([column for column, _ in grid], default=0) - OCTAVES
    kept: Counter[tuple[int, int]] = Counter()
    for (column, row), count in grid.items():
        kept[max(column, left), max(row, bottom)] += count
    lowest: Counter[int] = Counter()
    for row, count in zeros.items():
        lowest[max(row, bottom)] += count
    return kept, lowest


def _plain(value: Any) -> Any:
    """A number as JSON can hold it; a complex one as text."""
    if isinstance(value, (complex, np.complexfloating)):
        return str(complex(value))
    return float(value)
