from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe.comparison.mapping.arrays import CannotCompose, composed, shape_of
from msprobe.comparison.mapping.rules import How, Select
from msprobe.comparison.mapping.statistics import contradiction, derived
from msprobe.comparison.rows import Row
from msprobe.format.tensor_file import TensorData
from msprobe.numerics import to_float64


def data(array: np.ndarray, dtype: str | None = None) -> TensorData:  # type: ignore[type-arg]
    array = np.asarray(array)
    return TensorData(dtype or str(array.dtype), array.shape, memoryview(array.tobytes()))


def values(tensor: TensorData) -> np.ndarray:  # type: ignore[type-arg]
    return to_float64(tensor.data, tensor.dtype).reshape(tensor.shape)


A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.arange(10, 14, dtype=np.float32).reshape(2, 2)


def test_joined_tensors_keep_their_bits() -> None:
    whole = composed([data(A), data(B)], How(concat=-1), 2, None)
    assert whole.dtype == "float32" and np.array_equal(values(whole), np.concatenate([A, B], -1))
    odd = np.array([0x7FC1, 0xFFC2], dtype=np.uint16)  # two NaN of bfloat16 with payloads
    joined = composed([data(odd, "bfloat16"), data(odd, "bfloat16")], How(concat=0), 1, None)
    assert bytes(joined.data) == odd.tobytes() * 2


def test_sums_are_made_in_float64() -> None:
    whole = composed([data(np.float16([60000.0])), data(np.float16([60000.0]))], How(sum=True), 1, None)
    assert whole.dtype == "float64" and values(whole).tolist() == [120000.0]
    assert values(composed([data(np.array([True])), data(np.array([True]))], How(sum=True), 1, None)).tolist() == [2.0]


def test_selected_turned_and_flattened() -> None:
    cube = np.arange(24, dtype=np.int64).reshape(2, 3, 4)
    cases = [
        (How(select=Select(1, index=2)), cube[:, 2]),
        (How(select=Select(-1, start=1, stop=3)), cube[..., 1:3]),
        (How(transpose=(0, 2)), cube.swapaxes(0, 2)),
        (How(select=Select(0, index=1), transpose=(-2, -1)), cube[1].T),
    ]
    for how, expected in cases:
        whole = composed([data(cube)], how, expected.ndim, None)
        assert np.array_equal(values(whole), expected)
        assert shape_of([cube.shape], how, expected.ndim) == expected.shape
    assert composed([data(cube)], How(flatten=(0, 1)), 2, None).shape == (6, 4)
    assert composed([data(cube)], How(flatten=(0, 1)), 3, None).shape == (2, 3, 4)  # the other side is no flatter


def test_under_a_mask_padding_is_left_out() -> None:
    mask = data(np.array([[1, 1, 0]]))
    kept = composed([data(np.arange(6.0).reshape(1, 3, 2))], How(mask="m"), 3, mask)
    assert values(kept).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    with pytest.raises(CannotCompose, match="does not fit"):
        composed([data(A)], How(mask="m"), 2, mask)


@pytest.mark.parametrize(
    "shapes, how",
    [
        ([(2, 3), (3, 3)], How(concat=1)),
        ([(2, 3), (2, 3)], How(concat=2)),
        ([(2, 3), (2, 4)], How(sum=True)),
        ([(2, 3)], How(select=Select(2, index=0))),
        ([(2, 3)], How(select=Select(0, index=5))),
        ([(2, 3)], How(transpose=(0, 5))),
    ],
)
def test_what_does_not_fit_is_told(shapes: list[tuple[int, ...]], how: How) -> None:
    with pytest.raises(CannotCompose):
        shape_of(shapes, how, 2)
    with pytest.raises(CannotCompose):
        composed([data(np.zeros(shape)) for shape in shapes], how, 2, None)


def row(array: np.ndarray) -> Row:  # type: ignore[type-arg]
    statistics = (
        (float(array.max()), float(array.min()), math.fsum(array.flat) / array.size, math.hypot(*array.flat)) if array.size else (None,) * 4
    )
    return Row("n", "output.0", "output", "tensor", "torch.float64", str(list(array.shape)), "False", statistics, array.size, None, None)


