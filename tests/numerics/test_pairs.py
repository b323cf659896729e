"""Pairwise metrics by the kernels and by their twin, against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from msprobe.numerics import DTYPES, ITEMSIZE, PairMetrics, compare_arrays, pairs

from . import exact
from .exact import close

inf, nan = math.inf, math.nan


class Stored(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    data: memoryview


def stored(tensor: torch.Tensor) -> Stored:
    raw = tensor.reshape(-1).view(torch.uint8).numpy() if tensor.numel() else np.empty(0, np.uint8)
    return Stored(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), memoryview(raw))


@pytest.fixture
def compare(numeric, monkeypatch):
    monkeypatch.setattr(pairs, "compare_pair", numeric.compare_pair)
    return lambda a, b: compare_arrays(stored(a), stored(b))


def within(relative_squared: list[Fraction], limit: Fraction) -> set[int]:
    """The right counts: one that rounds to the limit may fall on either side."""
    grey = Fraction(1, 10**15)
    surely = sum(r < (limit * (1 - grey)) ** 2 for r in relative_squared)
    return set(range(surely, sum(r < (limit * (1 + grey)) ** 2 for r in relative_squared) + 1))


def reference(a: list, b: list, eps: float) -> dict[str, Any]:
    """Of finite numbers, by exact arithmetic."""
    parts = [(Fraction(x.real), Fraction(x.imag), Fraction(y.real), Fraction(y.imag)) for x, y in zip(a, b, strict=True)]
    dot = sum(p * r + q * s for p, q, r, s in parts)
    squares_a, squares_b = [p * p + q * q for p, q, _, _ in parts], [r * r + s * s for _, _, r, s in parts]
    squares_d = [(p - r) ** 2 + (q - s) ** 2 for p, q, r, s in parts]
    relative = [d / (y if y else Fraction(eps) ** 2) for d, y in zip(squares_d, squares_b, strict=True)]
    product = sum(squares_a) * sum(squares_b)
    if product:
        cosine = exact.root(dot * dot / product) * (1 if dot > 0 else -1)
    else:
        cosine = 1.0 if sum(squares_a) == sum(squares_b) else nan
    return {
        "equal": sum(d == 0 for d in squares_d),
        "within_1e3": within(relative, Fraction(1, 1000)),
        "within_5e3": within(relative, Fraction(5, 1000)),
        "dot": exact.as_float(dot),
        "sumsq_a": exact.as_float(sum(squares_a)),
        "sumsq_b": exact.as_float(sum(squares_b)),
        "sumsq_diff": exact.as_float(sum(squares_d)),
        "max_abs_diff": exact.root(max(squares_d)),
        "max_rel_diff": exact.root(max(relative)),
        "max_abs_a": exact.root(max(squares_a)),
        "max_abs_b": exact.root(max(squares_b)),
        "norm_a": exact.root(sum(squares_a)),
        "norm_b": exact.root(sum(squares_b)),
        "distance": exact.root(sum(squares_d)),
        "cosine": cosine,
    }


def check(got: PairMetrics, a: list, b: list, eps: float) -> None:
    for name, wanted in reference(a, b, eps).items():
        value = getattr(got, name)
        if name == "equal":
            assert value == wanted, name
        elif name.startswith("within"):
            assert value in wanted, (name, value, wanted)
        elif name == "cosine":
            assert close(value, wanted, 1.0), (name, value, wanted)
        elif name == "dot":
            assert value == wanted or close(value, wanted, min(got.norm_a * got.norm_b, 1.7e308)), (name, value, wanted)
        else:
            assert value == wanted or close(value, wanted, rel=4e-15), (name, value, wanted)


FINITE = [n for n in DTYPES if n != "float8_e8m0fnu"]
NARROW = {"float16", "bfloat16", "float32", "complex32", "complex64", *(n for n in DTYPES if n.startswith("float8"))}


def eps_of(a: str, b: str) -> float:
    return 2.0**-23 if {a, b} <= NARROW else 2.0**-52


def numbers(tensor: torch.Tensor) -> list:
    return [complex(*map(float, (v.real, v.imag))) if isinstance(v, complex) else v for v in exact.numbers_of(tensor)]


@pytest.mark.parametrize("name", FINITE)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_finite_bits(numeric, name: str, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 30)) * ITEMSIZE[name]
    raws = [data.draw(st.binary(min_size=size, max_size=size)) for _ in range(2)]
    if data.draw(st.booleans()):  # mostly equal, as two runs are
        cut = data.draw(st.integers(0, size))
        raws[1] = raws[0][:cut] + raws[1][cut:]
    if name == "bool":
        raws = [bytes(v & 1 for v in raw) for raw in raws]
    tensors = [exact.from_bits(raw, name) for raw in raws]
    if tensors[0].dtype.is_complex or tensors[0].dtype.is_floating_point:
        for tensor in tensors:
            wide = tensor.to(torch.complex128) if tensor.dtype.is_complex else tensor.to(torch.float32) if ITEMSIZE[name] == 1 else tensor
            bad = ~torch.isfinite(wide)
            if tensor.dtype.is_complex:  # magnitudes that float64 holds with few bits have ratios with few bits
                bad |= (wide != 0) & (wide.abs() < 1e-290)
            tensor.view(torch.uint8).view(-1, ITEMSIZE[name])[bad] = 0
    a, b = (numbers(t) for t in tensors)
    if name in ("int64", "uint64"):
        a, b = ([int(v) for v in np.frombuffer(raw, name)] for raw in raws)
    parts = numeric.compare_pair(tensors[0].data_ptr(), DTYPES.index(name), tensors[1].data_ptr(), DTYPES.index(name), len(a))
    check(pairs.metrics_from(len(a), parts), a, b, eps_of(name, name))


@pytest.mark.parametrize("numel", [1, 7, 8, 16, 255, 257, 16_385, 40_001])
@pytest.mark.parametrize(
    ("name_a", "name_b"),
    [
        ("float32", "float32"),
        ("bfloat16", "float32"),
        ("float16", "float64"),
        ("int32", "float32"),
        ("complex64", "float32"),
        ("bool", "uint8"),
    ],
)
def test_sizes_and_mixed_dtypes(compare, name_a: str, name_b: str, numel: int) -> None:
    a, b = exact.finite_random(name_a, numel, 1), exact.finite_random(name_b, numel, 2)
    got = compare(a, b)
    x, y = (np.array(numbers(t)) for t in (a, b))
    difference = abs(x - y)
    relative = difference / np.where(y == 0, eps_of(name_a, name_b), abs(y))
    assert got.compared == got.numel == numel
    assert (got.equal, got.within_1e3, got.within_5e3) == ((difference == 0).sum(), (relative < 0.001).sum(), (relative < 0.005).sum())
    assert got.max_abs_diff == pytest.approx(difference.max(), rel=1e-14)
    assert got.max_rel_diff == pytest.approx(relative.max(), rel=1e-14)
    assert got.distance == pytest.approx(math.sqrt(math.fsum(difference**2)), rel=1e-13)
    assert got.norm_a == pytest.approx(math.sqrt(math.fsum(abs(x) ** 2)), rel=1e-13)
    assert got.dot == pytest.approx(math.fsum((np.conj(x) * y).real), rel=1e-10, abs=1e-12 * got.norm_a * got.norm_b)


@pytest.mark.parametrize(
    ("a", "b", "dtype"),
    [
        ([1e308, 1e308], [1e308, -1e308], torch.float64),
        ([1.7e308] * 3, [-1.7e308, 1e308, 1.7e308], torch.float64),
        ([1e-200, 2e-300], [1e-200, 1e-300], torch.float64),
        ([1e200, 1.0], [1e200, 1.5], torch.float64),
        ([1e200, 1e-200], [1e200, 2e-200], torch.float64),
        ([5e-324, 0.0], [0.0, 5e-324], torch.float64),
        ([0.0, 0.0], [0.0, 0.0], torch.float64),
        ([0.0, 0.0], [1.0, 0.0], torch.float64),
        ([1e308 + 1e308j, 1], [1e308 - 1e308j, 2], torch.complex128),
        ([1.7e308 + 1.7e308j], [-1.7e308 + 1.7e308j], torch.complex128),
        ([1e-200 + 1e-200j, 1], [2e-200 + 1e-200j, 1], torch.complex128),
        ([2**62], [2**62 + 1], torch.int64),
        ([2**63 - 1, -(2**63)], [2**63 - 2, 2**63 - 1], torch.int64),
    ],
)
def test_the_ends_of_the_ranges(compare, a: list, b: list, dtype: torch.dtype) -> None:
    check(compare(torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype)), a, b, 2.0**-52)


def test_64_bit_integers_of_different_signedness(compare) -> None:
    a = torch.tensor([2**63 - 1, -1, 2**53 + 1])
    b = torch.from_numpy(np.array([2**63, 2**64 - 1, 2**53], np.uint64))
    got = compare(a, b)
    assert got.equal == 0
    assert got.max_abs_diff == 2.0**64
    assert compare(a[2:], torch.tensor([2.0**53], dtype=torch.float64)).max_abs_diff == 1.0
    assert compare(a[:1], b[:1]).max_abs_diff == 1.0
    assert compare(a[2:], torch.tensor([2.0**53 + 0j], dtype=torch.complex128)).max_abs_diff == 1.0


def test_golden_zero_stands_over_epsilon(compare) -> None:
    """The reference tool's rule and numbers."""
    assert compare(torch.ones(4), torch.zeros(4)).max_rel_diff == 8388608.0
    assert compare(torch.zeros(4), torch.ones(4)).max_rel_diff == 1.0
    assert compare(torch.zeros(4), torch.zeros(4)).max_rel_diff == 0.0
    assert compare(torch.tensor([1]), torch.tensor([0])).max_rel_diff == 4503599627370496.0
    eight = compare(torch.tensor([0, 255], dtype=torch.uint8), torch.tensor([255, 0], dtype=torch.uint8))
    assert (eight.max_rel_diff, eight.cosine, eight.max_abs_diff) == (255 * 2.0**52, 0.0, 255.0)
    assert eight.distance == pytest.approx(360.62, abs=0.01)
    assert compare(torch.tensor([1e-30]), torch.tensor([0.0])).max_rel_diff == pytest.approx(1e-30 * 2**23)


