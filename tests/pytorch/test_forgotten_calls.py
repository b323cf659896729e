"""A stop() or a step() that was forgotten is told, once, with what to add."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from capturing import configured, forget_debugger
from torch import nn

from msprobe.pytorch import PrecisionDebugger

Told = Callable[[], list[str]]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Told]:
    """The warnings."""
    logger = logging.getLogger("msprobe")
    logger.addHandler(caplog.handler)
    yield lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    logger.removeHandler(caplog.handler)
    forget_debugger()


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU())


def iterate(model: nn.Module, *optimizers: torch.optim.Optimizer) -> None:
    model(torch.ones(1, 2)).sum().backward()
    for optimizer in optimizers:
        optimizer.step()


def debugger_of(tmp_path: Path, level: str) -> PrecisionDebugger:
    return configured(tmp_path, level=level)


def test_a_second_start_names_the_first(tmp_path: Path, told: Told) -> None:
    debugger, model = debugger_of(tmp_path, "mix"), net()
    for _ in range(3):
        debugger.start(model)
        iterate(model)
    (text,) = [text for text in told() if text.startswith("start() at ")]
    assert text.count("test_forgotten_calls.py:") == 2 and "end each iteration with stop() and step()" in text


def test_starts_that_are_stopped_or_stepped_are_fine(tmp_path: Path, told: Told) -> None:
    debugger, model = debugger_of(tmp_path, "mix"), net()
    for end in (debugger.stop, debugger.step, debugger.stop):
        debugger.start(model)
        iterate(model)
        end()
    debugger.start(model)
    with debugger.record(model):  # tells of itself
        iterate(model)
    debugger.step()
    assert [text for text in told() if text.startswith("start() at ")] == []


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_forgotten_step(level: str, tmp_path: Path, told: Told) -> None:
    debugger, model = debugger_of(tmp_path, level), net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):  # two steps in which it is forgotten, one warning
        debugger.start(model)
        for _ in range(3):
            iterate(model, optimizer)
        debugger.stop()
        debugger.step()
    (text,) = [text for text in told() if "steps of SGD" in text]
    assert text.startswith("step 0 holds 3 steps of SGD, with calls of the model in between")
    assert "debugger.step()" in text and "with debugger.record(model):" in text


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_what_is_one_step(level: str, tmp_path: Path, told: Told) -> None:
    """Gradient accumulation, two optimizers, a closure that runs the model several times, the model run again behind the optimizer."""
    debugger, model = debugger_of(tmp_path, level), net()
    optimizers = [torch.optim.SGD(model.parameters(), 0.1), torch.optim.SGD(model.parameters(), 0.1)]

    def several() -> None:
        iterate(model)
        iterate(model, optimizers[0])
        iterate(model, optimizers[1])
        model(torch.ones(1, 2))

    def closure() -> torch.Tensor:
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        return loss

    def lbfgs() -> None:
        torch.optim.LBFGS(model.parameters(), max_iter=3).step(closure)

    for action in (several, lbfgs, lambda: iterate(model, optimizers[0])):
        debugger.start(model)
        action()
        debugger.stop()
        debugger.step()
    assert [text for text in told() if "steps of" in text] == []
