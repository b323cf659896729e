from __future__ import annotations

import numpy as np
import pytest
import torch

from msprobe.numerics import DTYPES, ITEMSIZE, to_float64

from .exact import numbers_of, random_bits

FLOAT8 = [name for name in DTYPES if name.startswith("float8")]


@pytest.mark.parametrize("name", DTYPES)
def test_numbers_are_those_torch_reads(name: str) -> None:
    tensor = random_bits(name, 5000)
    got = to_float64(memoryview(tensor.view(torch.uint8).numpy()), name)
    wanted = np.array(numbers_of(tensor), np.complex128 if tensor.dtype.is_complex else np.float64)
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == wanted.dtype


@pytest.mark.parametrize("name", FLOAT8)
def test_all_256_bytes_of_the_eight_bit_formats(name: str) -> None:
    tensor = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
    np.testing.assert_array_equal(to_float64(bytes(range(256)), name), tensor.to(torch.float32).numpy())


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_all_patterns_of_the_sixteen_bit_formats(name: str) -> None:
    tensor = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(getattr(torch, name))
    np.testing.assert_array_equal(to_float64(bytes(tensor.view(torch.uint8).numpy()), name), tensor.to(torch.float64).numpy())


@pytest.mark.parametrize("name", DTYPES)
def test_empty_and_torn_buffers(name: str) -> None:
    assert to_float64(b"", name).shape == (0,)
    if ITEMSIZE[name] > 1:
        with pytest.raises(ValueError, match=f"{ITEMSIZE[name] + 1} bytes.*{name}"):
            to_float64(bytes(ITEMSIZE[name] + 1), name)


def test_unknown_dtype_is_named() -> None:
    with pytest.raises(ValueError, match="float4_e2m1fn_x2"):
        to_float64(b"1", "float4_e2m1fn_x2")


def test_memory_of_several_dimensions_is_flattened() -> None:
    view = memoryview(np.arange(6, dtype=np.int16).reshape(2, 3))
    assert to_float64(view, "int16").tolist() == [0, 1, 2, 3, 4, 5]
