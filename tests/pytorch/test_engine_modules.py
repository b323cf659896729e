"""Modules that vLLM calls without running their hooks. Stand-ins, in the shape of vLLM's classes; the real ones: integrations/vllm."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from capturing import Run, Step, configured, record
from torch import nn

from msprobe.pytorch.dump.module_dump import engine
from msprobe.pytorch.dump.recorder import Recorder


@pytest.fixture(autouse=True)
def with_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))


class Rotary(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.roll(1, -1)


class Layer(nn.Module):
    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.proj = nn.Linear(4, 4)
        self.rotary = rotary

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rotary(self.proj(x))


class Backbone(nn.Module):
    """As vLLM's decorator leaves a class that may be compiled."""

    def __init__(self) -> None:
        super().__init__()
        rotary = Rotary()
        self.layers = nn.ModuleList([Layer(rotary), Layer(rotary)])
        self.do_not_compile = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def forward(self, x: torch.Tensor, *, gain: float = 1.0) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x) * gain
        return x


class Method:
    def apply(self, layer: nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return nn.functional.linear(x, layer.weight, bias)


class ParallelLMHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 4))
        self.quant_method = Method()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("is never called")


class Logits(nn.Module):
    def forward(self, head: ParallelLMHead, x: torch.Tensor) -> torch.Tensor:
        return head.quant_method.apply(head, x, bias=None)


class VocabParallelEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 4))
        self.quant_method = Method()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.weight[tokens]


class LogitsProcessor(Logits):
    pass


