"""What a signal handler of the user's raises is the user's, wherever our code was."""

from __future__ import annotations

import gc
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from msprobe.contain import let_through
from msprobe.pytorch import PrecisionDebugger


class Timeout(Exception):
    pass


def on_alarm(number: int, frame: Any) -> None:
    raise Timeout


@pytest.fixture
def alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_an_error_of_ours_stays_here() -> None:
    try:
        raise ValueError("ours")
    except ValueError as error:
        let_through(error)


def test_what_a_handler_raised_goes_on(alarm: None) -> None:
    with pytest.raises(Timeout):
        try:
            signal.raise_signal(signal.SIGALRM)
        except Exception as error:
            let_through(error)


def test_every_timeout_arrives_while_recording(alarm: None, tmp_path: Path) -> None:
    PrecisionDebugger._instance = PrecisionDebugger._session = None
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="mix")
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    raised = arrived = 0

    def count(number: int, frame: Any) -> None:
        nonlocal raised
        raised += 1
        raise Timeout

    signal.signal(signal.SIGALRM, count)
    gc.disable()  # what is raised while the collector calls somebody back is lost, and hypothesis has it call
    for number in range(60):
        try:
            debugger.start(model)
            signal.setitimer(signal.ITIMER_REAL, 0.0002 + 0.00003 * number)
            for _ in range(3):
                model(torch.randn(2, 4)).sum().backward()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Timeout:
            arrived += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        debugger.stop()
        debugger.step()
    gc.enable()
    PrecisionDebugger._instance = PrecisionDebugger._session = None
    # One that is raised inside a destructor is lost without us too; before they were let through, six of seven were.
    assert raised > 20 and arrived >= 0.9 * raised
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    for path in tmp_path.glob("step*/*/dump.json"):
        json.loads(path.read_text())
