"""Tensor files: one for each data_name and none besides, the values of the moment of the call, no more bytes than the tensor's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from capturing import Step, record, statistics, tensors
from odd_values import Data, Holder, Pair, Subclass
from test_value_statistics import ALL, COMPUTED, LAYOUTS, QUANTIZED, exact, same, values_of

from msprobe.writer import TensorPool

pytestmark = pytest.mark.filterwarnings("ignore")


def load(step: Step, name: str) -> torch.Tensor:
    loaded = torch.load(step.directory / "dump_tensor_data" / name, weights_only=True)
    assert type(loaded) is torch.Tensor and not loaded.requires_grad
    return loaded


def files(step: Step) -> set[str]:
    return {path.name for path in (step.directory / "dump_tensor_data").iterdir()}


def check_files(step: Step) -> int:
    """Every file is the one of its record: structure, statistics, size; gives their number."""
    named = {}
    for entry, sides in step.data.items():
        for found in tensors(sides):
            name = found.get("data_name")
            if name is None:
                continue
            assert name.startswith(entry + "."), (entry, name)
            assert name not in named, f"two records have one file: {name}"
            named[name] = found
    assert files(step) == set(named)
    for name, found in named.items():
        loaded = load(step, name)
        assert list(loaded.shape) == found["shape"] and str(loaded.dtype) == found["dtype"], name
        if loaded.layout == torch.strided and not loaded.is_quantized:
            assert loaded.is_contiguous() and loaded.untyped_storage().nbytes() == loaded.numel() * loaded.element_size(), name
            if loaded.dtype in COMPUTED:
                assert same(statistics(found), exact(loaded)), (name, found)
    return len(named)


def given_to_a_module(directory: Path, *values: Any, **keywords: Any) -> Step:
    model = Holder()
    return record(directory, lambda: model.probe(*values, **keywords), model=model, level="L0", task="tensor")


@pytest.mark.parametrize("dtype", COMPUTED, ids=str)
def test_every_dtype_in_every_layout(tmp_path: Path, dtype: torch.dtype) -> None:
    made = [make(values_of(dtype)) for make in LAYOUTS.values()]
    step = given_to_a_module(tmp_path, *made)
    for i, (tensor, found) in enumerate(zip(made, step.only("forward")["input_args"], strict=True)):
        if tensor.numel():
            loaded = load(step, found["data_name"])
            assert found["data_name"] == f"Module.probe.Probe.forward.0.input.{i}.pt"
            assert torch.equal(bits(loaded), bits(tensor))
        else:
            assert "data_name" not in found
    assert check_files(step) == sum(1 for tensor in made if tensor.numel())


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """NaN is equal to itself, bit for bit."""
    return tensor.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


@pytest.mark.parametrize("dtype", [d for d in ALL if d not in COMPUTED and d not in QUANTIZED], ids=str)
def test_dtypes_without_numbers(tmp_path: Path, dtype: torch.dtype) -> None:
    """Whether there is a file is the tool's choice; if there is one, it is right."""
    check_files(given_to_a_module(tmp_path, torch.zeros(2, 3, dtype=dtype)))


KINDS: dict[str, Callable[[], tuple[torch.Tensor, torch.Tensor]]] = {
    "coo": lambda: (torch.eye(3).to_sparse(), torch.eye(3).to_sparse()),
    "csr": lambda: (torch.eye(3).to_sparse_csr(), torch.eye(3).to_sparse_csr()),
    "quantized": lambda: (torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),) * 2,
    "nested": lambda: (
        torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)], layout=torch.jagged),
        torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0]),
    ),
    "conj": lambda: (torch.tensor([1 + 2j, 3j]).conj(), torch.tensor([1 - 2j, -3j])),
    "neg": lambda: (torch.tensor([1 + 2j, 3j]).conj().imag, torch.tensor([-2.0, -3.0])),
    "subclass": lambda: (torch.arange(3.0).as_subclass(Subclass), torch.arange(3.0)),
    "parameter": lambda: (nn.Parameter(torch.arange(3.0)), torch.arange(3.0)),
    "0-d": lambda: (torch.tensor(-2.5), torch.tensor(-2.5)),
    "part of something large": lambda: (torch.arange(100_000.0)[50:53], torch.tensor([50.0, 51.0, 52.0])),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_tensor(tmp_path: Path, kind: str) -> None:
    tensor, expected = KINDS[kind]()
    step = given_to_a_module(tmp_path, tensor)
    loaded = load(step, step.only("forward")["input_args"][0]["data_name"])
    if loaded.layout == torch.strided and not loaded.is_quantized:
        assert torch.equal(loaded, expected)
    else:
        dense = lambda t: t.dequantize() if t.is_quantized else t.to_dense()
        assert loaded.layout == expected.layout and torch.equal(dense(loaded), dense(expected))
    check_files(step)
    size = (step.directory / "dump_tensor_data" / step.only("forward")["input_args"][0]["data_name"]).stat().st_size
    assert size < 4000


