"""Tensors of every layout, device and class: what can be read has its numbers, what cannot keeps its structure and says why."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from capturing import Step, record, statistics
from odd_values import Holder, Subclass
from test_value_statistics import exact, same
from torch._subclasses.fake_tensor import FakeTensorMode

pytestmark = pytest.mark.filterwarnings("ignore")
NULLS = (None,) * 4


def recorded(directory: Path, *values: Any, task: str = "statistics") -> tuple[list[Any], Step]:
    """The records of values given to a module."""
    model = Holder()
    step = record(directory, lambda: model.probe(*values), model=model, level="L0", task=task)
    return step.only("forward")["input_args"], step


def sparse_values(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor([[0, 2, 0, 0], [3, 0, 0, 0], [0, 0, 0, 5], [0, 0, 0, 0]], dtype=dtype)


SPARSE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "coo": lambda t: t.to_sparse(),
    "csr": lambda t: t.to_sparse_csr(),
    "csc": lambda t: t.to_sparse_csc(),
    "bsr": lambda t: t.to_sparse_bsr((2, 2)),
    "bsc": lambda t: t.to_sparse_bsc((2, 2)),
    "coo with a dense dimension": lambda t: t.to_sparse(1),
}


@pytest.mark.parametrize("layout", SPARSE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.complex64, torch.bool], ids=str)
@pytest.mark.parametrize("sign", [1, -1])
def test_sparse_tensors_have_the_numbers_of_the_dense_one(tmp_path: Path, layout: str, dtype: torch.dtype, sign: int) -> None:
    dense = sparse_values(dtype) if dtype == torch.bool else sparse_values(dtype) * sign
    sparse = SPARSE[layout](dense)
    (found,), step = recorded(tmp_path, sparse)
    assert found["type"] == "torch.Tensor" and found["shape"] == [4, 4] and found["dtype"] == str(dtype)
    assert same(statistics(found), exact(dense)), statistics(found)
    assert step.errors == ""


def test_sparse_tensors_that_hold_an_element_twice(tmp_path: Path) -> None:
    sparse = torch.sparse_coo_tensor([[1, 1, 0]], [2.0, 3.0, -1.0], (3,))
    (found,), _ = recorded(tmp_path, sparse)
    assert same(statistics(found), exact(sparse.to_dense()))
    assert not sparse.is_coalesced()


def test_sparse_tensors_without_an_element(tmp_path: Path) -> None:
    records, _ = recorded(tmp_path, torch.zeros(3, 3).to_sparse(), torch.zeros(0, 3).to_sparse(), torch.zeros(3, 3).to_sparse_csr())
    assert [statistics(r) for r in records] == [(0.0,) * 4, NULLS, (0.0,) * 4]


def test_sparse_gradients(tmp_path: Path) -> None:
    embedding = nn.Embedding(6, 3, sparse=True)
    model = nn.Sequential(embedding)
    ids = torch.tensor([1, 4, 1])
    step = record(tmp_path, lambda: model(ids).sum().backward(), model=model, level="mix")
    found = step.data["Module.0.Embedding.parameters_grad.0"]["weight"][0]
    assert embedding.weight.grad.is_sparse
    assert same(statistics(found), exact(embedding.weight.grad.to_dense())), found


def test_sparse_tensors_that_require_grad(tmp_path: Path) -> None:
    leaf = sparse_values().to_sparse().requires_grad_()
    model = nn.Sequential(Holder().probe)
    model[0].forward = lambda t: torch.sparse.mm(t, torch.ones(4, 2))  # type: ignore[method-assign]
    step = record(tmp_path, lambda: model(leaf).sum().backward(), model=model, level="mix")
    assert step.only("Probe.forward")["input_args"][0]["requires_grad"] is True
    assert leaf.grad is not None


def test_conjugate_and_negative_views(tmp_path: Path) -> None:
    z = torch.tensor([1 + 2j, -3 + 0.5j, 0.25 - 4j])
    views = [z.conj(), z.conj().imag, z.conj().real, z.conj()[1:], z.imag, z.real, torch._neg_view(torch.tensor([1.0, 2.0, -5.0]))]
    assert views[0].is_conj() and views[1].is_neg()
    records, step = recorded(tmp_path, *views)
    for view, found in zip(views, records, strict=True):
        assert same(statistics(found), exact(view.resolve_conj().resolve_neg().clone())), (view, found)
    assert step.errors == "" and views[0].is_conj()


def test_a_tensor_known_to_be_zero(tmp_path: Path) -> None:
    (found,), _ = recorded(tmp_path, torch._efficientzerotensor((2, 3)))
    assert statistics(found) == (0.0,) * 4


def test_dual_tensors_of_forward_mode(tmp_path: Path) -> None:
    import torch.autograd.forward_ad as forward_ad

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
        (found,), _ = recorded(tmp_path, dual)
        assert forward_ad.unpack_dual(dual).tangent is not None
    assert same(statistics(found), exact(torch.tensor([1.0, 2.0])))


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors_have_the_numbers_of_their_elements(tmp_path: Path, layout: torch.layout) -> None:
    parts = [torch.randn(2, 4), torch.randn(3, 4)]
    nested = torch.nested.nested_tensor(parts, layout=layout)
    (found,), step = recorded(tmp_path, nested)
    assert same(statistics(found), exact(torch.cat(parts)))
    assert found["type"] == ("torch.Tensor" if layout == torch.strided else "torch.nested._internal.nested_tensor.NestedTensor")
    assert step.errors == ""


def test_nested_tensors_train(tmp_path: Path) -> None:
    nested = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=torch.jagged, requires_grad=True)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    step = record(tmp_path, lambda: model(nested).values().sum().backward(), model=model, level="mix")
    assert nested.grad is not None
    assert {"Module.0.Linear.forward.0", "Module.1.ReLU.forward.0", "Module.0.Linear.parameters_grad.0"} <= set(step.data)


def test_subclasses_that_only_have_another_name(tmp_path: Path) -> None:
    tensor = torch.randn(3, 4).as_subclass(Subclass)
    records, step = recorded(tmp_path, tensor, tensor.t(), nn.Buffer(torch.ones(2)))
    assert [r["type"] for r in records] == ["torch.Tensor"] * 3
    plain = tensor.as_subclass(torch.Tensor)
    assert same(statistics(records[0]), exact(plain)) and same(statistics(records[1]), exact(plain.t()))
    assert step.errors == ""


class Counting(torch.Tensor):
    """A subclass that would notice if somebody looked at it with torch."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Counting.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError("not here")


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_subclasses_with_a_torch_function_are_not_called(tmp_path: Path, level: str) -> None:
    tensor, refusing = torch.randn(3).as_subclass(Counting), torch.randn(3).as_subclass(Refusing)
    model = Holder()
    Counting.calls = 0
    step = record(tmp_path, lambda: model.probe(tensor, refusing, [tensor]), model=model, level=level)
    assert Counting.calls == 0
    first, second, third = step.only("Probe.forward")["input_args"]
    assert same(statistics(first), exact(tensor.as_subclass(torch.Tensor))) and third == [first]
    assert None not in statistics(second)


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_subclasses_with_a_torch_function_are_called_as_often_as_without(tmp_path: Path, level: str) -> None:
    """And only by the user's own calls: ours are neither seen nor counted."""
    layer = nn.Linear(3, 3)
    model = nn.Sequential(layer)

    def work() -> list[Any]:
        x = torch.ones(2, 3).as_subclass(Counting)
        y = model(x)
        z = (1 + y).softmax(dim=1)[0]
        return [y, z, torch.stack([z, z]), z.shape, float(z.sum())]

    Counting.calls = 0
    plainly = work()
    plain_calls, Counting.calls = Counting.calls, 0
    watched: list[Any] = []
    step = record(tmp_path, lambda: watched.extend(work()), model=model, level=level)
    assert Counting.calls == plain_calls > 0
    assert [type(v) for v in watched] == [type(v) for v in plainly]
    assert all(torch.equal(a, b) for a, b in zip(watched[:3], plainly[:3], strict=True)) and watched[3:] == plainly[3:]
    assert {"Functional.linear.0.forward", "Tensor.__radd__.0.forward", "Tensor.softmax.0.forward"} <= set(step.data)