@given(st.lists(st.lists(st.floats(-1e6, 1e6), max_size=6), min_size=1, max_size=4))
def test_statistics_of_the_whole(parts: list[list[float]]) -> None:
    whole = row(np.array([value for part in parts for value in part]))
    found, reason, _ = derived([row(np.array(part)) for part in parts], How(concat=0))
    assert reason == ""
    if whole.value:
        assert found[:2] == whole.statistics[:2]
        assert np.allclose(found[2:], whole.statistics[2:], rtol=1e-12, atol=1e-9)
    elif len(parts) > 1:
        assert found == (None,) * 4


def test_statistics_that_do_not_follow_say_why() -> None:
    for how, word in ((How(sum=True), "sum"), (How(select=Select(0, index=0)), "part"), (How(mask="m"), "mask")):
        found, reason, _ = derived([row(A), row(A)], how)
        assert found[:2] == (None, None) and found[3] is None and word in reason and "record both runs with task tensor" in reason
        assert how.sum or found[2] is None
    assert derived([row(A)], How(transpose=(0, 1)))[:2] == (row(A).statistics, "")


@given(st.integers(1, 8), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_the_statistics_of_a_sum_lie_within_their_bounds(size: int, terms: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    parts = [random.standard_normal(size) * 10.0 ** random.integers(-3, 4) for _ in range(terms)]
    found, _, bounds = derived([row(part) for part in parts], How(sum=True))
    whole = row(np.sum(parts, axis=0))
    assert math.isclose(found[2], whole.statistics[2], rel_tol=1e-9, abs_tol=1e-9 * sum(np.abs(part).max() for part in parts))
    assert contradiction(whole, bounds, 1e-9) == (0.0, "")


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_the_statistics_of_a_part_lie_within_those_of_the_whole(size: int, seed: int) -> None:
    whole = np.random.default_rng(seed).standard_normal((size, 4))
    bounds = derived([row(whole)], How(select=Select(1, start=1, stop=3))).bounds
    assert contradiction(row(whole[:, 1:3]), bounds, 1e-9) == (0.0, "")
    size_of_it, said = contradiction(row(whole * 9), bounds, 1e-9)
    assert size_of_it > 1 and said


@pytest.mark.parametrize(
    "statistics, word",
    [
        ((9.0, -1.0, 0.0, 3.0), "Max must be between"),
        ((1.0, -9.0, 0.0, 3.0), "Min must be between"),
        ((1.0, -1.0, 0.5, 3.0), "Mean must be 0.0 and is 0.5"),
        ((1.0, -1.0, 0.0, 99.0), "Norm must be between"),
        ((math.nan, -1.0, 0.0, 3.0), "Max must be between"),
        ((math.inf, -1.0, 0.0, 3.0), "Max must be between"),
        ((10**400, -1, 0.0, 3.0), "Max must be between"),
    ],
)
def test_what_cannot_be_a_sum_of_the_terms_is_a_contradiction(statistics: tuple[float, ...], word: str) -> None:
    terms = [row(np.array([1.0, -1.0, 0.0, 0.0])), row(np.array([0.0, 0.0, 1.0, -1.0]))]
    bounds = derived(terms, How(sum=True)).bounds
    size, said = contradiction(terms[0]._replace(statistics=statistics), bounds, 1e-6)
    assert size > 0 and word in said


def test_terms_without_numbers_have_no_bounds() -> None:
    for odd in ((math.nan,) * 4, (None,) * 4, (True, False, None, None)):
        found, reason, bounds = derived([row(A), row(A)._replace(statistics=odd)], How(sum=True))
        assert found == (None,) * 4 and reason and bounds == ()


def test_bool_parts_have_extremes_and_no_mean() -> None:
    part = row(A)._replace(statistics=(True, False, None, None))
    assert derived([part, part], How(concat=0))[:2] == ((True, False, None, None), "")


def test_nan_of_a_part_is_nan_of_the_whole() -> None:
    odd = row(A)._replace(statistics=(math.nan,) * 4)
    found, _, _ = derived([row(A), odd], How(concat=0))
    assert all(value != value for value in found)


def test_a_single_number_stays_one() -> None:
    assert composed([data(np.float32(3.0))], How(), 0, None).shape == ()
