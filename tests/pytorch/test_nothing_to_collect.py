"""A step that has ended is freed at once, and not when Python's garbage collector comes to it: that may be hundreds of steps later."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import configured
from torch import nn

from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch.dump import common_case, step_record
from msprobe.pytorch.dump.common_gradients import IN_PYTHON


class Residual(nn.Module):
    """Calls whose gradients come in several nodes, in place, and of a module that raises."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out, self.broken = nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + torch.softmax(self.out(self.norm(x)), -1)
        x += 1
        try:
            self.broken(x)
        except RuntimeError:
            pass
        return x


def garbage(step: Callable[[], None]) -> Counter[str]:
    """What the collector finds, by type, of objects that came into being in a step."""
    for _ in range(3):
        step()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        step()
        gc.collect()
        return Counter(f"{type(found).__module__}.{type(found).__qualname__}" for found in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def training(debugger: PrecisionDebugger) -> Callable[[], None]:
    model = nn.Sequential(Residual(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        with debugger.record(model):
            model(torch.randn(3, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


RECORDED: list[tuple[str, dict[str, Any]]] = [
    ("L0", {}),
    ("L1", {}),
    ("mix", {}),
    ("mix", {"task": "tensor"}),
    ("mix", {"task": "structure"}),
    ("L1", {"task": "nan_check"}),
    ("mix", {"statistics": {"summary_mode": "md5"}}),
    ("mix", {"statistics": {"list": ["relu", "Linear"]}}),
    ("mix", {"statistics": {"data_mode": ["forward"]}}),
    ("mix", {"async_dump": True}),
]


@pytest.mark.parametrize(("level", "settings"), RECORDED, ids=str)
def test_of_what_is_recorded(level: str, settings: dict[str, Any], tmp_path: Path) -> None:
    assert not garbage(training(configured(tmp_path, level=level, **settings)))


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_without_the_c(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common_case, "hot", None)
    monkeypatch.setattr(step_record, "COMMON", IN_PYTHON)
    assert not garbage(training(configured(tmp_path, level=level)))


def test_of_what_is_saved(tmp_path: Path) -> None:
    debugger = configured(tmp_path, level="debug")

    def step() -> None:
        x = torch.ones(3, requires_grad=True)
        y = x * 2
        debugger.save(y, "y")
        y.sum().backward()
        debugger.step()

    assert not garbage(step)


def test_of_a_step_without_a_backward_pass(tmp_path: Path) -> None:
    """Its graph, with our observers on it, outlives the step."""
    debugger = configured(tmp_path, level="mix")
    model = nn.Sequential(Residual(), nn.Linear(4, 2))
    outputs = []

    def step() -> None:
        outputs.clear()
        with debugger.record(model):
            outputs.append(model(torch.randn(3, 4)))

    assert not garbage(step)