class Wrapper(torch.Tensor):
    """Holds another tensor and no memory of its own."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapper:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        unwrap = lambda v: v.inner if isinstance(v, Wrapper) else v
        out = func(*map(unwrap, args), **{k: unwrap(v) for k, v in (kwargs or {}).items()})
        return Wrapper(out) if isinstance(out, torch.Tensor) else out


class Broken(Wrapper):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError("never look at me")


def test_wrapper_subclasses_keep_their_structure(tmp_path: Path) -> None:
    records, step = recorded(tmp_path, Wrapper(torch.ones(2, 3)), Broken(torch.ones(4)))
    assert [(r["shape"], r["dtype"]) for r in records] == [([2, 3], "torch.float32"), ([4], "torch.float32")]
    assert [statistics(r) for r in records] == [NULLS, NULLS]
    assert "input 0" in step.errors and "input 1" in step.errors


class Logging(torch.Tensor):
    """Has its own memory."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        DISPATCHED.append(str(func))
        return super().__torch_dispatch__(func, types, args, kwargs or {})


class CountingWrapper(Wrapper):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        DISPATCHED.append(str(func))
        unwrap = lambda v: v.inner if isinstance(v, Wrapper) else v
        out = func(*map(unwrap, args), **{k: unwrap(v) for k, v in (kwargs or {}).items()})
        return CountingWrapper(out) if isinstance(out, torch.Tensor) else out


