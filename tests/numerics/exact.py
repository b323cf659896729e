"""Independent references: statistics by exact rational arithmetic, random tensors of every dtype from random bits."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import torch

from msprobe.numerics import dtypes

REAL = [d.name for d in dtypes.BY_NAME.values() if d.kind == "f"]
INTEGER = [d.name for d in dtypes.BY_NAME.values() if d.kind in "ui"]
COMPLEX = [d.name for d in dtypes.BY_NAME.values() if d.kind == "c"]


def root(square: Fraction) -> float:
    """The square root, right to well below the last bit of float64; inf where float64 ends."""
    if square == 0:
        return 0.0
    shift = 2 * ((200 - square.numerator.bit_length() + square.denominator.bit_length()) // 2)
    digits = math.isqrt(int(square * Fraction(2) ** shift))
    return as_float(Fraction(digits) / Fraction(2) ** (shift // 2))


def as_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def summary(values: list[float] | list[int] | list[complex]) -> tuple[float, float, float, float]:
    """Max, Min, Mean and Norm of finite numbers; complex ones by their magnitude."""
    if isinstance(values[0], complex):
        squares = [Fraction(z.real) ** 2 + Fraction(z.imag) ** 2 for z in values]
        sizes = [root(s) for s in squares]
        if math.inf in sizes:
            mean = as_float(sum(Fraction(root(s / 4)) for s in squares) * 2 / len(squares))
        else:
            mean = as_float(sum(map(Fraction, sizes)) / len(sizes))
        return max(sizes), min(sizes), mean, root(sum(squares, Fraction(0)))
    exact = [Fraction(v) for v in values]
    norm = root(sum((v * v for v in exact), Fraction(0)))
    return max(values), min(values), as_float(sum(exact, Fraction(0)) / len(exact)), norm


def from_bits(raw: bytes, dtype: str) -> torch.Tensor:
    """A tensor whose elements have these bits."""
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(getattr(torch, dtype))


def random_bits(dtype: str, numel: int, seed: int = 0) -> torch.Tensor:
    """Every bit pattern may appear: NaN, infinity and subnormal numbers among them."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == "bool":
        return torch.randint(0, 2, (numel,), generator=generator).to(torch.bool)
    return torch.randint(0, 256, (numel * dtypes.ITEMSIZE[dtype],), dtype=torch.uint8, generator=generator).view(getattr(torch, dtype))


def finite_random(dtype: str, numel: int, seed: int = 0) -> torch.Tensor:
    """Random numbers of ordinary size in the dtype; integers over the whole range."""
    entry = dtypes.BY_NAME[dtype]
    if entry.kind in "uib":
        return random_bits(dtype, numel, seed)
    generator = torch.Generator().manual_seed(seed)
    if entry.kind == "c":
        numbers = torch.randn(numel, dtype=torch.complex128, generator=generator)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="ComplexHalf support is experimental")
            return numbers.to(getattr(torch, dtype))
    numbers = torch.randn(numel, dtype=torch.float64, generator=generator)
    if dtype == "float8_e8m0fnu":
        numbers = numbers.abs() + 0.01
    return numbers.to(torch.float32).to(getattr(torch, dtype)) if dtype.startswith("float8") else numbers.to(getattr(torch, dtype))


def numbers_of(tensor: torch.Tensor) -> list[float] | list[int] | list[complex]:
    """The elements as Python numbers, by torch."""
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128).tolist()
    if tensor.dtype.is_floating_point:
        return tensor.to(torch.float32).to(torch.float64).tolist() if tensor.element_size() == 1 else tensor.to(torch.float64).tolist()
    return tensor.tolist()


def close(got: float, wanted: float, size: float = 0.0, rel: float = 2e-15) -> bool:
    """Equal to a few units in the last place of ``wanted``, or of ``size`` where terms of that size cancelled."""
    if math.isnan(wanted) or math.isinf(wanted):
        return got == wanted or (math.isnan(wanted) and math.isnan(got))
    return abs(got - wanted) <= rel * max(abs(wanted), size) + 5e-324
