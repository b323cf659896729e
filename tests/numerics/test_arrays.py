from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from msprobe.numerics import arrays, summarize_array


@pytest.fixture(params=["kernels", "twin"], autouse=True)
def both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "twin":
        monkeypatch.setattr(arrays, "_kernels", None)
    elif arrays._kernels is None:
        pytest.skip("the kernels are not built")


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16", "g", "G"])
def test_numeric_dtypes(dtype: str) -> None:
    array = np.arange(24).reshape(4, 6).astype(dtype)
    high, low, mean, norm = summarize_array(array)
    assert (high, low) == (array.max(), array.min()) if dtype == "?" else (23, 0)
    if dtype == "?":
        assert (mean, norm) == (None, None)
    else:
        assert (mean, norm) == (11.5, pytest.approx(math.sqrt(4324), rel=1e-15))
    assert type(high) is (bool if dtype == "?" else int if array.dtype.kind in "ui" else float)


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a[::2, 1::3],
        lambda a: a[::-1],
        lambda a: a[:, ::-2],
        lambda a: np.broadcast_to(a, (3, 20, 30)),
        lambda a: a[3, 4],
        lambda a: a[:0],
        lambda a: a.astype(a.dtype.newbyteorder()),
        lambda a: np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view(a.dtype),
        lambda a: np.rec.fromarrays([a, a], names="p,q").p,
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.complex128])
def test_layouts_and_byte_orders(view, dtype) -> None:
    array = view(np.random.default_rng(0).integers(-1000, 1000, (20, 30)).astype(dtype))
    got = summarize_array(array)
    if array.size == 0:
        assert got == (None,) * 4
        return
    exact = [abs(v) for v in array.ravel().tolist()] if array.dtype.kind == "c" else array.ravel().tolist()
    assert got[:2] == (max(exact), min(exact))
    assert got[2] == pytest.approx(math.fsum(exact) / len(exact), rel=1e-14)
    assert got[3] == pytest.approx(math.sqrt(math.fsum(v * v for v in exact)), rel=1e-14)


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", "b"]),
        np.array([object()]),
        np.array([b"x"]),
        np.array(["2020-01-01"], "M8[D]"),
        np.zeros(3, [("a", "f4"), ("b", "i4")]),
        np.array([]),
    ],
)
def test_what_has_no_numbers_has_four_none(array) -> None:
    assert summarize_array(array) == (None,) * 4


def test_numpy_scalars_and_subclasses() -> None:
    assert summarize_array(np.float32(-2.5)) == (-2.5, -2.5, -2.5, 2.5)
    masked = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    assert summarize_array(masked)[0] == 2.0  # the memory, not the mask


def test_longdouble_beyond_float64() -> None:
    if np.finfo(np.longdouble).max == sys.float_info.max:
        pytest.skip("longdouble is float64 here")
    assert summarize_array(np.array([np.finfo(np.longdouble).max]))[0] == math.inf
