"""Keys and file names: whatever a value is called, nothing is overwritten and nothing leaves the directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from debug_json import debugger_for, save, step_of

NAMES = [
    "sp ace", "a/b", "../../up", "..", ".", "", "ünï.ж", "层", "n" * 400, "层" * 200, "tab\t", "new\nline", "nul\0", "\ud800", "x.0.debug",
    "Module.fc.Linear.forward", "a.pass1", "quote\"'", "back\\slash", "%2F",
]  # fmt: skip


def test_every_name_has_a_file_of_its_own(tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        for n, name in enumerate(NAMES):
            y = torch.full((2,), float(n), requires_grad=True) * 1
            debugger.save(y, name)
            (y * n).sum().backward()

    step = save(tmp_path, body, task="tensor")
    assert step.keys == [f"{name}{end}.0.debug" for name in NAMES for end in ("", "_grad")]
    for n, name in enumerate(NAMES):
        assert step.values(step.data[f"{name}.0.debug"]) == [float(n)] * 2
        assert step.values(step.data[f"{name}_grad.0.debug"]) == [float(n)] * 2
    assert len(step.files) == 2 * len(NAMES)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "dump"]  # nothing beside it
    assert step.data["sp ace.0.debug"]["data_name"] == "sp ace.0.debug.pt"  # a file may be called so


def test_plain_names_are_not_touched(tmp_path: Path) -> None:
    step = save(tmp_path, lambda debugger: debugger.save({"a": [torch.ones(1), {"b": torch.ones(1)}]}, "my.x-1"), task="tensor")
    assert step.files == ["my.x-1.0.debug.a.0.pt", "my.x-1.0.debug.a.1.b.pt"]


def test_counts(tmp_path: Path) -> None:
    debugger = debugger_for(tmp_path)
    for _ in range(2):
        for name in ("a", "b", "a"):
            debugger.save(1, name, save_backward=False)
        debugger.step()
    for number in range(2):
        assert step_of(tmp_path / "dump", number).keys == ["a.0.debug", "b.0.debug", "a.1.debug"]


def test_a_value_called_like_a_gradient(tmp_path: Path, told: Any) -> None:
    """Whoever comes later has the next number that is free for both of its keys; one warning for each name says so."""

    def body(debugger: Any) -> None:
        for n in range(2):
            a = torch.full((1,), 1.0 + n, requires_grad=True) * 1
            debugger.save(a, "a")
            debugger.save(torch.full((1,), 10.0 + n), "a_grad", save_backward=False)
            (a * 5).sum().backward()

    step = save(tmp_path, body, task="tensor")
    assert step.keys == ["a.0.debug", "a_grad.0.debug", "a_grad.1.debug", "a.2.debug", "a_grad.2.debug", "a_grad.3.debug"]
    assert [step.values(step.data[key]) for key in step.keys] == [[1.0], [5.0], [10.0], [2.0], [5.0], [11.0]]
    warned = [line for line in told() if "the same words" in line]
    assert len(warned) == 2 and "save(name='a_grad')" in warned[0] and "here 1" in warned[0] and '"a"' in warned[0]
    assert "save(name='a')" in warned[1] and "here 2" in warned[1] and '"a_grad"' in warned[1]


def test_the_value_may_come_first(tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        debugger.save(torch.zeros(1), "a_grad")
        debugger.save(torch.ones(1), "a")
        debugger.save(torch.ones(1), "a", save_backward=False)

    assert save(tmp_path, body).keys == ["a_grad.0.debug", "a_grad_grad.0.debug", "a.1.debug", "a_grad.1.debug", "a.2.debug"]


def test_paths_that_are_spelled_alike(tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        debugger.save({"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}, 1: torch.full((1,), 3.0), "1": torch.full((1,), 4.0)}, "x")
        debugger.save({"0": {"debug": torch.full((1,), 5.0)}}, "y")
        debugger.save(torch.full((1,), 6.0), "y.0.debug")

    step = save(tmp_path, body, task="tensor")
    x = step.data["x.0.debug"]
    assert [step.values(record) for record in (x["a.b"], x["a"]["b"], x["1"], x["1#str3"])] == [[1.0], [0.0], [3.0], [4.0]]
    assert step.values(step.data["y.0.debug"]["0"]["debug"]) == [5.0] and step.values(step.data["y.0.debug.0.debug"]) == [6.0]
    assert len(step.files) == 6 and "x.0.debug.a.b.~1.pt" in step.files


@pytest.mark.parametrize("name", [5, None, b"y", ["y"], 1.5, torch.ones(1)], ids=lambda name: type(name).__name__)
def test_a_name_that_is_no_text(name: Any, tmp_path: Path, told: Any) -> None:
    def body(debugger: Any) -> None:
        debugger.save(torch.ones(1), name)
        debugger.save(torch.ones(1), name)
        debugger.save(1, "other", save_backward=False)

    assert save(tmp_path, body).keys == ["other.0.debug"]
    (line,) = [line for line in told() if "must be text" in line]
    assert type(name).__name__ in line


@pytest.mark.parametrize("flag", ["x", 1, None])
def test_a_flag_that_is_no_bool(flag: Any, tmp_path: Path, told: Any) -> None:
    def body(debugger: Any) -> None:
        for _ in range(3):
            debugger.save(torch.ones(1), "y", save_backward=flag)
        debugger.save(1, "other", save_backward=False)

    assert save(tmp_path, body).keys == ["other.0.debug"]
    (line,) = [line for line in told() if "must be True or False" in line]
    assert "'y'" in line and repr(flag) in line


class Name(str):
    def __str__(self) -> str:
        raise ValueError("not asked for")

    __repr__ = __format__ = __str__  # type: ignore[assignment]


def test_a_subclass_of_text(tmp_path: Path) -> None:
    assert save(tmp_path, lambda debugger: debugger.save(1, Name("y"), False)).keys == ["y.0.debug"]


def test_files_of_an_earlier_run_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank's directory that is used again holds this run's files alone."""
    old = tmp_path / "dump" / "step0" / f"proc{os.getpid()}"
    (old / "dump_tensor_data").mkdir(parents=True)
    for name in ("dump.json", "stack.json", "construct.json", "dump_tensor_data/old.0.debug.pt"):
        (old / name).write_text("{}")
    step = save(tmp_path, lambda debugger: debugger.save(torch.ones(1), "y", False), task="tensor")
    assert step.files == ["y.0.debug.pt"]
    assert sorted(p.name for p in step.directory.iterdir()) == ["debug.json", "dump_tensor_data", "meta.json"]