def test_a_file_does_not_wait_for_its_directory(tmp_path: Path) -> None:
    """The step's directory is made by another thread: whoever comes first makes it, also for tensors that torch itself saves."""
    pool = TensorPool()
    target = tmp_path / "step0" / "proc1" / "dump_tensor_data" / "x.pt"
    pool.submit_saver(str(target), lambda path: torch.save(torch.eye(2).to_sparse(), path), 10)
    pool.close()
    assert not pool.problems and torch.load(target, weights_only=True).layout == torch.sparse_coo


def test_nested_values_have_their_path_in_the_name(tmp_path: Path) -> None:
    t = torch.ones(2)
    step = given_to_a_module(tmp_path, [t, {"b": (t, 3)}], Data(t), mask=t, more={"k": Pair(t, None)})
    assert files(step) == {
        f"Module.probe.Probe.forward.0.{path}.pt" for path in ("input.0.0", "input.0.1.b.0", "input.1.x", "kwargs.mask", "kwargs.more.k.a")
    }
    check_files(step)


def test_results_parameters_and_gradients(tmp_path: Path) -> None:
    class Gives(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([2.0, 3.0]))

        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            return {"h": x * self.weight, "more": [x.sum()]}

    model = nn.Sequential(Gives())
    x = torch.tensor([1.0, 4.0], requires_grad=True)
    step = record(tmp_path, lambda: model[0](x)["h"].sum().backward(), model=model, level="L0", task="tensor")
    expected = {
        "forward.0.input.0": x.detach(),
        "forward.0.output.0.h": torch.tensor([2.0, 12.0]),
        "forward.0.output.0.more.0": torch.tensor(5.0),
        "forward.0.parameters.weight": torch.tensor([2.0, 3.0]),
        "parameters_grad.0.weight": torch.tensor([1.0, 4.0]),
        "backward.0.input.0": torch.ones(2),
        "backward.0.output.0": torch.tensor([2.0, 3.0]),
    }
    assert {name: load(step, f"Module.0.Gives.{name}.pt").tolist() for name in expected} == {n: t.tolist() for n, t in expected.items()}
    assert check_files(step) == len(expected)


def test_apis(tmp_path: Path) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    step = record(tmp_path, lambda: F.softmax(input=x, dim=1).backward(torch.ones(3, 4)), task="tensor")
    assert files(step) == {
        "Functional.softmax.0.forward.kwargs.input.pt",
        "Functional.softmax.0.forward.output.0.pt",
        "Functional.softmax.0.backward.input.0.pt",
        "Functional.softmax.0.backward.output.0.pt",
    }
    assert torch.equal(load(step, "Functional.softmax.0.forward.output.0.pt"), F.softmax(x, dim=1))
    assert torch.equal(load(step, "Functional.softmax.0.backward.output.0.pt"), x.grad)


def test_values_are_those_of_the_call(tmp_path: Path) -> None:
    """Overwritten in place right after the call, before it and inside it."""
    n = 300_000
    made: list[torch.Tensor] = []

    def body() -> None:
        x = torch.arange(float(n))
        for i in range(5):
            y = torch.neg(x)
            y.zero_()
            x.add_(1.0)
            torch.relu_(x.neg_())
            x.copy_(torch.arange(float(n)) + i + 1)
        made.append(x)

    step = record(tmp_path, body, task="tensor")
    first = torch.arange(float(n))
    for i in range(5):
        assert torch.equal(load(step, f"Torch.neg.{i}.forward.input.0.pt"), first + i)
        assert torch.equal(load(step, f"Torch.neg.{i}.forward.output.0.pt"), -(first + i))
        assert torch.equal(load(step, f"Tensor.zero_.{i}.forward.input.0.pt"), -(first + i))
        assert not load(step, f"Tensor.zero_.{i}.forward.output.0.pt").any()
        assert torch.equal(load(step, f"Tensor.add_.{i}.forward.input.0.pt"), first + i)
        assert torch.equal(load(step, f"Tensor.add_.{i}.forward.output.0.pt"), first + i + 1)


