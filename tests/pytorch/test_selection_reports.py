"""What is said about names in list, scope and tensor_list that never came."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import configured
from sample_runs import Net

from msprobe.log import logger
from msprobe.pytorch import PrecisionDebugger

Told = Callable[[], list[str]]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Iterator[Told]:
    """The warnings about selected names since the last call."""
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.WARNING, "msprobe")

    def take() -> list[str]:
        texts = [record.getMessage() for record in caplog.records if record.getMessage().startswith(('"list"', '"scope"', '"tensor_list"'))]
        caplog.clear()
        return texts

    yield take
    logger.removeHandler(caplog.handler)


def step(debugger: PrecisionDebugger, told: Told, backward: bool = True) -> tuple[list[str], list[str]]:
    """One step; what was said at stop and at the end of the step."""
    model, x = Net(), torch.randn(3, 4)
    debugger.start(model)
    loss = model(x).pow(2).sum()
    if backward:
        loss.backward()
    debugger.stop()
    at_stop = told()
    debugger.step()
    return at_stop, told()


def test_a_name_that_never_came_is_told_once_with_the_nearest(tmp_path: Path, told: Told) -> None:
    debugger = configured(tmp_path, level="L1", list=["Functional.liner.0.forward", "softmax"])
    at_stop, at_end = step(debugger, told)
    assert len(at_stop) == 1 and at_end == []
    assert at_stop[0].startswith('"list": "Functional.liner.0.forward" has matched nothing so far; the nearest names that ran: ')
    assert '"Functional.linear" (numbers 0 to 2)' in at_stop[0]
    assert step(debugger, told) == ([], [])


def test_a_number_that_never_came(tmp_path: Path, told: Told) -> None:
    at_stop, _ = step(configured(tmp_path, level="mix", list=["Functional.linear.3.forward", "Module.b.Linear.forward.1"]), told)
    assert [text.partition("; ")[2] for text in at_stop] == [
        "Functional.linear ran with numbers 0 to 2 only",
        "Module.b.Linear ran with number 0 only",
    ]


@pytest.mark.parametrize(("level", "name"), [("L1", "Module.a.Mlp"), ("L0", "Functional.linear.0.forward")])
def test_a_name_that_the_level_excludes(tmp_path: Path, told: Told, level: str, name: str) -> None:
    (text,), _ = step(configured(tmp_path, level=level, list=[name]), told)
    assert f'level "{level}" records no ' in text


def test_gradients_that_never_came_are_told_at_the_end_of_the_step(tmp_path: Path, told: Told) -> None:
    debugger = configured(tmp_path, level="L1", list=["Functional.linear.0.backward"])
    at_stop, at_end = step(debugger, told, backward=False)
    assert at_stop == []
    assert [text.partition("; ")[2] for text in at_end] == ["Functional.linear ran, but no gradients came for it"]


def test_gradients_that_come_after_stop_are_no_complaint(tmp_path: Path, told: Told) -> None:
    debugger = configured(tmp_path, level="L1", list=["Functional.linear.0.backward"])
    model, x = Net(), torch.randn(3, 4)
    debugger.start(model)
    loss = model(x).sum()
    debugger.stop()
    loss.backward()
    debugger.step()
    assert told() == []


def test_a_scope_that_never_closes_is_told_at_the_end_of_every_step(tmp_path: Path, told: Told) -> None:
    """F42."""
    first, last = "Functional.relu.0.forward", "Functional.relu.1.forward"
    debugger = configured(tmp_path, level="L1", scope=[first, last])
    expected = f'"scope": "{last}" did not come: everything from "{first}" to the end of the step was recorded'
    assert step(debugger, told) == ([], [f"{expected}; Functional.relu ran with number 0 only"])
    assert step(debugger, told) == ([], [expected])


def test_a_scope_that_never_opens(tmp_path: Path, told: Told) -> None:
    debugger = configured(tmp_path, level="L1", scope=["Functional.relu.1.forward", "Functional.softmax.0.forward"])
    at_stop, at_end = step(debugger, told)
    assert at_stop == ['"scope": "Functional.relu.1.forward" has matched nothing so far; Functional.relu ran with number 0 only']
    assert at_end == []


def test_a_scope_in_the_wrong_order(tmp_path: Path, told: Told) -> None:
    debugger = configured(tmp_path, level="L1", scope=["Functional.softmax.0.forward", "Functional.relu.0.forward"])
    _, (text,) = step(debugger, told)
    assert text.startswith('"scope": "Functional.relu.0.forward" came before the first name')


def test_tensor_list_and_risk_level(tmp_path: Path, told: Told) -> None:
    debugger = configured(tmp_path, level="L1", risk_level="CORE", tensor_list=["__mul__", "softmax"])
    at_stop, at_end = step(debugger, told)
    assert at_stop == [
        '"tensor_list": "__mul__" has matched nothing so far; "Tensor.__mul__" ran, but risk_level leaves it out: set "risk_level" to "ALL"'
    ]
    assert at_end == []


@pytest.mark.parametrize("section", [{}, {"list": ["relu"]}, {"scope": ["Functional.relu.0.forward", "Functional.softmax.0.backward"]}])
def test_nothing_is_said_where_everything_came(tmp_path: Path, told: Told, section: dict[str, Any]) -> None:
    assert step(configured(tmp_path, level="mix", **section), told) == ([], [])
