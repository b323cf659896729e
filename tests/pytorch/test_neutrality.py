"""Watching changes nothing: losses, gradients, parameters, buffers and generators have the bits of the run without the tool."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import Run, configured
from nets import NETS, differences, train

LEVELS = ("L0", "L1", "mix")
TASKS = ("statistics", "tensor")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors; a second thread only costs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def plain(name: str) -> dict[str, Any]:
    """The outcome without the tool."""
    return train(NETS[name], 0.2, lambda model: None, lambda: None)


# What tensor does at L0 and L1 it does at mix too.
KINDS = [pytest.param(level, task, marks=[pytest.mark.slow] * (task == "tensor" and level != "mix")) for level in LEVELS for task in TASKS]


@pytest.mark.parametrize(("level", "task"), KINDS)
@pytest.mark.parametrize("name", NETS)
def test_training_has_the_same_bits(name: str, level: str, task: str, tmp_path: Path) -> None:
    expected = plain(name)
    debugger = configured(tmp_path, level=level, task=task, risk_level="ALL")

    def stop() -> None:
        debugger.stop()
        debugger.step()

    got = train(NETS[name], 0.2, debugger.start, stop)
    assert differences(expected, got) == []
    run = Run(tmp_path / "dump")
    assert run.steps == [0, 1, 2]
    assert run.step(2).names, "nothing was recorded, so nothing was shown"