DISPATCHED: list[str] = []


@pytest.mark.parametrize("summary_mode", ["statistics", "md5", "xor"])
@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("kind", [Logging, CountingWrapper])
def test_what_subclasses_dispatch_is_what_they_dispatch_without_us(tmp_path: Path, kind: Any, task: str, summary_mode: str) -> None:
    def train() -> list[str]:
        make = (lambda t: t.as_subclass(kind)) if kind is Logging else kind
        x, p = make(torch.ones(3, 3)), make(torch.arange(9.0).reshape(3, 3)).requires_grad_()
        DISPATCHED.clear()
        torch.relu(x @ p).sum().backward()
        return list(DISPATCHED)

    found: list[list[str]] = []
    more = {"statistics": {"summary_mode": summary_mode}} if task == "statistics" else {}
    step = record(tmp_path, lambda: found.append(train()), level="L1", task=task, **more)
    assert found == [train()]
    (record_of_x, record_of_p) = step.data["Tensor.__matmul__.0.forward"]["input_args"]
    assert record_of_x["shape"] == record_of_p["shape"] == [3, 3]
    if kind is Logging and summary_mode == "statistics":
        assert statistics(record_of_p)[:3] == (8.0, 0.0, 4.0)


def test_wrapper_subclasses_compute_and_train(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Softmax(-1))
    x = Wrapper(torch.ones(2, 3, requires_grad=True))
    outputs: list[torch.Tensor] = []
    step = record(tmp_path, lambda: outputs.append(model(x)), model=model, level="mix")
    assert isinstance(outputs[0], Wrapper) and torch.allclose(outputs[0].inner, model(torch.ones(2, 3)))
    assert step.data["Module.0.Linear.forward.0"]["output"][0]["shape"] == [2, 2]


def test_masked_tensors(tmp_path: Path) -> None:
    masked = torch.masked.masked_tensor(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True]))
    (found,), step = recorded(tmp_path, masked)
    assert found["shape"] == [3]
    assert statistics(found) == NULLS and step.errors != ""


def test_meta_and_fake_tensors(tmp_path: Path) -> None:
    with FakeTensorMode():
        fake = torch.empty(2, 5)
    records, step = recorded(tmp_path, torch.empty(2, 3, device="meta"), fake)
    assert [(r["type"], r["shape"], statistics(r)) for r in records] == [
        ("torch.Tensor", [2, 3], NULLS),
        ("torch._subclasses.fake_tensor.FakeTensor", [2, 5], NULLS),
    ]
    assert "meta tensor has no values" in step.errors and "fake tensor has no values" in step.errors


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_model_that_runs_on_fake_tensors(tmp_path: Path, level: str) -> None:
    with FakeTensorMode():
        model = nn.Sequential(nn.Linear(3, 2))
        outputs: list[torch.Tensor] = []
        step = record(tmp_path, lambda: outputs.append(model(torch.ones(4, 3))), model=model, level=level)
    assert outputs[0].shape == (4, 2)
    entry = step.data["Functional.linear.0.forward" if level == "L1" else "Module.0.Linear.forward.0"]
    assert entry["output"][0]["shape"] == [4, 2] and statistics(entry["output"][0]) == NULLS