class Tied(nn.Module):
    """The head is the embedding of the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Backbone()
        self.model.embed_tokens = VocabParallelEmbedding()
        self.spare = VocabParallelEmbedding()
        self.lm_head = self.model.embed_tokens
        self.logits_processor = LogitsProcessor()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.logits_processor(self.lm_head, self.model(self.lm_head(tokens)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = Backbone()
        self.lm_head = ParallelLMHead()
        self.logits = Logits()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits(self.lm_head, self.model(x, gain=2.0))


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


X = torch.arange(8.0).reshape(2, 4)
BACKBONE, HEAD = "Module.model.Backbone.forward.0", "Module.lm_head.ParallelLMHead.forward.0"
ROTARY = ["Module.model.layers.0.rotary.Rotary.forward.0", "Module.model.layers.1.rotary.Rotary.forward.0"]


def recorded(path: Path, net: nn.Module, level: str = "mix", body: Callable[[], Any] | None = None) -> Step:
    with torch.inference_mode():
        return record(path, body or (lambda: net(X)), model=net, level=level)


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_each_is_recorded_in_its_place(tmp_path: Path, net: Net, level: str) -> None:
    with torch.inference_mode():
        before = net(X)
    results: list[torch.Tensor] = []
    step = recorded(tmp_path, net, level, lambda: results.append(net(X)))
    assert torch.equal(results[0], before)
    construct, data = step.construct, step.data
    assert construct[BACKBONE] is None
    assert construct["Module.model.layers.0.Layer.forward.0"] == BACKBONE
    assert construct[HEAD] == "Module.logits.Logits.forward.0"
    assert [name for name in data if "Rotary" in name] == ROTARY
    assert [construct[name] for name in ROTARY] == [f"Module.model.layers.{i}.Layer.forward.0" for i in (0, 1)]
    assert data[BACKBONE]["input_kwargs"] == {"gain": {"type": "float", "value": 2.0}}
    assert data[HEAD]["output"][0]["shape"] == [2, 5] and data[HEAD]["parameters"]["weight"]["shape"] == [5, 4]
    if level == "mix":
        assert construct["Functional.linear.2.forward"] == HEAD
    assert any("in forward" in frame for frame in step.frames(BACKBONE))


def test_nothing_is_left_behind(tmp_path: Path, net: Net) -> None:
    objects = [*net.modules(), net.lm_head.quant_method]
    before = [dict(one.__dict__) for one in objects]
    debugger = configured(tmp_path, level="mix")
    for _ in range(2):
        debugger.start(net)
        net(X)
        assert "forward" in net.model.__dict__ and "apply" in net.lm_head.quant_method.__dict__
        debugger.stop()
        debugger.step()
        assert [dict(one.__dict__) for one in objects] == before
    run = Run(tmp_path / "dump")
    assert run.step(0).names == run.step(1).names


def test_an_exception_passes(tmp_path: Path, net: Net) -> None:
    def body() -> None:
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            net(torch.ones(2, 3))
        net(X)

    step = recorded(tmp_path, net, "L0", body)
    assert "Module.model.Backbone.forward.1" in step.data and step.data[BACKBONE]["output"] == [None]
    assert "forward" not in net.lm_head.__dict__


def test_hooks_of_somebody_else_are_not_run(tmp_path: Path, net: Net) -> None:
    seen: list[Any] = []
    net.model.register_forward_hook(lambda *_: seen.append(1))
    net.lm_head.register_forward_pre_hook(lambda *_: seen.append(2))
    step = recorded(tmp_path, net)
    assert seen == []
    assert BACKBONE not in step.data and HEAD not in step.data
    assert "Module.model.Backbone: it has hooks of somebody else's" in step.errors
    assert step.construct["Module.model.layers.0.Layer.forward.0"] is None


@pytest.mark.parametrize("name", ["only_hooks_of", "is_compiling"])
def test_what_this_torch_does_not_have_is_told_and_the_model_runs(
    tmp_path: Path, net: Net, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def missing(*_: Any) -> bool:
        raise AttributeError("_forward_hooks")

    with torch.inference_mode():
        before = net(X)
    results: list[torch.Tensor] = []

    def body() -> None:
        with monkeypatch.context() as other:
            other.setattr(engine.torch_internals, name, missing)
            results.append(net(X))

    if name == "is_compiling":  # the recorder asks this as well, which is not what is tested here
        monkeypatch.setattr(Recorder, "module_before", lambda *_: None)
        monkeypatch.setattr(Recorder, "module_after", lambda *_: None)
    step = recorded(tmp_path, net, "L0", body)
    assert torch.equal(results[0], before)
    assert BACKBONE not in step.data and HEAD not in step.data
    assert "Module.model.Backbone: whether it has hooks" in step.errors and "Module.lm_head.ParallelLMHead: whether" in step.errors


def test_a_head_that_is_the_embedding(tmp_path: Path) -> None:
    tied, tokens = Tied(), torch.tensor([1, 4])
    with torch.inference_mode():
        before = tied(tokens)
    results: list[torch.Tensor] = []
    step = recorded(tmp_path, tied, "L0", lambda: results.append(tied(tokens)))
    assert torch.equal(results[0], before)
    head = "Module.lm_head.VocabParallelEmbedding.forward.0"
    assert [name for name in step.names if "Embedding" in name] == ["Module.model.embed_tokens.VocabParallelEmbedding.forward.0", head]
    assert step.construct[head] == "Module.logits_processor.LogitsProcessor.forward.0"
    assert step.data[head]["output"][0]["shape"] == [2, 5]
    assert "apply" not in tied.lm_head.quant_method.__dict__ and "forward" not in tied.lm_head.__dict__


def test_nothing_of_a_model_is_kept_alive(tmp_path: Path, net: Net) -> None:
    debugger = configured(tmp_path, level="L0")
    model = Net()
    debugger.start(model)
    model(X)
    debugger.stop()
    debugger.step()
    gone = [weakref.ref(module) for module in model.modules()]
    del model
    gc.collect()
    assert [one() for one in gone] == [None] * len(gone)
    debugger.start(net)
    net(X)
    debugger.stop()
    debugger.step()
    run = Run(tmp_path / "dump")
    assert run.step(0).names == run.step(1).names


def test_one_method_for_several_modules(tmp_path: Path, net: Net) -> None:
    other = SimpleNamespace(weight=torch.ones(3, 4))
    step = recorded(tmp_path, net, "mix", lambda: net.lm_head.quant_method.apply(other, X))
    assert [name for name in step.names if "lm_head" in name] == [] and "Functional.linear.0.forward" in step.names


def test_without_vllm_a_shared_module_has_one_name(tmp_path: Path, net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vllm")
    step = recorded(tmp_path, net, "L0")
    assert [name for name in step.names if "Rotary" in name] == [ROTARY[0], ROTARY[0].replace("forward.0", "forward.1")]
    assert BACKBONE not in step.data


def test_a_shared_module_called_from_elsewhere(tmp_path: Path, net: Net) -> None:
    step = recorded(tmp_path, net, "L0", lambda: net.model.layers[1].rotary(X))
    assert step.names == [ROTARY[0]]
