"""Views: whatever the strides, the statistics are those of the same elements laid out side by side."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from msprobe.numerics import CODE, DTYPES

from . import exact


def code(tensor: torch.Tensor) -> int:
    return CODE[str(tensor.dtype).removeprefix("torch.")]


def check_view(numeric, view: torch.Tensor) -> None:
    got = numeric.summarize_strided(view.data_ptr(), code(view), tuple(view.shape), view.stride())
    flat = torch.empty(view.shape, dtype=view.dtype).copy_(view)
    wanted = numeric.summarize(flat.data_ptr(), code(flat), flat.numel())
    assert got[:2] == wanted[:2]
    if wanted[3] is None:
        assert got[2:] == wanted[2:]
    else:
        assert exact.close(got[2], wanted[2], max(abs(wanted[0]), abs(wanted[1])), 1e-14)
        assert got[3] == pytest.approx(wanted[3], rel=1e-14)


VIEWS = {
    "transpose": lambda t: t.view(60, 50, 4).transpose(0, 1),
    "permute": lambda t: t.view(60, 50, 4).permute(2, 0, 1),
    "first half of each row": lambda t: t.view(20, 600)[:, :300],
    "few of each row": lambda t: t.view(1500, 8)[:, 2:5],
    "every third": lambda t: t.view(400, 30)[::3, ::7],
    "offset": lambda t: t[5:11_000],
    "column": lambda t: t.view(1500, 8)[:, 3],
    "expanded": lambda t: t.view(3, 1, 4000).expand(3, 9, 4000),
    "expanded number": lambda t: t[7].expand(5, 6, 7),
    "one element": lambda t: t.view(60, 50, 4)[3, 4, 1],
    "windows that overlap": lambda t: t.unfold(0, 100, 33),
    "kept dimensions of size one": lambda t: t.view(60, 1, 50, 1, 4)[:, :, 1:, :, ::2],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", DTYPES)
def test_views_of_every_dtype(numeric, name: str, view: str) -> None:
    check_view(numeric, VIEWS[view](exact.finite_random(name, 12_000)))


@settings(max_examples=60, deadline=None)
@given(
    dims=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=5),
    name=st.sampled_from(["int64", "float32", "float64", "bfloat16", "complex64"]),
)
def test_any_shape_and_strides(numeric, dims: list[tuple[int, int]], name: str) -> None:
    shape, strides = tuple(n for n, _ in dims), tuple(s for _, s in dims)
    tensor = exact.finite_random(name, 2000)
    view = torch.as_strided(tensor, shape, strides)
    if 0 in shape:
        assert numeric.summarize_strided(tensor.data_ptr(), CODE[name], shape, strides) == (None,) * 4
    else:
        check_view(numeric, view)


def test_views_of_many_blocks(numeric) -> None:
    tensor = exact.finite_random("float32", 300 * 400)
    check_view(numeric, tensor.view(300, 400)[:, :399])
    check_view(numeric, tensor.view(300, 400).t()[:, 1:])
    check_view(numeric, tensor.view(40_000, 3)[:, :2])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64", "int64"])
def test_the_same_values_give_the_same_bits_in_every_layout(kernels, dtype: str) -> None:
    """Or two runs that only differ in memory format would seem to differ in their data."""
    generator = torch.Generator().manual_seed(0)
    base = (torch.randn(7, 33, 20, 19, generator=generator, dtype=torch.float64) * 100).to(getattr(torch, dtype))
    views = [
        base.permute(3, 1, 0, 2),
        base.contiguous(memory_format=torch.channels_last),
        base.transpose(1, 2)[1:, ::3],
        base[..., ::2],
        base[0].t() if base[0].dim() == 2 else base[0].permute(2, 0, 1),
        base[:, :, :1].expand(7, 33, 20, 19),
        base.flatten(0, 1)[5:],
    ]
    for view in views:
        plain = view.contiguous()
        expected = kernels.summarize(plain.data_ptr(), CODE[dtype], plain.numel())
        assert kernels.summarize_strided(view.data_ptr(), CODE[dtype], tuple(view.shape), view.stride()) == expected


def test_expanded_tensors_count_each_element_as_often_as_it_appears(numeric) -> None:
    tensor = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert numeric.summarize_strided(tensor.data_ptr(), CODE["float64"], (2, 100), (1, 0)) == (4.0, 3.0, 3.5, 50.0)
    huge = torch.tensor([1.7e308], dtype=torch.float64)
    assert numeric.summarize_strided(huge.data_ptr(), CODE["float64"], (4,), (0,))[2:] == (1.7e308, float("inf"))
    # more positions than could be walked one by one
    assert numeric.summarize_strided(tensor.data_ptr(), CODE["float64"], (2, 2**40), (1, 0))[2:] == (3.5, 5.0 * 2**20)