def test_thresholds_are_strict(compare) -> None:
    golden = torch.tensor([1000.0, 1000.0, 1000.0, 1000.0], dtype=torch.float64)
    target = torch.tensor([1000.9, 1001.1, 1004.9, 1005.1], dtype=torch.float64)
    got = compare(target, golden)
    assert (got.within_1e3, got.within_5e3) == (1, 3)
    at_the_limits = compare(torch.tensor([1001, 1005]), torch.tensor([1000, 1000]))
    assert (at_the_limits.within_1e3, at_the_limits.within_5e3) == (0, 1)


def test_cosine_of_multiples_is_exactly_one(compare) -> None:
    x = exact.finite_random("float32", 5000)
    assert compare(x, x).cosine == 1.0
    assert compare(2 * x, x).cosine == 1.0
    assert compare(-x, x).cosine == -1.0
    assert compare(x, x).equal == 5000


@pytest.mark.parametrize("fill", [0, 3, 300, 40_000])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128])
def test_positions_that_are_not_finite(compare, dtype: torch.dtype, fill: int) -> None:
    a = torch.tensor([nan, nan, inf, inf, inf, 1.0, nan, 2.0] + [3.0] * fill).to(dtype)
    b = torch.tensor([nan, 1.0, inf, -inf, 1.0, inf, inf, 1.0] + [3.0] * fill).to(dtype)
    got = compare(a, b)
    assert (got.nan_differ, got.inf_differ, got.nonfinite_equal, got.compared) == (2, 3, 2, fill + 1)
    assert (got.equal, got.within_1e3, got.within_5e3) == (2 + fill, fill, fill)
    assert (got.dot, got.sumsq_a, got.sumsq_b, got.sumsq_diff) == (2 + 9 * fill, 4 + 9 * fill, 1 + 9 * fill, 1)
    assert (got.max_abs_diff, got.max_rel_diff, got.max_abs_a, got.max_abs_b) == (1, 1, 3 if fill else 2, 3 if fill else 1)
    backwards = compare(b, a)
    assert (backwards.nan_differ, backwards.inf_differ, backwards.nonfinite_equal) == (2, 3, 2)


