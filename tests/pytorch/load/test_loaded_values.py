"""The values are those of the file, bit for bit, and the gradient flows on to whatever made the tensor that arrived."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from overriding import TAKES, Around, Takes, bits, given, overridden, source
from torch import nn
from torch.autograd import forward_ad

from msprobe.pytorch.load.values import tensor_like

NAN = torch.tensor([0x7FC00001, 0x7F800001, -1], dtype=torch.int32).view(torch.float32)
"""A quiet NaN with a payload, a signalling one, one with the sign bit."""
DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
]


def made(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Any bits at all, as far as the dtype allows."""
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(torch.bool)
    empty = torch.empty(shape, dtype=dtype)
    raw = torch.randint(0, 256, (empty.numel() * empty.element_size(),), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).reshape(shape)


@pytest.mark.parametrize("shape", [(3, 4), (), (5,), (0,), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...], log: list[str]) -> None:
    recorded, arrived = made(dtype, shape, 1), made(dtype, shape, 2)
    before = bits(arrived)
    (found,) = given(tmp_path, {"input.0": recorded}, arrived).args
    assert found is not arrived
    assert (found.dtype, found.shape, found.requires_grad) == (dtype, arrived.shape, False)
    assert bits(found) == bits(recorded)
    assert bits(arrived) == before
    assert [line for line in log if line.startswith("WARNING")] == []


def test_not_a_number(tmp_path: Path) -> None:
    arrived = torch.zeros(2, 3, requires_grad=True).t()
    (found,) = given(tmp_path, {"input.0": NAN.expand(2, 3).t().contiguous()}, arrived * 1).args
    assert bits(found) == bits(NAN.expand(2, 3).t())


@pytest.mark.parametrize(
    "arrived",
    [
        torch.zeros(4, 3).t(),
        torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.zeros(2, 4, 6).permute(2, 0, 1),
        torch.zeros(6, 8)[::2, 1::2],
        torch.zeros(1, 4).expand(3, 4),
        torch.zeros(3, 4, dtype=torch.complex64).conj(),
        torch.zeros(3, 4, dtype=torch.complex64).imag,
    ],
    ids=["transposed", "channels last", "permuted", "a part", "expanded", "conjugate", "imaginary part"],
)
def test_strides(tmp_path: Path, arrived: torch.Tensor) -> None:
    recorded = made(arrived.dtype, tuple(arrived.shape), 3)
    (found,) = given(tmp_path, {"input.0": recorded}, arrived).args
    assert bits(found) == bits(recorded)
    dense = len({int(i) for i in torch.arange(1000).as_strided(arrived.shape, arrived.stride()).flatten()}) == arrived.numel()
    if dense and arrived.untyped_storage().nbytes() == arrived.numel() * arrived.element_size():
        assert found.stride() == arrived.stride()
    assert not found._is_view()


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0, -3.0, 0.5]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight * x