def test_parameters_are_those_before_the_optimizer(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    weight = model[0].weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def body() -> None:
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    step = record(tmp_path, body, model=model, level="mix", task="tensor")
    assert torch.equal(load(step, "Module.0.Linear.forward.0.parameters.weight.pt"), weight)
    assert torch.equal(load(step, "Module.0.Linear.parameters_grad.0.weight.pt"), torch.ones(2, 3))
    assert not torch.equal(model[0].weight, weight)
    check_files(step)


def test_gradients_changed_by_the_user_in_place(tmp_path: Path) -> None:
    """Accumulated and clipped right after: the file holds what the hook saw."""
    model = nn.Sequential(nn.Linear(3, 2))

    def ten_times(parameter: torch.Tensor) -> None:
        parameter.grad.mul_(10)

    model[0].weight.register_post_accumulate_grad_hook(ten_times)
    step = record(tmp_path, lambda: [model(torch.ones(1, 3)).sum().backward() for _ in range(2)], model=model, level="L0", task="tensor")
    files_found = sorted(name for name in files(step) if "parameters_grad" in name and "weight" in name)
    assert files_found == [f"Module.0.Linear.parameters_grad.{i}.weight.pt" for i in (0, 1)]
    check_files(step)


NAMES = ["with space", "ünïcödé", "a/b", "..", "a" * 300, "x:y*z?", "é" * 200, "nul\0l", "-rf", "a\nb", "x" * 240, "CON"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_names_that_are_no_file_names(tmp_path: Path, name: str, task: str) -> None:
    """F12: as the name of a module, and as a key of a dict."""
    inner = nn.Linear(2, 2)
    model = nn.Module()
    model._modules[name] = inner
    probe = Holder()
    model._modules["probe"] = probe.probe
    x = torch.ones(1, 2)

    def body() -> None:
        probe.probe({name: inner(x), "other": {name: x}})

    step = record(tmp_path, body, model=model, level="L0", task=task)
    entry = step.data[f"Module.{name}.Linear.forward.0"]
    assert list(step.only("Probe.forward")["input_args"][0]) == [name, "other"]
    if task == "tensor":
        directory = step.directory / "dump_tensor_data"
        named = [found["data_name"] for found in tensors(list(step.data.values()))]
        assert len(set(named)) == len(named) == 1 + 1 + 2 + 2 and {path.name for path in directory.iterdir()} == set(named)
        for found in tensors(entry):
            assert same(statistics(found), exact(load(step, found["data_name"])))


@pytest.mark.parametrize(
    "array", [np.arange(6.0).reshape(2, 3), np.arange(4), np.array([True]), np.arange(8.0)[::-2]], ids=["f", "i", "b", "v"]
)
def test_arrays_of_numpy(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    step = given_to_a_module(tmp_path, array)
    (found,) = step.only("forward")["input_args"]
    assert found["data_name"] == "Module.probe.Probe.forward.0.input.0.pt"
    assert np.array_equal(load(step, found["data_name"]).numpy(), array)


def test_arrays_of_numpy_that_make_no_file(tmp_path: Path) -> None:
    """F35: no data_name without a file."""
    step = given_to_a_module(tmp_path, np.zeros((0, 2)), np.array([1, None], dtype=object))
    assert all("data_name" not in found for found in step.only("forward")["input_args"])
    assert files(step) == set()


def test_statistics_leave_no_files(tmp_path: Path) -> None:
    step = record(tmp_path, lambda: torch.relu(torch.ones(2)))
    assert not (step.directory / "dump_tensor_data").exists() and step.dump["dump_data_dir"] is None
    assert all("data_name" not in found for found in tensors(step.data))


def test_the_directory_is_named_as_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    step = record(Path(), lambda: torch.relu(torch.ones(2)), task="tensor", dump_path="out")
    assert step.dump["dump_data_dir"] == f"out/step0/{step.directory.name}/dump_tensor_data"
    assert Path(step.dump["dump_data_dir"]).is_dir()
