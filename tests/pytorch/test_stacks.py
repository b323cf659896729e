"""stack.json: where each forward call was written, innermost frame first, the user's line on top."""

from __future__ import annotations

import functools
import linecache
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from capturing import Run, configured, record

import msprobe

OURS = str(Path(msprobe.__file__).parent)


def here() -> list[str]:
    """The caller's frames as stack.json shows them."""
    lines = []
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        source = linecache.getline(code.co_filename, frame.f_lineno, frame.f_globals).strip()
        if source and not code.co_filename.startswith(OURS):
            lines.append(f"File {code.co_filename}, line {frame.f_lineno}, in {code.co_name}, \n {source}")
        frame = frame.f_back
    return lines


def test_the_frames_of_an_api(tmp_path: Path) -> None:
    seen: dict[str, list[str]] = {}

    def body() -> None:
        x = torch.ones(2, 2)
        seen["Torch.relu.0.forward"], _ = here(), torch.relu(x)
        seen["Functional.softmax.0.forward"], _ = here(), F.softmax(x, dim=1)
        seen["Functional.max_pool2d.0.forward"], _ = here(), F.max_pool2d(x[None], 2)
        seen["Tensor.__add__.0.forward"], _ = here(), x + 1
        seen["Tensor.__radd__.0.forward"], _ = here(), 1 + x
        seen["Tensor.norm.0.forward"], _ = here(), x.norm()
        seen["Tensor.__setitem__.0.forward"], x[0] = here(), 3
        seen["Tensor.normal_.0.forward"], _ = here(), nn.init.normal_(x)
        seen["Torch.einsum.0.forward"], _ = here(), torch.einsum("ij->i", x)
        seen["Functional.sigmoid.0.forward"], _ = here(), F.sigmoid(x)
        seen["Tensor.__mul__.0.forward"], _ = here(), functools.reduce(lambda a, b: a * b, [x, x])

    step = record(tmp_path, body)
    wrong = {}
    for name, right in seen.items():
        found = step.frames(name)
        if name == "Tensor.__mul__.0.forward":
            assert "in <lambda>" in found.pop(0)
        if found != right:
            wrong[name] = (found[:2], right[:1])
    assert wrong == {}


def test_the_frames_of_a_module(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)))
    seen: list[list[str]] = []

    def body() -> None:
        seen.append(here()), model(torch.ones(1, 2))

    step = record(tmp_path, body, model=model, level="mix")
    module_file = torch.nn.modules.module.__file__
    for name in ("Module.0.Sequential.forward.0", "Module.0.0.Linear.forward.0"):
        frames = step.frames(name)
        assert frames[0].startswith(f"File {module_file}, line") and "in inner" in frames[0] and "hook(" in frames[0]
        assert frames[-len(seen[0]) :] == seen[0]
        assert all(OURS not in frame for frame in frames)
    linear = step.frames("Functional.linear.0.forward")
    assert linear[0].startswith(f"File {torch.nn.modules.linear.__file__}, line") and "F.linear(" in linear[0]
    assert linear[-len(seen[0]) :] == seen[0]


def test_calls_from_one_place_share_a_stack(tmp_path: Path) -> None:
    def body() -> None:
        for _ in range(3):
            torch.relu(torch.ones(1))
        torch.relu(torch.ones(1))

    step = record(tmp_path, body)
    assert list(step.stack) == [str(i) for i in range(len(step.stack))]
    groups = [names for names, _ in step.stack.values()]
    assert ["Torch.relu.0.forward", "Torch.relu.1.forward", "Torch.relu.2.forward"] in groups and ["Torch.relu.3.forward"] in groups


def test_every_forward_call_has_one_stack_and_no_backward_has(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())

    def body() -> None:
        for _ in range(2):
            torch.utils.checkpoint.checkpoint(model, torch.ones(1, 2, requires_grad=True), use_reentrant=False).sum().backward()

    step = record(tmp_path, body, model=model, level="mix")
    named = [name for names, _ in step.stack.values() for name in names]
    assert sorted(named) == sorted(name for name in step.data if ".forward" in name)
    recomputed = step.frames("Functional.linear.1.forward")
    assert any("backward" in frame for frame in recomputed)  # it ran inside of the backward pass


class Interrupted(nn.Module):
    """Leaves its forward by an exception that runs no hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.stop = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc(x)
        if self.stop:
            raise KeyboardInterrupt
        return torch.relu(x)


def test_stacks_after_modules_were_left_open(tmp_path: Path) -> None:
    """Frames of theirs are gone; others may have taken their addresses."""
    model = nn.Sequential(nn.Sequential(Interrupted()), nn.Sequential(nn.Linear(2, 2)))
    seen: list[tuple[list[str], str]] = []
    debugger = configured(tmp_path, level="mix")

    def down(levels: int, work: Any) -> None:
        if levels:
            down(levels - 1, work)
        else:
            work()

    def once(levels: int) -> None:
        def fails() -> None:
            with pytest.raises(KeyboardInterrupt):
                model[0](torch.ones(1, 2))

        def works() -> None:
            seen.append((here(), f"Torch.tanh.{len(seen)}.forward")), torch.tanh(torch.ones(1))
            model[1](torch.ones(1, 2))

        down(levels, fails)
        down((levels * 7) % 5, works)

    debugger.start(model)
    for i in range(40):
        once(i % 6)
    debugger.stop()
    debugger.step()
    step = Run(tmp_path / "dump").step()
    for right, name in seen:
        assert step.frames(name) == right, name
    construct = step.construct
    for i in range(40):
        assert construct[f"Torch.tanh.{i}.forward"] is None
        assert construct[f"Module.1.Sequential.forward.{i}"] is None
        assert construct[f"Module.1.0.Linear.forward.{i}"] == f"Module.1.Sequential.forward.{i}"
        assert construct[f"Module.0.Sequential.forward.{i}"] is None
        assert construct[f"Module.0.0.Interrupted.forward.{i}"] == f"Module.0.Sequential.forward.{i}"


def test_frames_without_source(tmp_path: Path) -> None:
    names: dict[str, Any] = {"torch": torch}
    exec("def generated():\n    return torch.relu(torch.ones(1))\n", names)
    seen: list[list[str]] = []

    def body() -> None:
        seen.append(here()), names["generated"]()

    step = record(tmp_path, body)
    assert step.frames("Torch.relu.0.forward") == seen[0]
