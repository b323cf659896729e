"""Compiled and scripted code in a recorded window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from capturing import Run, configured, forget_debugger

pytestmark = pytest.mark.filterwarnings("ignore")


class Compiles:
    """A backend that runs the graph as it is and counts how often it is asked."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        return graph.forward


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.act = nn.Linear(3, 4), nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.fc(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block, self.out = Block(), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.block(x)) * 2


def net() -> Net:
    torch.manual_seed(3)
    return Net()


def train(model: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.clone().requires_grad_()
    loss = torch.tanh(model(x)).sum()
    loss.backward()
    assert x.grad is not None
    return loss.detach(), x.grad


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """level -> the dump of the same net that is not compiled."""
    made: dict[str, Any] = {}
    for level in ("L0", "L1", "mix"):
        forget_debugger()
        directory = tmp_path_factory.mktemp(level)
        debugger = configured(directory, level=level, risk_level="ALL")
        model = net()
        debugger.start(model)
        train(model, torch.ones(2, 3))
        debugger.step()
        made[level] = Run(directory / "dump").step()
        forget_debugger()
    return made


HOW = {
    "torch.compile(model)": lambda model, backend: torch.compile(model, backend=backend),
    "model.compile()": lambda model, backend: (model.compile(backend=backend), model)[1],
    "a compiled submodule": lambda model, backend: (setattr(model, "block", torch.compile(model.block, backend=backend)), model)[1],
    "submodule.compile()": lambda model, backend: (model.block.compile(backend=backend), model)[1],
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("compiled_before", [True, False])
def test_compiled_code_is_recorded_as_the_eager_one(
    tmp_path: Path, eager: dict[str, Any], how: str, level: str, compiled_before: bool
) -> None:
    """Same names, entries and parents; what was compiled is used again afterwards."""
    torch._dynamo.reset()
    backend = Compiles()
    model = net()
    compiled = HOW[how](model, backend)
    x = torch.ones(2, 3)
    if compiled_before:
        first = train(compiled, x)
        model.zero_grad()
    graphs = backend.graphs
    assert (graphs > 0) == compiled_before
    debugger = configured(tmp_path, level=level, risk_level="ALL")
    debugger.start(compiled)
    watched = train(compiled, x)
    debugger.stop()
    debugger.step()
    assert backend.graphs == graphs
    model.zero_grad()
    again = train(compiled, x)
    assert backend.graphs == graphs if compiled_before else backend.graphs > 0
    for a, b in zip(again, first if compiled_before else watched, strict=True):
        assert torch.equal(a, b)
    step = Run(tmp_path / "dump").step()
    assert step.data == eager[level].data and step.names == eager[level].names
    assert step.construct == eager[level].construct


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_backends_of_torch(tmp_path: Path, eager: dict[str, Any], backend: str) -> None:
    torch._dynamo.reset()
    model = net()
    compiled = torch.compile(model, backend=backend)
    x = torch.ones(2, 3)
    before = train(compiled, x)
    model.zero_grad()
    compiles = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    debugger = configured(tmp_path, level="mix", risk_level="ALL")
    for _ in range(2):
        debugger.start(compiled)
        train(compiled, x)
        debugger.stop()
        debugger.step()
        model.zero_grad()
    after = train(compiled, x)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == compiles
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    for number in (0, 1):
        assert Run(tmp_path / "dump").step(number).data == eager["mix"].data


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_functions_compiled_inside_the_window_run_eagerly(tmp_path: Path, level: str) -> None:
    torch._dynamo.reset()
    backend = Compiles()

    @torch.compile(backend=backend)
    def work(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) * 2

    debugger = configured(tmp_path, level=level)
    debugger.start(net())
    work(torch.ones(2))
    debugger.step()
    assert backend.graphs == 0
    assert ("Torch.relu.0.forward" in Run(tmp_path / "dump").step().data) == (level != "L0")
    work(torch.ones(2))
    assert backend.graphs == 1


def test_the_stance_of_the_user_is_put_back(tmp_path: Path) -> None:
    torch._dynamo.reset()
    backend = Compiles()
    work = torch.compile(lambda x: x + 1, backend=backend)
    debugger = configured(tmp_path)
    torch.compiler.set_stance("force_eager")
    try:
        debugger.start()
        work(torch.ones(2))
        debugger.step()
        work(torch.ones(2))
        assert backend.graphs == 0
    finally:
        torch.compiler.set_stance("default")
    work(torch.ones(2))
    assert backend.graphs == 1


def test_the_log_says_that_compiled_code_ran_eagerly(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    torch._dynamo.reset()
    model = torch.compile(net(), backend="eager")
    debugger = configured(tmp_path, level="mix")
    debugger.start(model)
    model(torch.ones(1, 3))
    debugger.step()
    assert "eager" in capfd.readouterr().err


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) if x.sum() > 0 else x


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(1, 3))], ids=["script", "trace"])
def test_scripted_submodules_are_left_alone(tmp_path: Path, level: str, make: Any) -> None:
    model = nn.Sequential(make(Branches()), nn.Sequential(nn.Linear(3, 2)))
    x = torch.ones(1, 3)
    plain = train(model, x)
    model.zero_grad()
    debugger = configured(tmp_path, level=level)
    debugger.start(model)
    watched = train(model, x)
    debugger.step()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    step = Run(tmp_path / "dump").step()
    if level != "L1":
        assert "Module.1.0.Linear.forward.0" in step.data
        assert "scripted module takes no hooks" in step.errors
    if level != "L0":
        assert "Functional.linear.0.forward" in step.data


def test_a_scripted_model(tmp_path: Path) -> None:
    """As the model itself: nothing to hook, one line says so."""
    model = torch.jit.script(Branches())
    debugger = configured(tmp_path, level="L0")
    debugger.start(model)
    model(torch.ones(1, 3))
    debugger.step()
    assert "takes no hooks" in Run(tmp_path / "dump").step().errors


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_scripting_and_tracing_inside_the_window(tmp_path: Path, level: str) -> None:
    """F9, F14: the user traces a module while it is watched."""
    model = nn.Sequential(nn.Linear(3, 3))
    debugger = configured(tmp_path, level=level)
    debugger.start(model)
    traced = torch.jit.trace(model, torch.ones(1, 3))
    scripted = torch.jit.script(nn.Linear(3, 3))
    scripted(torch.ones(1, 3))
    debugger.step()
    assert torch.equal(traced(torch.ones(1, 3)), model(torch.ones(1, 3)))
    assert "aten::linear" in str(traced.inlined_graph)
    assert Run(tmp_path / "dump").step().data is not None


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_fx_and_export_inside_the_window(tmp_path: Path, level: str) -> None:
    model = net()
    debugger = configured(tmp_path, level=level)
    debugger.start(model)
    graph = torch.fx.symbolic_trace(model)
    exported = torch.export.export(net(), (torch.ones(2, 3),))
    debugger.step()
    assert "msprobe" not in graph.code
    assert torch.equal(graph(torch.ones(2, 3)), model(torch.ones(2, 3)))
    assert torch.equal(exported.module()(torch.ones(2, 3)), net()(torch.ones(2, 3)))
