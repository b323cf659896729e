"""A permutation, told from a change within rounding by the statistics that our own kernels give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from msprobe import numerics
from msprobe.comparison.judging.reordered import is_reordered
from msprobe.comparison.rows import calls_of

from ..dumps import module, statistics

RANDOM = np.random.default_rng(1)
WEIGHT = (RANDOM.normal(size=(96, 96)) * 0.05).astype(np.float32)


def found(target: Any, golden: Any) -> bool:
    rows = []
    for array in (target, golden):
        record = statistics(*numerics.summarize_array(array), shape=list(array.shape))
        rows.append(next(row for row in calls_of({"Module.a.Linear.forward.0": module([], [], weight=record)}, "")[0].rows))
    size = max(abs(a - b) / abs(b) for a, b in zip(rows[0].statistics, rows[1].statistics, strict=True))
    return is_reordered(rows[0], rows[1], size)


@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_permutations(spread: float) -> None:
    """Of values all of one size, and spread over ten orders of magnitude; where even the last digit of a sum is the same none shows."""
    values = (WEIGHT * np.exp(RANDOM.normal(size=WEIGHT.shape) * spread)).astype(np.float32)
    permuted = [np.ascontiguousarray(values.T), *(RANDOM.permutation(values.ravel()).reshape(values.shape) for _ in range(8))]
    changed = [array for array in permuted if numerics.summarize_array(array) != numerics.summarize_array(values)]
    assert changed and all(found(array, values) for array in changed)


@pytest.mark.parametrize("value", [1e-3, 1e-4, 1e-5, 1e-6])
def test_one_small_value_rounded_otherwise(value: float) -> None:
    golden = WEIGHT.copy()
    golden[3, 3] = value
    target = golden.copy()
    target[3, 3] = np.nextafter(golden[3, 3], np.float32(9))
    assert not found(target, golden)
