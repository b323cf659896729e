"""Tensors compared a piece at a time: what a comparison of all at once gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from msprobe.format.tensor_file import TensorData
from msprobe.numerics import compare_arrays, pairs


def reader(data: bytes) -> Callable[[memoryview, int], None]:
    def read(buffer: memoryview, at: int) -> None:
        buffer[:] = data[at : at + len(buffer)]

    return read


def both(a: Any, b: Any, dtypes: tuple[str, str]) -> tuple[pairs.PairMetrics, pairs.PairMetrics | None]:
    raw = a.tobytes(), b.tobytes()
    whole = compare_arrays(*(TensorData(dtype, a.shape, memoryview(data)) for dtype, data in zip(dtypes, raw, strict=True)))
    return whole, pairs.compare_pieces(dtypes, a.size, (reader(raw[0]), reader(raw[1])))


DTYPES = [("float32", "float32"), ("float32", "float64"), ("int64", "int64"), ("complex64", "float32"), ("bool", "uint8")]


@pytest.mark.parametrize("dtypes", DTYPES)
@pytest.mark.parametrize("size", [1, 99, 100, 101, 1234])
def test_like_the_whole(monkeypatch: pytest.MonkeyPatch, dtypes: tuple[str, str], size: int) -> None:
    monkeypatch.setattr(pairs, "_PIECE", 100)
    random = np.random.default_rng(size)
    a, b = ((random.standard_normal(size) * 3).astype(dtype) for dtype in dtypes)
    if dtypes[0] == "float32" and size > 150:
        a[[3, 120]] = math.nan
        b[[3, 130, 140]] = math.nan, math.inf, -math.inf
        a[140] = -math.inf
    whole, pieces = both(a, b, dtypes)
    assert pieces is not None
    assert asdict(pieces) == pytest.approx(asdict(whole), rel=1e-14, nan_ok=True)
    counts = ("numel", "equal", "nan_differ", "inf_differ", "nonfinite_equal", "within_1e3", "within_5e3")
    assert [getattr(pieces, name) for name in counts] == [getattr(whole, name) for name in counts]


@pytest.mark.parametrize("value", [1e300, 1e-300])
def test_sums_beyond_float64_need_the_whole(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    monkeypatch.setattr(pairs, "_PIECE", 2)
    a = np.array([1.0, 2.0, value, value])
    assert both(a, a * 2, ("float64", "float64"))[1] is None


def test_a_total_beyond_float64_needs_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "_PIECE", 1)
    a = np.full(4, 1.2e154)
    assert both(a, a / 2, ("float64", "float64"))[1] is None