def test_complex_parts_that_are_not_finite(compare) -> None:
    a = torch.tensor([complex(nan, 1), complex(inf, 1), complex(inf, 1), complex(1, -inf), complex(inf, nan)])
    b = torch.tensor([complex(2, nan), complex(inf, 1), complex(inf, 2), complex(1, inf), complex(inf, 1)])
    got = compare(a, b)
    assert (got.nonfinite_equal, got.inf_differ, got.nan_differ, got.compared) == (2, 2, 1, 0)


def test_nothing_compared_has_no_cosine(compare) -> None:
    for a in (torch.empty(0), torch.tensor([nan, inf])):
        got = compare(a, a)
        assert math.isnan(got.cosine)
        assert (got.compared, got.equal, got.max_abs_diff, got.distance) == (0, a.numel(), 0.0, 0.0)


def test_negative_zero_equals_zero(compare) -> None:
    assert compare(torch.tensor([-0.0]), torch.tensor([0.0])).equal == 1


@pytest.mark.parametrize("name", DTYPES)
def test_memory_need_not_be_aligned(name: str) -> None:
    tensor, other = exact.finite_random(name, 999, 1), exact.finite_random(name, 999, 2)
    raw_a, raw_b = (bytes(t.view(torch.uint8).numpy()) for t in (tensor, other))
    moved = [Stored(name, (999,), memoryview(b"x" + raw)[1:]) for raw in (raw_a, raw_b)]
    assert repr(compare_arrays(*moved)) == repr(compare_arrays(stored(tensor), stored(other)))


def test_wrong_arguments_are_named() -> None:
    three, four = stored(torch.zeros(3)), stored(torch.zeros(4))
    with pytest.raises(ValueError, match=r"shape \(3,\) with shape \(4,\)"):
        compare_arrays(three, four)
    with pytest.raises(ValueError, match=r"golden holds 16 bytes.*needs 12"):
        compare_arrays(three, Stored("float32", (3,), four.data))
    with pytest.raises(ValueError, match="quint8"):
        compare_arrays(Stored("quint8", (3,), three.data), three)


def test_kernel_and_twin_reject_the_same(numeric) -> None:
    at = torch.zeros(3).data_ptr()
    with pytest.raises(ValueError, match="address 0"):
        numeric.compare_pair(at, 11, 0, 11, 3)
    with pytest.raises(ValueError, match="code 77"):
        numeric.compare_pair(at, 11, at, 77, 3)
    with pytest.raises(ValueError, match="-1"):
        numeric.compare_pair(at, 11, at, 11, -1)
    assert numeric.compare_pair(0, 11, 0, 11, 0) == (0,) * 6 + (0.0,) * 8 + (0,) * 3