class Two(nn.Module):
    """y = (x * w)² * v; the second module is overridden."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = Scale()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def test_gradients_by_hand(tmp_path: Path) -> None:
    recorded = torch.tensor([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.0]])
    source(tmp_path, {"Module.second.Scale.forward.0.input.0": recorded})
    model, x = Two(), torch.tensor([[1.0, 1.0, 2.0], [0.0, 1.0, -1.0]], requires_grad=True)
    with overridden(tmp_path, ["Module.second.Scale.forward.0"], model):
        y = model(x)
        y.sum().backward()
    weight = model.second.weight.detach()
    assert torch.equal(y, recorded * weight * recorded)
    inner = 2 * recorded * weight  # what second gives back for the values that it saw
    assert torch.equal(model.second.weight.grad, (recorded * recorded).sum(0))
    assert torch.allclose(model.first.weight.grad, inner.t() @ x.detach())
    assert torch.allclose(model.first.bias.grad, inner.sum(0))
    assert torch.allclose(x.grad, inner @ model.first.weight.detach())


@pytest.mark.parametrize("equal", [True, False])
def test_one_tensor_in_two_places(tmp_path: Path, equal: bool) -> None:
    class Product(nn.Module):
        same = False

        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            self.same = a is b
            return a * b

    model = Around(Product())
    entry = "Module.inner.Product.forward.0"
    first, second = torch.tensor([2.0, 3.0]), torch.tensor([2.0, 3.0] if equal else [5.0, 7.0])
    source(tmp_path, {f"{entry}.input.0": first, f"{entry}.input.1": second})
    x = torch.tensor([1.0, 1.0], requires_grad=True)
    with overridden(tmp_path, [entry], model):
        h = x * 10
        model(h, h).sum().backward()
    assert model.inner.same is equal
    assert torch.equal(x.grad, 10 * (first + second))


@pytest.mark.parametrize("kind", ["relu", "hardtanh", "add"])
def test_modules_that_change_their_input_in_place(tmp_path: Path, kind: str) -> None:
    class Add(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.add_(1).mul_(3)

    inner = {"relu": nn.ReLU(inplace=True), "hardtanh": nn.Hardtanh(inplace=True), "add": Add()}[kind]
    entry = f"Module.inner.{type(inner).__name__}.forward.0"
    recorded = torch.tensor([-0.5, 0.25, 4.0])
    root = source(tmp_path, {f"{entry}.input.0": recorded})
    files = {path: path.read_bytes() for path in root.rglob("*.pt")}
    model, x = Around(inner), torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    with overridden(tmp_path, [entry], model):
        h = x * 2
        before = h.detach().clone()
        y = model(h)
        y.sum().backward()
    wanted = recorded.clone().requires_grad_()
    expected = inner(wanted * 1)
    expected.sum().backward()
    assert torch.equal(y, expected)
    assert torch.equal(h, before)  # the module changed what it was given
    assert torch.equal(x.grad, 2 * wanted.grad)
    assert {path: path.read_bytes() for path in root.rglob("*.pt")} == files


def test_a_leaf_that_requires_grad(tmp_path: Path) -> None:
    x = torch.zeros(3, requires_grad=True)
    source(tmp_path, {"Module.second.Scale.forward.0.input.0": torch.tensor([1.0, 2.0, 3.0])})
    model = Two()
    model.first = nn.Identity()
    with overridden(tmp_path, ["Module.second.Scale.forward.0"], model):
        model(x).sum().backward()
    assert torch.equal(x.grad, torch.tensor([4.0, -12.0, 3.0]))


def test_a_parameter_as_argument(tmp_path: Path) -> None:
    weight = nn.Parameter(torch.zeros(2))
    recorded = torch.tensor([5.0, 6.0])
    (found,) = given(tmp_path, {"input.0": recorded}, weight).args
    assert torch.equal(found, recorded)
    (found * found).sum().backward()
    assert torch.equal(weight.grad, 2 * recorded)


def test_the_gradient_has_the_dtype_of_the_tensor_that_arrived(tmp_path: Path) -> None:
    x = torch.ones(2, dtype=torch.float16, requires_grad=True)
    (found,) = given(tmp_path, {"input.0": torch.tensor([1.5, 1 / 3])}, x * 2).args
    assert found.dtype is torch.float32
    (found * found).sum().backward()
    assert x.grad.dtype is torch.float16
    assert torch.equal(x.grad, (2 * torch.tensor([3.0, 2 / 3])).to(torch.float16))


def test_a_complex_value_for_a_real_one(tmp_path: Path) -> None:
    x = torch.ones(2, requires_grad=True)
    (found,) = given(tmp_path, {"input.0": torch.tensor([1 + 2j, 3 - 1j])}, x * 2).args
    found.abs().square().sum().backward()
    assert torch.equal(x.grad, torch.tensor([4.0, 12.0]))


def test_an_integer_for_a_real_value_cuts_the_graph_and_says_so(tmp_path: Path, log: list[str]) -> None:
    x = torch.ones(2, requires_grad=True)
    (found,) = given(tmp_path, {"input.0": torch.tensor([1, 2])}, x * 2).args
    assert (found.dtype, found.requires_grad) == (torch.int64, False)
    (line,) = [line for line in log if "tensor mismatch" in line]
    assert "the graph is cut here" in line


def test_another_shape_cuts_the_graph_and_says_so(tmp_path: Path, log: list[str]) -> None:
    x = torch.ones(2, requires_grad=True)
    inner = given(tmp_path, {"input.0": torch.ones(3)}, x * 2)
    (found,) = inner.args
    assert found.requires_grad
    found.mul_(2).sum().backward()  # changed in place, as nn.ReLU(inplace=True) does: no error
    assert x.grad is None
    (line,) = [line for line in log if "tensor mismatch" in line]
    assert line == (
        f"WARNING [load] tensor mismatch for {TAKES}.input.0: source shape=[3] dtype=torch.float32 vs "
        "current shape=[2] dtype=torch.float32, override may cause forward error; "
        "the shapes differ, so the graph is cut here: no gradient flows to what made the current tensor"
    )


def test_gradients_of_gradients(tmp_path: Path) -> None:
    x = torch.ones(2, requires_grad=True)
    (found,) = given(tmp_path, {"input.0": torch.tensor([2.0, 3.0])}, x * 5).args
    (first,) = torch.autograd.grad((found**3).sum(), x, create_graph=True)
    assert torch.equal(first, 5 * 3 * torch.tensor([4.0, 9.0]))
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(second, 5 * 6 * torch.tensor([2.0, 3.0]) * 5)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(tmp_path: Path, mode: Any) -> None:
    class Inside(Takes):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            super().forward(*args)
            return (args[0] * 2).relu_()

    entry = "Module.inner.Inside.forward.0"
    recorded = torch.tensor([3.0, -4.0])
    source(tmp_path, {f"{entry}.input.{i}": recorded for i in range(2)})
    model, outside = Around(Inside()), torch.zeros(2, requires_grad=True) * 1
    with overridden(tmp_path, [entry], model), mode():
        inside = torch.ones(2)
        y = model(outside, inside)
    assert torch.equal(y, torch.tensor([6.0, 0.0]))
    assert [a.is_inference() for a in model.inner.args] == [False, inside.is_inference()]
    assert [a.requires_grad for a in model.inner.args] == [True, False]
    assert all(torch.equal(a, recorded) for a in model.inner.args)


def test_enable_grad_inside_a_module_under_no_grad(tmp_path: Path) -> None:
    class Force(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                (force,) = torch.autograd.grad((x**2).sum(), x)
            return force

    entry = "Module.inner.Force.forward.0"
    source(tmp_path, {f"{entry}.input.0": torch.tensor([3.0, 4.0])})
    model = Around(Force())
    with overridden(tmp_path, [entry], model), torch.no_grad():
        assert torch.equal(model(torch.zeros(2, requires_grad=True)), torch.tensor([6.0, 8.0]))


def test_cast(tmp_path: Path, log: list[str]) -> None:
    x = torch.ones(2, dtype=torch.float16, requires_grad=True)
    recorded = torch.tensor([1 / 3, 70000.0])
    (found,) = given(tmp_path, {"input.0": recorded}, x * 2, load={"cast": True}).args
    assert found.dtype is torch.float16
    assert torch.equal(found, recorded.to(torch.float16))
    found.sum().backward()
    assert torch.equal(x.grad, torch.full((2,), 2.0, dtype=torch.float16))
    assert f"INFO [load] {TAKES}.input.0: converted from torch.float32 to torch.float16 (cast)" in log
    assert not any("mismatch" in line for line in log)


def test_what_is_finite_stays_so_where_that_is_asked() -> None:
    recorded = torch.tensor([torch.finfo(torch.float32).min, float("-inf"), float("nan"), 1.0])
    for dtype in (torch.bfloat16, torch.float16):
        found = tensor_like(recorded, torch.zeros(4, dtype=dtype), dtype, finite=True)
        assert found.dtype is dtype
        assert found[0] == torch.finfo(dtype).min and found[1] == float("-inf") and found[2].isnan() and found[3] == 1
        assert tensor_like(recorded, torch.zeros(4, dtype=dtype), dtype)[0] == float("-inf")


@pytest.mark.parametrize(
    ("recorded", "current"), [(torch.complex64, torch.float32), (torch.float32, torch.int64), (torch.bool, torch.float8_e5m2)]
)
def test_cast_between_kinds(tmp_path: Path, recorded: torch.dtype, current: torch.dtype) -> None:
    values = torch.tensor([1.0, 0.0]).to(recorded)
    (found,) = given(tmp_path, {"input.0": values}, torch.zeros(2).to(current), load={"cast": True}).args
    assert found.dtype is current
    assert found.to(torch.float32).tolist() == [1.0, 0.0]


def test_another_device(tmp_path: Path) -> None:
    """The values go to the device of the tensor that arrived; `meta` stands for one here."""
    x = torch.ones(2, device="meta", requires_grad=True)
    (found,) = given(tmp_path, {"input.0": torch.tensor([1.0, 2.0])}, x * 2).args
    assert (found.device.type, found.shape, found.requires_grad) == ("meta", (2,), True)
    (found * found).sum().backward()
    assert x.grad.device.type == "meta"


def test_sparse_tensors(tmp_path: Path) -> None:
    recorded = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()
    (found,) = given(tmp_path, {"input.0": recorded}, torch.zeros(2, 2).to_sparse()).args
    assert torch.equal(found.to_dense(), recorded.to_dense())


def test_classes_of_tensors_are_left_alone_and_told(tmp_path: Path, log: list[str]) -> None:
    class Mine(torch.Tensor):
        pass

    arrived = torch.zeros(2).as_subclass(Mine)
    (found,) = given(tmp_path, {"input.0": torch.ones(2)}, arrived).args
    assert found is arrived
    assert f"WARNING [load] {TAKES}.input.0 is a Mine and is not replaced" in log


def test_inside_torch_func_nothing_is_replaced_and_it_is_told(tmp_path: Path, log: list[str]) -> None:
    source(tmp_path, {"Module.second.Scale.forward.0.input.0": torch.ones(3)})
    model = Two()
    parameters = dict(model.named_parameters())

    def loss(values: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.func.functional_call(model, values, (torch.ones(1, 3),)).sum()

    expected = torch.func.grad(loss)(parameters)
    with overridden(tmp_path, ["Module.second.Scale.forward.0"], model):
        found = torch.func.grad(loss)(parameters)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert any("inside a torch.func transform and is not replaced" in line for line in log)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_tangents_of_forward_mode_are_carried_over(tmp_path: Path, requires_grad: bool) -> None:
    source(tmp_path, {f"{TAKES}.input.0": torch.tensor([2.0, 3.0]), f"{TAKES}.input.1": torch.tensor([4.0, 5.0], dtype=torch.float64)})
    model = Around()
    x = torch.zeros(2, requires_grad=requires_grad)
    with forward_ad.dual_level(), overridden(tmp_path, [TAKES], model):
        dual = forward_ad.make_dual(x, torch.tensor([1.0, 10.0]))
        model(dual, dual * 3)
        seen, other = (forward_ad.unpack_dual(a**2) for a in model.inner.args)  # type: ignore[union-attr]
        assert seen.primal.tolist() == [4, 9] and seen.tangent.tolist() == [4, 60]
        assert other.primal.tolist() == [16, 25] and other.tangent.tolist() == [24, 300] and other.tangent.dtype is torch.float64
        if requires_grad:
            (seen.primal.sum() + other.primal.sum()).backward()
            assert x.grad is not None and x.grad.tolist() == [4 + 3 * 8, 6 + 3 * 10]
