from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from msprobe.comparison.reports import histograms
from msprobe.comparison.reports.histograms import OCTAVES, distribution
from msprobe.format.tensor_file import TensorData


def held(values: Any, dtype: str | None = None) -> TensorData:
    array = np.ascontiguousarray(values)
    return TensorData(dtype or str(array.dtype), array.shape, array.tobytes())


def test_each_element_is_counted_once() -> None:
    golden = np.array([1.0, 2.0, 0.0, np.nan, np.inf, np.nan, 4.0, -np.inf])
    target = np.array([1.5, 2.0, 0.25, np.nan, np.inf, 1.0, np.inf, np.inf])
    found = distribution(held(target), held(golden))
    assert (found.numel, found.equal, found.nonfinite) == (8, 3, 3)
    assert found.sizes == {0: 1, -1: 1}  # 0.5 lies in [2^-1, 2^0), 0.25 in [2^-2, 2^-1)
    assert found.grid == {(1, 0): 1}
    assert found.zeros == {-1: 1}
    assert found.worst == (((0,), 1.5, 1.0), ((2,), 0.25, 0.0))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64", "uint8", "bool"])
def test_dtypes(dtype: str) -> None:
    found = distribution(held(np.array([0, 1, 1], dtype)), held(np.array([0, 0, 1], dtype)))
    assert (found.equal, found.zeros, found.worst) == (2, {1: 1}, (((1,), 1.0, 0.0),))


def test_narrow_dtypes_that_numpy_has_not() -> None:
    one, two = np.array([0x3F80], np.uint16), np.array([0x4000], np.uint16)
    assert distribution(held(two, "bfloat16"), held(one, "bfloat16")).grid == {(1, 1): 1}
    assert distribution(held(np.array([0x40], np.uint8), "float8_e4m3fn"), held(np.array([0x38], np.uint8), "float8_e4m3fn")).grid == {
        (1, 1): 1
    }


def test_complex_numbers_count_by_magnitude() -> None:
    found = distribution(held(np.array([3 + 4j])), held(np.array([0j])))
    assert found.zeros == {3: 1}  # |3 + 4i| = 5
    assert found.worst == (((0,), "(3+4j)", "0j"),)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_small_and_empty(shape: tuple[int, ...]) -> None:
    found = distribution(held(np.zeros(shape)), held(np.zeros(shape)))
    assert (found.numel, found.equal, found.sizes, found.worst) == (int(np.prod(shape)), int(np.prod(shape)), {}, ())


def test_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="differ"):
        distribution(held(np.zeros(2)), held(np.zeros(3)))


def test_blocks_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    target, golden = held(generator.normal(size=(7, 101))), held(generator.normal(size=(7, 101)))
    whole = distribution(target, golden)
    monkeypatch.setattr(histograms, "BLOCK", 64)
    assert distribution(target, golden) == whole
    assert sum(whole.sizes.values()) == 707 == sum(whole.grid.values())


def test_the_smallest_share_a_bin() -> None:
    golden = np.ones(400)
    target = golden + np.logspace(-300, 3, 400)
    target[:200] = 0.0
    golden[:200] = np.logspace(-320, 0, 200)
    found = distribution(held(target), held(golden))
    rows = [row for _, row in found.grid]
    assert max(rows) - min(rows) <= OCTAVES
    assert sum(found.grid.values()) == 400 - found.equal


def test_the_range_of_float64_is_no_limit() -> None:
    found = distribution(held(np.array([1.7e308])), held(np.array([-1.7e308])))
    assert list(found.sizes) == [1024]
