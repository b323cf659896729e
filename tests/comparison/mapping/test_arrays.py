from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe.comparison.mapping.arrays import CannotCompose, composed, shape_of
from msprobe.comparison.mapping.rules import How, Select
from msprobe.comparison.mapping.statistics import combined
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
    found, reason = combined([row(np.array(part)) for part in parts], How(concat=0))
    assert reason == ""
    if whole.value:
        assert found[:2] == whole.statistics[:2]
        assert np.allclose(found[2:], whole.statistics[2:], rtol=1e-12, atol=1e-9)
    elif len(parts) > 1:
        assert found == (None,) * 4


def test_statistics_that_do_not_follow_say_why() -> None:
    for how, word in ((How(sum=True), "sum"), (How(select=Select(0, index=0)), "part"), (How(mask="m"), "mask")):
        found, reason = combined([row(A), row(A)], how)
        assert found == (None,) * 4 and word in reason
    assert combined([row(A)], How(transpose=(0, 1))) == (row(A).statistics, "")


def test_nan_of_a_part_is_nan_of_the_whole() -> None:
    odd = row(A)._replace(statistics=(math.nan,) * 4)
    found, _ = combined([row(A), odd], How(concat=0))
    assert all(value != value for value in found)
