from __future__ import annotations

import pytest
import torch

from msprobe.numerics import CODE, DTYPES, ITEMSIZE, dtypes

from .exact import finite_random


def test_every_torch_dtype_with_numbers_is_in_the_table() -> None:
    of_torch = {str(v).removeprefix("torch.") for v in vars(torch).values() if isinstance(v, torch.dtype)}
    below_a_byte = {f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)}
    without_numbers = below_a_byte | {n for n in of_torch if n.startswith(("qint", "quint", "bits", "float4"))}
    new_in_2_14 = {"bcomplex32"}  # torch computes next to nothing with it yet
    assert of_torch - without_numbers - new_in_2_14 == {name for name in DTYPES if hasattr(torch, name)}


@pytest.mark.parametrize("name", DTYPES)
def test_sizes_are_those_of_torch(name: str) -> None:
    assert ITEMSIZE[name] == getattr(torch, name).itemsize


def test_codes_are_the_positions_in_the_table() -> None:
    assert list(CODE.values()) == list(range(len(DTYPES)))
    assert [dtypes.by_code(c).name for c in CODE.values()] == list(DTYPES)


@pytest.mark.parametrize("name", DTYPES)
def test_kernel_and_table_mean_the_same_dtype_by_a_code(kernels, name: str) -> None:
    tensor = finite_random(name, 1)
    if tensor.dtype.is_complex:
        wanted = abs(complex(tensor.to(torch.complex128)))
    else:
        wanted = tensor.to(torch.float32).item() if name.startswith("float8") else tensor.item()
    assert kernels.summarize(tensor.data_ptr(), CODE[name], 1)[0] == pytest.approx(wanted, rel=1e-15)


def test_lookup_takes_prefixes_and_names_what_it_knows() -> None:
    assert dtypes.lookup("torch.bfloat16").code == CODE["bfloat16"]
    with pytest.raises(ValueError, match=r"'torch\.quint8'.*float32"):
        dtypes.lookup("torch.quint8")
    with pytest.raises(ValueError, match="99"):
        dtypes.by_code(99)
