"""Several backward passes that run over one call at a time: each has its own entry."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import Run, Step, configured, record
from torch import nn

from msprobe.pytorch.dump.graph_call import GraphCall

both = pytest.mark.parametrize("path", [{}, {"list": ["Module"]}], ids=["c", "python"])
ENTRY = "Module.0.Sine.backward.0"
SLOPE = pytest.approx(2 * torch.cos(torch.tensor(2.0)).item())


class Sine(nn.Module):
    """sin(2 * x): two nodes, and a hook between them."""

    def __init__(self, hook: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self.hook = hook
        self.between = torch.ones(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.between = x * 2
        self.between.register_hook(self.hook)
        return self.between.sin()


def means(step: Step) -> dict[str, tuple[list[Any], list[Any]]]:
    def of(side: list[Any]) -> list[Any]:
        return [record and record["Mean"] for record in side]

    return {name: (of(entry["input"]), of(entry["output"])) for name, entry in step.data.items() if ".backward." in name}


@both
def test_a_backward_pass_inside_another_one(path: dict[str, Any], tmp_path: Path) -> None:
    x = torch.ones(3, requires_grad=True)

    def hook(_: torch.Tensor) -> None:
        if outer.pop():
            outer.append(False)
            inside.append(torch.autograd.grad(sine.between, x, torch.ones(3), retain_graph=True)[0])

    inside: list[torch.Tensor] = []
    outer = [False, True]
    sine = Sine(hook)
    step = record(tmp_path, lambda: sine(x).sum().backward(), model=nn.Sequential(sine), level="L0", **path)
    assert means(step) == {ENTRY: ([1.0], [SLOPE]), f"{ENTRY}.pass1": ([None], [2.0])}
    assert step.errors == "" and inside[0].tolist() == [2.0] * 3 and x.grad is not None


@both
def test_two_threads_over_one_graph(path: dict[str, Any], tmp_path: Path) -> None:
    """Each is half through when the other is."""
    x, meeting = torch.ones(3, requires_grad=True), threading.Barrier(2, timeout=60)
    sine = Sine(lambda _: (meeting.wait(), None)[1])

    def body() -> None:
        y = sine(x).sum()
        threads = [threading.Thread(target=torch.autograd.grad, args=(y * k, x), kwargs={"retain_graph": True}) for k in (1, 10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = means(record(tmp_path, body, model=nn.Sequential(sine), level="L0", **path))
    assert set(found) == {ENTRY, f"{ENTRY}.pass1"}
    of_ten = pytest.approx(20 * torch.cos(torch.tensor(2.0)).item())
    assert sorted(found.values()) == sorted([([1.0], [SLOPE]), ([10.0], [of_ten])], key=lambda sides: sides[0])


@both
def test_a_pass_that_an_error_ended_is_complete_with_the_step(path: dict[str, Any], tmp_path: Path) -> None:
    x, fails = torch.ones(3, requires_grad=True), [True]

    def hook(_: torch.Tensor) -> None:
        if fails.pop():
            raise ValueError("mine")

    def body() -> None:
        y = sine(x).sum()
        with pytest.raises(ValueError, match="mine"):
            y.backward(retain_graph=True)
        fails.append(False)
        y.backward()

    sine = Sine(hook)
    step = record(tmp_path, body, model=nn.Sequential(sine), level="L0", **path)
    assert means(step) == {ENTRY: ([1.0], [None]), f"{ENTRY}.pass1": ([1.0], [SLOPE])}


def test_passes_that_are_over_are_forgotten(tmp_path: Path) -> None:
    x, sine = torch.ones(3, requires_grad=True), Sine(lambda _: None)
    debugger = configured(tmp_path, level="L0", list=["Module"])
    debugger.start(nn.Sequential(sine))
    y = sine(x).sum()
    for _ in range(3):
        torch.autograd.grad(y, x, retain_graph=True)
    torch.autograd.grad(y, sine.between, retain_graph=True)
    session = type(debugger)._session
    assert session is not None and session.step is not None
    calls = {id(call): call for call, _ in session.step.observers._handles if isinstance(call, GraphCall)}
    assert [(call.passes, call.running) for call in calls.values()] == [(4, {})]
    debugger.stop()
    debugger.step()
    assert f"{ENTRY}.pass3" in Run(tmp_path / "dump").step().names
