"""What a cast alone does to Max, Min, Mean and Norm, and what it does not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comparison.dumps import statistics
from msprobe.comparison.judging.casts import _to_bfloat16, is_rounded, moved, said
from msprobe.comparison.rows import Row, calls_of

DTYPES = {"float16": np.float16, "float32": np.float32}


def row(values: Any, dtype: str) -> Row:
    found = np.asarray(values, np.float64)
    four = float(found.max()), float(found.min()), float(found.mean()), float(np.sqrt((found**2).sum()))
    record = statistics(*four, dtype=dtype, shape=list(found.shape))
    return calls_of({"Torch.a.0.forward": {"input_args": [record], "input_kwargs": {}, "output": []}}, "")[0].rows[0]


def cast(values: Any, dtype: str) -> Any:
    if dtype == "bfloat16":
        return np.vectorize(_to_bfloat16)(np.asarray(values, np.float64))
    return np.asarray(values, DTYPES[dtype]).astype(np.float64)


NUMBERS = st.lists(st.floats(-6e4, 6e4) | st.floats(-1e-5, 1e-5), min_size=1, max_size=60)


@settings(max_examples=120, deadline=None)
@given(NUMBERS, st.sampled_from(["bfloat16", "float16"]))
def test_a_cast_never_moves_more(numbers: list[float], dtype: str) -> None:
    """Also numbers of which a narrow dtype keeps nothing but their nearest step."""
    fine = cast(numbers, "float32")
    target, golden = row(cast(fine, dtype), dtype), row(fine, "float32")
    assert moved(target, golden) is None and moved(golden, target) is None
    assert is_rounded(target, golden) and is_rounded(golden, target)


@settings(max_examples=100, deadline=None)
@given(NUMBERS)
def test_two_casts_of_the_same_numbers(numbers: list[float]) -> None:
    assert moved(row(cast(numbers, "bfloat16"), "bfloat16"), row(cast(numbers, "float16"), "float16")) is None


@pytest.mark.parametrize("draw", ["normal", "uniform"])
@pytest.mark.parametrize("seed", range(5))
def test_other_numbers_of_the_same_distribution(draw: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    make = random.standard_normal if draw == "normal" else lambda n: random.uniform(-0.1, 0.1, n)
    fine, other = make(1000), make(1000)
    assert moved(row(cast(other, "bfloat16"), "bfloat16"), row(fine, "float32")) is not None


@pytest.mark.parametrize(("index", "name"), [(0, "Max"), (1, "Min"), (2, "Mean"), (3, "Norm")])
def test_which_number_moved_is_said(index: int, name: str) -> None:
    numbers = [3.0, -2.0, 0.5, 4.0]
    other = list(numbers)
    other[index] *= 1.25

    def made(four: list[float], dtype: str) -> Row:
        record = statistics(*four, dtype=dtype, shape=[10])
        return calls_of({"Torch.a.0.forward": {"input_args": [record], "input_kwargs": {}, "output": []}}, "")[0].rows[0]

    assert said(made(numbers, "bfloat16"), made(numbers, "float32")) == ""
    text = said(made(other, "bfloat16"), made(numbers, "float32"))
    assert text.startswith(f"cast: more than rounding from one dtype to the other: its {name} differs by ")


@pytest.mark.parametrize("spoiled", [None, math.nan, math.inf, "text"])
def test_nothing_is_said_where_a_number_is_missing(spoiled: Any) -> None:
    def made(four: list[Any], dtype: str) -> Row:
        record = statistics(*four, dtype=dtype, shape=[10])
        return calls_of({"Torch.a.0.forward": {"input_args": [record], "input_kwargs": {}, "output": []}}, "")[0].rows[0]

    assert moved(made([9.0, -2.0, 0.5, spoiled], "bfloat16"), made([3.0, -2.0, 0.5, 4.0], "float32")) is None


@pytest.mark.parametrize("pair", [("float32", "float32"), ("int32", "float32"), ("complex64", "float32"), ("float4_e2m1fn_x2", "float32")])
def test_other_kinds_of_numbers_are_no_casts(pair: tuple[str, str]) -> None:
    assert moved(row([3.0, 5.0], pair[0]), row([1.0, 2.0], pair[1])) is None


@pytest.mark.parametrize("value", [1.0, 1.00390625, 1.01171875, -3.1415926, 1e-30, 3e38, 0.0, math.inf])
def test_bfloat16_as_torch_rounds(value: float) -> None:
    torch = pytest.importorskip("torch")
    assert _to_bfloat16(value) == torch.tensor(value, dtype=torch.float64).bfloat16().double().item()


def test_two_narrow_dtypes_do_not_tell() -> None:
    assert is_rounded(row([1.0], "bfloat16"), row([1.0], "float16")) is None