TRANSFORMS: dict[str, Callable[[nn.Module, torch.Tensor], torch.Tensor]] = {
    "vmap": lambda m, x: torch.vmap(m)(x),
    "grad": lambda m, x: torch.func.grad(lambda t: m(t).sum())(x),
    "jacrev": lambda m, x: torch.func.jacrev(m)(x),
    "jacfwd": lambda m, x: torch.func.jacfwd(m)(x),
    "vmap of grad": lambda m, x: torch.vmap(torch.func.grad(lambda t: m(t).sum()))(x),
    "functionalize": lambda m, x: torch.func.functionalize(m)(x),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_inside_torch_func(tmp_path: Path, transform: str, level: str, task: str) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    x = torch.randn(4, 3)
    expected = TRANSFORMS[transform](model, x)
    outputs: list[torch.Tensor] = []
    step = record(tmp_path, lambda: outputs.append(TRANSFORMS[transform](model, x)), model=model, level=level, task=task)
    assert torch.equal(outputs[0], expected)
    entry = step.data["Module.0.Linear.forward.0" if level == "L0" else "Functional.linear.0.forward"]
    found = entry["input_args"][0]
    assert found["shape"] and statistics(found) == NULLS and "data_name" not in found
    assert "torch.func" in step.errors


def test_freed_memory(tmp_path: Path) -> None:
    """As FSDP leaves its parameters between uses."""
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    (found,), step = recorded(tmp_path, tensor, task="tensor")
    assert found["shape"] == [4] and statistics(found) == NULLS and "data_name" not in found
    assert step.errors != ""


def test_lazy_parameters(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LazyLinear(2), nn.LazyBatchNorm1d())
    step = record(tmp_path, lambda: model(torch.ones(4, 3)), model=model, level="mix")
    assert model[0].weight.shape == (2, 3)
    assert step.data["Module.0.LazyLinear.forward.0" if "Module.0.LazyLinear.forward.0" in step.data else "Module.0.Linear.forward.0"]


def test_mkldnn_tensors(tmp_path: Path) -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("this build has no mkldnn")
    (found,), _ = recorded(tmp_path, torch.ones(2, 3).to_mkldnn())
    assert found["shape"] == [2, 3]


@pytest.fixture
def one_process_group() -> Any:
    import torch.distributed as dist

    if not dist.is_available():
        pytest.skip("this build has no torch.distributed")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_dtensors(tmp_path: Path, one_process_group: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (1,))
    values = torch.randn(4, 3)
    records, step = recorded(tmp_path, distribute_tensor(values, mesh, [Shard(0)]), distribute_tensor(values, mesh, [Replicate()]))
    for found, placement in zip(records, ("S(0)", "R"), strict=True):
        assert same(statistics(found), exact(values))
        assert found["type"] == "torch.distributed.tensor.DTensor" and found["shape"] == [4, 3]
        assert list(found)[-2:] == ["device_mesh", "placements"]
        assert found["device_mesh"] == [0] and found["placements"] == [placement]
    assert step.errors == "" and step.directory.name == "rank0"


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_dtensor_models_train(tmp_path: Path, one_process_group: None, level: str, task: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_module, distribute_tensor

    mesh = init_device_mesh("cpu", (1,))
    model = distribute_module(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), mesh)
    x = distribute_tensor(torch.randn(4, 3), mesh, [Shard(0)])
    step = record(tmp_path, lambda: model(x).sum().backward(), model=model, level=level, task=task)
    gradient = step.data["Module.0.Linear.parameters_grad.0"]["weight"][0]
    assert same(statistics(gradient), exact(model[0].weight.grad.to_local())), gradient
    assert not math.isnan(step.data["Module.0.Linear.forward.0"]["output"][0]["Norm"])
    assert "Module.0.Linear.backward.0" in step.data
