"""Evaluation keeps torch's fused inference path: with a padding mask the slow one gives other numbers, not rounding."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import Run, configured
from nets import bits, randomness, seed
from torch import nn
from torch.overrides import BaseTorchFunctionMode

LEVELS = ("L0", "L1", "mix")
TASKS = ("statistics", "tensor")
GRADS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}


class Classifier(nn.Module):
    def __init__(self, norm_first: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first)
        self.head = nn.Linear(8, 3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(words), src_key_padding_mask=words == 0))


def words() -> torch.Tensor:
    return torch.tensor([[3, 4, 5, 0, 0], [7, 8, 9, 10, 11], [1, 0, 0, 0, 0]])


def evaluate(model: nn.Module, grad: str, *args: Any, **kwargs: Any) -> list[Any]:
    seed()
    with GRADS[grad]():
        out = model(*args, **kwargs)
    return [bits(t) for t in (out if isinstance(out, tuple) else (out,))] + [randomness()]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("grad", GRADS)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_encoder_with_a_padding_mask(norm_first: bool, grad: str, level: str, task: str, tmp_path: Path) -> None:
    seed()
    model = Classifier(norm_first).eval()
    expected = evaluate(model, grad, words())
    debugger = configured(tmp_path, level=level, task=task, risk_level="ALL")
    debugger.start(model)
    assert evaluate(model, grad, words()) == expected
    debugger.stop()
    debugger.step()
    names = Run(tmp_path / "dump").step().names
    if level != "L1":
        assert "Module.encoder.TransformerEncoder.forward.0" in names
    if level != "L0":
        assert any("linear" in name for name in names), "what comes after the encoder is recorded"


def test_the_padding_mask_tells_the_two_paths_apart() -> None:
    """Otherwise the tests above could not fail."""
    seed()
    model = Classifier(False).eval()
    fast = evaluate(model, "no_grad", words())
    with BaseTorchFunctionMode():
        slow = evaluate(model, "no_grad", words())
    assert fast != slow


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_attention_and_layer_alone(need_weights: bool, level: str, tmp_path: Path) -> None:
    seed()
    attention = nn.MultiheadAttention(8, 2, 0.1, batch_first=True)
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True)
    models = [nn.Sequential(attention).eval(), nn.Sequential(layer).eval()]
    x, padding = torch.randn(3, 5, 8), words() == 0

    def run() -> list[Any]:
        found = evaluate(attention, "no_grad", x, x, x, key_padding_mask=padding, need_weights=need_weights)
        return found + evaluate(layer, "no_grad", x, src_key_padding_mask=padding)

    expected = run()
    debugger = configured(tmp_path, level=level)
    debugger.start(models)
    assert run() == expected
    debugger.stop()
    debugger.step()


@pytest.mark.parametrize("level", LEVELS)
def test_evaluation_between_training_steps_in_one_window(level: str, tmp_path: Path) -> None:
    """The mode comes back after the fast path, also when the encoder raises."""

    def run(start: Callable[[Any], None], stop: Callable[[], None]) -> list[Any]:
        seed()
        model = Classifier(False)
        found = []
        start(model)
        for _ in range(2):
            model.train()
            loss = model(words()).square().mean()
            loss.backward()
            model.eval()
            with torch.no_grad():
                found += [bits(loss), bits(model(words()))]
                with pytest.raises((RuntimeError, AssertionError)):
                    model.encoder(torch.randn(2, 3))
        found += [bits(p.grad) for p in model.parameters()]
        stop()
        return [*found, randomness()]

    expected = run(lambda model: None, lambda: None)
    debugger = configured(tmp_path, level=level, risk_level="ALL")
    assert run(debugger.start, lambda: (debugger.stop(), debugger.step())) == expected
    names = Run(tmp_path / "dump").step().names
    if level != "L0":
        assert "Functional.embedding.3.forward" in names, "calls after the fast path are recorded"
