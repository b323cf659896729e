"""Tracing, scripting and compiling inside the window give what they give without the tool."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import Run, configured
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

LEVELS = ("L0", "L1", "mix")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(1 - self.layers(x) * x.shape[0], dim=-1)


X = torch.ones(3, 4)


def trace(model: nn.Module) -> Any:
    return [node.kind() for node in torch.jit.trace(model, X).inlined_graph.nodes()]


def script(model: nn.Module) -> Any:
    return torch.jit.script(model)(X).tolist()


def symbolic(model: nn.Module) -> Any:
    return torch.fx.symbolic_trace(model).code


def proxies(model: nn.Module) -> Any:
    return make_fx(model)(X).code


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")(X).tolist()


WAYS: list[Callable[[nn.Module], Any]] = [trace, script, symbolic, proxies, compiled]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_same_result(way: Callable[[nn.Module], Any], level: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Model().eval()
    expected = way(model)
    debugger = configured(tmp_path, level=level, risk_level="ALL")
    debugger.start(model)
    assert way(model) == expected
    model(X)
    debugger.stop()
    debugger.step()
    assert way(model) == expected
    assert Run(tmp_path / "dump").step().names


@pytest.mark.parametrize("level", LEVELS)
def test_a_compiled_model_is_recorded_and_compiled_again_afterwards(level: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Model().eval()
    runs: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            runs.append(1)
            return graph.forward(*args)

        return run

    fast = torch.compile(model, backend=backend)
    expected = fast(X)
    before = len(runs)
    stance = sys.modules["torch._dynamo.eval_frame"]._stance
    debugger = configured(tmp_path, level=level, risk_level="ALL")
    debugger.start(fast)
    assert torch.equal(fast(X), expected)
    assert len(runs) == before, "the window runs eagerly"
    debugger.stop()
    debugger.step()
    assert sys.modules["torch._dynamo.eval_frame"]._stance == stance
    assert torch.equal(fast(X), expected)
    assert len(runs) == 2 * before > 0
    names = Run(tmp_path / "dump").step().names
    assert not any("_orig_mod" in name for name in names)
    if level != "L1":
        assert "Module.layers.0.Linear.forward.0" in names
    if level != "L0":
        assert "Functional.linear.0.forward" in names
