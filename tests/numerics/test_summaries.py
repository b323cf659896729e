"""Max, Min, Mean and Norm by the kernels and by their twin, against exact arithmetic."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from msprobe.numerics import CODE, DTYPES, ITEMSIZE

from . import exact
from .exact import COMPLEX, INTEGER, REAL, close

quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def run(numeric, tensor: torch.Tensor) -> tuple:
    return numeric.summarize(tensor.data_ptr(), CODE[str(tensor.dtype).removeprefix("torch.")], tensor.numel())


def check(got: tuple, values: list, rel: float = 2e-15) -> None:
    high, low, mean, norm = exact.summary(values)
    sizes = [abs(v) for v in values]
    if isinstance(values[0], complex):
        assert close(got[0], high)
        assert close(got[1], low)
    else:
        assert (got[0], got[1]) == (high, low)
    assert close(got[2], mean, max(sizes), rel), (got[2], mean)
    assert close(got[3], norm, 0.0, rel), (got[3], norm)


@pytest.mark.parametrize("name", REAL + COMPLEX)
@quick
@given(data=st.data())
def test_any_bits_of_floating_types(numeric, name: str, data: st.DataObject) -> None:
    numel = data.draw(st.integers(1, 50))
    raw = data.draw(st.binary(min_size=numel * ITEMSIZE[name], max_size=numel * ITEMSIZE[name]))
    tensor = exact.from_bits(raw, name)
    values = exact.numbers_of(tensor)
    got = run(numeric, tensor)
    parts = [p for v in values for p in ((v.real, v.imag) if isinstance(v, complex) else (v,))]
    if any(math.isnan(p) for p in parts):
        assert all(math.isnan(g) for g in got)
    elif any(math.isinf(p) for p in parts):
        assert got[3] == math.inf
        if name in COMPLEX:
            assert got[0] == got[2] == math.inf
        else:
            assert (got[0], got[1]) == (max(values), min(values))
            assert str(got[2]) == str(sum(v for v in values if math.isinf(v)))
    else:
        check(got, values)


@pytest.mark.parametrize("name", INTEGER)
@quick
@given(data=st.data())
def test_any_integers(numeric, name: str, data: st.DataObject) -> None:
    numel = data.draw(st.integers(1, 50))
    raw = data.draw(st.binary(min_size=numel * ITEMSIZE[name], max_size=numel * ITEMSIZE[name]))
    tensor = exact.from_bits(raw, name)
    values = [int(v) for v in np.frombuffer(raw, name)]
    got = run(numeric, tensor)
    assert (got[0], got[1]) == (max(values), min(values))
    assert type(got[0]) is int
    assert type(got[1]) is int
    assert close(got[2], sum(values) / len(values), rel=3e-16)  # of the exact mean: cancelled terms leave no trace
    assert close(got[3], exact.summary(values)[3])


@pytest.mark.parametrize("numel", [1, 15, 16, 17, 255, 256, 257, 4095, 16383, 16384, 16385, 50_001])
@pytest.mark.parametrize("name", [n for n in DTYPES if n != "bool"])
def test_sizes_around_lanes_chunks_and_blocks(numeric, name: str, numel: int) -> None:
    tensor = exact.finite_random(name, numel, seed=numel)
    values = exact.numbers_of(tensor)
    if tensor.dtype.is_complex:
        values = [abs(v) for v in values]
    got = run(numeric, tensor)
    assert got[0] == pytest.approx(max(values), rel=1e-15)
    assert got[1] == pytest.approx(min(values), rel=1e-15)
    assert close(got[2], math.fsum(values) / numel, max(map(abs, values)), 1e-15)
    assert got[3] == pytest.approx(math.sqrt(math.fsum(float(v) * float(v) for v in values)), rel=1e-13)


@pytest.mark.parametrize("name", DTYPES)
def test_no_elements_have_no_statistics(numeric, name: str) -> None:
    assert numeric.summarize(0, CODE[name], 0) == (None, None, None, None)
    assert numeric.summarize_strided(0, CODE[name], (3, 0), (0, 1)) == (None, None, None, None)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [([True], (True, True)), ([False], (False, False)), ([False] * 40_000 + [True], (True, False)), ([True] * 40_000, (True, True))],
)
def test_bool_has_any_and_all(numeric, values: list[bool], wanted: tuple[bool, bool]) -> None:
    got = run(numeric, torch.tensor(values))
    assert got == (*wanted, None, None)
    assert type(got[0]) is bool
    assert type(got[1]) is bool


def test_norm_of_a_single_number_is_its_size(numeric) -> None:
    for value in (-2.5, 1e-300, -1.7e308, 5e-324, 0.1):
        assert run(numeric, torch.tensor(value, dtype=torch.float64)) == (value, value, value, abs(value))
    assert run(numeric, torch.tensor(-7)) == (-7, -7, -7.0, 7.0)
    assert run(numeric, torch.tensor(3 - 4j)) == (5.0, 5.0, 5.0, 5.0)


@pytest.mark.parametrize("where", [0, 15, 16, 255, 256, 16_384, 40_000])
@pytest.mark.parametrize("name", REAL + COMPLEX)
def test_one_nan_anywhere_makes_all_four_nan(numeric, name: str, where: int) -> None:
    if name == "float8_e8m0fnu":
        tensor = torch.full((40_001,), 127, dtype=torch.uint8)
        tensor[where] = 255
        tensor = tensor.view(torch.float8_e8m0fnu)
    else:
        numbers = torch.ones(40_001, dtype=torch.complex64 if name in COMPLEX else torch.float32)
        numbers[where] = complex(math.inf, math.nan) if name in COMPLEX else math.nan
        tensor = numbers.to(getattr(torch, name))
    assert all(math.isnan(v) for v in run(numeric, tensor))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "float8_e5m2"])
def test_infinities(numeric, name: str) -> None:
    dtype = getattr(torch, name)
    inf = math.inf
    assert run(numeric, torch.tensor([1.0, inf, 2.0]).to(dtype)) == (inf, 1.0, inf, inf)
    assert run(numeric, torch.tensor([1.0, -inf, 2.0]).to(dtype)) == (2.0, -inf, -inf, inf)
    high, low, mean, norm = run(numeric, torch.tensor([-inf, 0.0, inf]).to(dtype))
    assert (high, low, norm) == (inf, -inf, inf)
    assert math.isnan(mean)


@pytest.mark.parametrize(
    "values",
    [
        [1e200, 1e200],
        [1e-200] * 4,
        [1.7e308] * 3 + [-1.7e308],
        [-1.7e308] * 1000,
        [5e-324, -5e-324, 1e-320],
        [1e-160] * 100,
        [1e-310, 1e300],
        [complex(1e200, -1e200), complex(1e-200, 0)],
        [complex(1e-200, 1e-220)] * 5,
        [complex(1e308, 1e308), complex(0, 0)],
        [complex(5e-324, 0)] * 3,
    ],
)
def test_squares_that_leave_the_range_of_float64(numeric, values: list) -> None:
    tensor = torch.tensor(values, dtype=torch.complex128 if isinstance(values[0], complex) else torch.float64)
    check(run(numeric, tensor), values)


def test_half_precision_norm_does_not_overflow(numeric) -> None:
    assert run(numeric, torch.full((2000,), 60000.0, dtype=torch.float16))[3] == pytest.approx(60000.0 * math.sqrt(2000), rel=1e-15)


def test_sums_of_64_bit_integers_are_exact(numeric) -> None:
    top, bottom = 2**63 - 1, -(2**63)
    assert run(numeric, torch.full((20_000,), top))[2] == float(top)
    assert run(numeric, torch.full((20_000,), bottom))[2] == float(bottom)
    assert run(numeric, torch.tensor([top, bottom, top, bottom]))[2] == -0.5
    unsigned = torch.from_numpy(np.full(20_000, 2**64 - 1, np.uint64))
    assert run(numeric, unsigned)[:3] == (2**64 - 1, 2**64 - 1, float(2**64 - 1))
    assert run(numeric, torch.tensor([2**62, -(2**62), 3, 0]))[2] == 0.75


def test_mean_stays_between_min_and_max(numeric) -> None:
    for value in (0.1, 1 / 3, -0.7):
        high, low, mean, _ = run(numeric, torch.full((12_345,), value, dtype=torch.float64))
        assert high == low == mean == value


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("offset", [1, 3, 4, 8])
def test_memory_need_not_be_aligned(numeric, name: str, offset: int) -> None:
    tensor = exact.finite_random(name, 3000)
    moved = np.frombuffer(bytes(offset) + bytes(tensor.view(torch.uint8).numpy()), np.uint8)
    assert numeric.summarize(moved.ctypes.data + offset, CODE[name], 3000) == run(numeric, tensor)


def test_wrong_arguments_are_named(numeric) -> None:
    ok = torch.zeros(4)
    with pytest.raises(ValueError, match="address 0"):
        numeric.summarize(0, CODE["float32"], 4)
    with pytest.raises(ValueError, match="99"):
        numeric.summarize(ok.data_ptr(), 99, 4)
    with pytest.raises(ValueError, match="-4"):
        numeric.summarize(ok.data_ptr(), CODE["float32"], -4)
    with pytest.raises(ValueError, match="2 dimensions and strides has 1"):
        numeric.summarize_strided(ok.data_ptr(), CODE["float32"], (2, 2), (1,))
    with pytest.raises(ValueError, match="dimension 1 has stride -1"):
        numeric.summarize_strided(ok.data_ptr(), CODE["float32"], (2, 2), (2, -1))
    with pytest.raises(TypeError):
        numeric.summarize("x", CODE["float32"], 4)
