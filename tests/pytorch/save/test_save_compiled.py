"""save() in code that is compiled, exported, traced or transformed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from debug_json import debugger_for, save, step_of
from torch.fx.experimental.proxy_tensor import make_fx

from msprobe.pytorch import PrecisionDebugger

pytestmark = pytest.mark.filterwarnings("ignore")


class Compiles:
    """A backend that runs the graph as it is and counts how often it is asked."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        return graph.forward


def doubled(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    PrecisionDebugger.save({"y": y}, "y")
    return torch.relu(y)


def doubled_alone(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return torch.relu(y)


class Doubles(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return doubled(x)


def test_it_is_left_out_of_compiled_code(tmp_path: Path, told: Any) -> None:
    debugger = debugger_for(tmp_path)
    backend = Compiles()
    compiled = torch.compile(doubled, backend=backend, fullgraph=True)
    for _ in range(3):
        x = torch.ones(2, requires_grad=True)
        compiled(x).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]
        debugger.step()
    assert backend.graphs == 1
    assert not (tmp_path / "dump").exists()
    (line,) = told()
    assert "inside code that is being compiled" in line and "torch.compiler.disable" in line


@pytest.mark.parametrize("way", ["instance", "step filter", "level"])
def test_what_else_is_compiled(way: str, tmp_path: Path) -> None:
    debugger = debugger_for(tmp_path, step=[5] if way == "step filter" else [])
    if way == "level":
        PrecisionDebugger._session.saving.off = True  # type: ignore[union-attr]

    def function(x: torch.Tensor) -> torch.Tensor:
        debugger.save(x, f"x{x.shape[0]}", save_backward=False)
        return x * 2

    compiled = torch.compile(function, backend=Compiles(), fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]


def test_where_it_runs_eagerly_it_works(tmp_path: Path) -> None:
    backend = Compiles()

    def body(debugger: Any) -> None:
        with torch.compiler.set_stance("force_eager"):
            torch.compile(doubled, backend=backend)(torch.ones(2, requires_grad=True)).sum().backward()
        apart = torch.compiler.disable(doubled)
        torch.compile(lambda x: apart(x * 1) * 3, backend=backend)(torch.ones(2, requires_grad=True)).sum().backward()

    data = save(tmp_path, body).data
    assert data["y.0.debug"]["y"]["Max"] == 2.0 and data["y_grad.0.debug"]["y"]["Max"] == 1.0
    assert data["y.1.debug"]["y"]["Max"] == 2.0 and data["y_grad.1.debug"]["y"]["Max"] == 3.0


def test_results_and_parameters_of_compiled_code(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(2, 2)
    backend = Compiles()
    compiled = torch.compile(layer, backend="aot_eager")
    counted = torch.compile(layer, backend=backend)

    def body(debugger: Any) -> None:
        debugger.save(layer.weight, "w")
        y = compiled(torch.ones(1, 2))
        debugger.save(y, "y")
        (y * 3).sum().backward()
        for _ in range(2):
            debugger.save(layer.weight, "again")
            counted(torch.ones(1, 2)).sum().backward()

    data = save(tmp_path, body).data
    assert data["y_grad.0.debug"]["Max"] == 3.0 and data["w_grad.0.debug"]["Max"] == 3.0
    counted(torch.ones(1, 2)).sum().backward()
    assert backend.graphs == 1  # no recompilation because of us


def test_export(tmp_path: Path) -> None:
    debugger_for(tmp_path)
    exported = torch.export.export(Doubles(), (torch.ones(2),))
    assert [node.target for node in exported.graph.nodes if node.op == "call_function"] == [
        torch.ops.aten.mul.Tensor,
        torch.ops.aten.relu.default,
    ]
    assert not (tmp_path / "dump").exists()


def test_traced_by_jit(tmp_path: Path) -> None:
    expected = [node.kind() for node in torch.jit.trace(lambda x: torch.relu(x * 2), torch.ones(2)).inlined_graph.nodes()]
    debugger = debugger_for(tmp_path)
    traced = torch.jit.trace(Doubles(), torch.ones(2), check_trace=False)
    assert [node.kind() for node in traced.inlined_graph.nodes()] == expected
    debugger.save(1, "after")
    debugger.step()
    assert step_of(tmp_path / "dump").keys == ["after.0.debug", "after_grad.0.debug"]


def test_traced_by_make_fx(tmp_path: Path) -> None:
    expected = make_fx(doubled_alone)(torch.ones(2)).code
    debugger_for(tmp_path, task="tensor")
    assert make_fx(doubled)(torch.ones(2)).code == expected


def test_symbolic_tracing(tmp_path: Path) -> None:
    expected = torch.fx.symbolic_trace(doubled_alone).code
    debugger_for(tmp_path, task="tensor")
    assert torch.fx.symbolic_trace(doubled).code == expected


@pytest.mark.parametrize("transform", ["grad", "vmap", "vmap of grad", "jvp"])
def test_function_transforms(transform: str, tmp_path: Path) -> None:
    """Tensors inside have no values of their own: their structure is recorded, and the result is what it is."""
    x = torch.ones(3, 2)

    def run(function: Any) -> torch.Tensor:
        if transform == "grad":
            return torch.func.grad(lambda t: function(t).sum())(x)
        if transform == "vmap":
            return torch.func.vmap(function)(x)
        if transform == "jvp":
            return torch.func.jvp(function, (x,), (x,))[1]
        return torch.func.vmap(torch.func.grad(lambda t: function(t).sum()))(x)

    expected = run(lambda x: torch.relu(x * 2))
    results: list[torch.Tensor] = []
    step = save(tmp_path, lambda debugger: results.append(run(doubled)), task="tensor")
    assert torch.equal(results[0], expected)
    assert step.data["y.0.debug"]["y"]["shape"] == ([3, 2] if "vmap" not in transform else [2])
    assert step.data["y.0.debug"]["y"]["Max"] is None
    assert step.data["y_grad.0.debug"]["y"] is None or step.data["y_grad.0.debug"]["y"]["Max"] is None


def test_fake_tensors(tmp_path: Path) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def body(debugger: Any) -> None:
        with FakeTensorMode():
            y = torch.ones(2, requires_grad=True) * 2
            debugger.save(y, "y")
            y.sum().backward()

    step = save(tmp_path, body, task="tensor")
    assert step.data["y.0.debug"]["shape"] == [2] and step.data["y.0.debug"]["Max"] is None
    assert "a fake tensor has no values" in step.errors and step.files == []


def test_user_modes_do_not_see_us(tmp_path: Path) -> None:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    leaf = torch.ones(2, requires_grad=True)
    values = [leaf, leaf * 2, torch.ones(2, 2).t(), torch.ones(2).to_sparse(), torch.ones(2, dtype=torch.complex64).conj(), (leaf * 2)[:1]]

    def body(debugger: Any) -> None:
        with Functions(), Operators():
            debugger.save(values, "v")

    save(tmp_path, body, task="tensor")
    assert seen == []
