"""Saving changes nothing: loss, gradients, parameters and generators have the bits of the run without it, and nothing is left."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from debug_json import debugger_for, step_of
from nets import NETS, differences, train

from msprobe.pytorch import PrecisionDebugger

CASES = [*((name, "statistics") for name in NETS), *((name, "tensor") for name in sorted(NETS)[::3])]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def quiet_directory(directory: Path) -> Path:
    (directory / "quiet").mkdir()
    return directory / "quiet"


def saving_hooks(model: Any) -> list[Any]:
    """Every module saves what it is given, gives, and holds."""
    models = model if isinstance(model, list) else [model]
    handles = []
    for module in (m for model in models for m in model.modules() if not isinstance(m, torch.jit.ScriptModule)):

        def hook(module: Any, inputs: Any, output: Any) -> None:
            PrecisionDebugger.save({"in": inputs, "out": output, "own": dict(module._parameters)}, type(module).__name__)

        handles.append(module.register_forward_hook(hook))
    return handles


@pytest.mark.parametrize(("name", "task"), CASES)
def test_training_has_the_same_bits(name: str, task: str, tmp_path: Path) -> None:
    def run(start: Any, stop: Any) -> dict[str, Any]:
        handles: list[Any] = []

        def begin(model: Any) -> None:
            handles.extend(saving_hooks(model))
            start()

        def end() -> None:
            while handles:
                handles.pop().remove()
            stop()

        return train(NETS[name], 0.2, begin, end)

    PrecisionDebugger._instance = PrecisionDebugger._session = None
    quiet = debugger_for(quiet_directory(tmp_path), step=[99])  # the same hooks, and nothing is recorded
    expected = run(lambda: None, quiet.step)
    PrecisionDebugger._instance = PrecisionDebugger._session = None
    debugger = debugger_for(tmp_path, task=task)
    got = run(lambda: None, debugger.step)
    assert differences(expected, got) == []
    saved = step_of(tmp_path / "dump", 1).keys
    assert saved, "nothing was recorded, so nothing was shown"


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.3), nn.Linear(4, 2))


def one_step(model: nn.Module, saver: Any) -> torch.Tensor:
    torch.manual_seed(2)
    x = torch.randn(3, 4, requires_grad=True)
    saver(x, "x")
    saver(list(model.parameters()), "parameters")
    y = model(x)
    saver([y, y.mean()], "y")
    y.mul_(2)
    saver(y, "changed")
    y.square().sum().backward()
    draw = torch.rand(4)
    parts = [x.grad, *(p.grad for p in model.parameters()), y.detach(), draw]
    return torch.cat([part.flatten() for part in parts if part is not None])


def test_draws_and_gradients(tmp_path: Path) -> None:
    expected = one_step(net(), lambda *a: None)
    debugger = debugger_for(tmp_path, task="tensor")
    got = one_step(net(), debugger.save)
    assert got.numpy().tobytes() == expected.numpy().tobytes()


def test_nothing_is_left_after_step(tmp_path: Path) -> None:
    debugger = debugger_for(tmp_path)
    model = net()
    before = {name: dict(vars(p)) for name, p in model.named_parameters()}
    dictionaries = {name: set(vars(m)) for name, m in model.named_modules()}
    one_step(model, debugger.save)
    session = PrecisionDebugger._session
    assert session is not None and session.saving.step is not None
    step = weakref.ref(session.saving.step)
    debugger.step()
    for name, p in model.named_parameters():
        assert p._backward_hooks is None and p._post_accumulate_grad_hooks is None and dict(vars(p)) == before[name]
    assert {name: set(vars(m)) for name, m in model.named_modules()} == dictionaries
    gc.collect()
    assert step() is None


class Marked(torch.autograd.Function):
    """Its nodes can be referred to weakly."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def test_tensors_are_not_kept_alive(tmp_path: Path) -> None:
    debugger = debugger_for(tmp_path)
    leaf, y = torch.ones(5, requires_grad=True), Marked.apply(torch.ones(5, requires_grad=True))
    node = weakref.ref(y.grad_fn)
    debugger.save([leaf, y], "v")
    gone = [weakref.ref(leaf), weakref.ref(y)]
    del leaf, y
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
    assert node() is None


def test_sequence_numbers_of_the_graph_do_not_move(tmp_path: Path) -> None:
    """By them the engine orders what it does."""
    debugger = debugger_for(tmp_path, task="tensor")
    leaf = torch.ones(2, requires_grad=True)
    first = leaf * 2
    debugger.save([leaf, first, first.t() if first.dim() > 1 else first[:1], torch.ones(2).to_sparse()], "v")
    taken = first * 2
    assert taken.grad_fn is not None and first.grad_fn is not None
    assert taken.grad_fn._sequence_nr() - first.grad_fn._sequence_nr() == 2  # the one between is the view's


def test_a_graph_that_outlives_its_step_keeps_nothing_of_it(tmp_path: Path) -> None:
    debugger = debugger_for(tmp_path, task="tensor")
    y = torch.ones(2, requires_grad=True) * 2
    debugger.save(y, "y")
    session = PrecisionDebugger._session
    assert session is not None and session.saving.step is not None
    writer, encoder = weakref.ref(session.saving.step.writer), weakref.ref(session.saving.step._encoder)
    debugger.step()
    gc.collect()
    assert writer() is None and encoder() is None
    y.sum().backward()
