"""Files that are made when something is written for the first time."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from msprobe.writer import StepWriter, step_files


def opened(directory: Path) -> StepWriter:
    return StepWriter(directory, task="statistics", level="mix", lazy=True)


def wait_for(path: Path) -> None:
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.005)


def test_nothing_is_made_before_the_first_flush(tmp_path: Path) -> None:
    directory = tmp_path / "step0" / "proc1"
    writer = opened(directory)
    assert not directory.exists()
    wait_for(directory / "construct.json")  # the last of them
    assert json.loads((directory / "dump.json").read_text())["data"] == {}
    writer.add("a", {"x": 1}, True)
    writer.add_call("a", None)
    writer.flush()
    assert json.loads((directory / "dump.json").read_text())["data"] == {"a": {"x": 1}}
    writer.add("b", {"x": 2}, True)
    writer.flush()
    writer.add("c", {"x": 3}, True)
    assert writer.close().problems == {}
    assert json.loads((directory / "dump.json").read_text())["data"] == {"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 3}}
    assert json.loads((directory / "construct.json").read_text()) == {"a": None}
    assert sorted(os.listdir(directory)) == ["construct.json", "dump.json", "stack.json"]


def test_what_an_earlier_run_left_goes_at_once(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.add("a", {"x": 1}, True)
    first.close()
    (tmp_path / ".dump.json.next").write_text("half")
    second = opened(tmp_path)
    assert json.loads((tmp_path / "dump.json").read_text())["data"] == {} and not (tmp_path / ".dump.json.next").exists()
    second.close()


def test_a_close_that_comes_first_makes_them_itself(tmp_path: Path) -> None:
    for number in range(50):
        directory = tmp_path / f"step{number}" / "proc1"
        writer = opened(directory)
        writer.add("a", {"x": number}, True)
        assert writer.close().problems == {}
        assert json.loads((directory / "dump.json").read_text())["data"] == {"a": {"x": number}}
        assert sorted(os.listdir(directory)) == ["construct.json", "dump.json", "stack.json"]


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "in_the_way").write_text("")
    writer = opened(tmp_path / "in_the_way" / "proc1")
    writer.add("a", {}, True)
    report = writer.close()
    assert report.lost == 1 and report.problems


def test_a_name_that_comes_again_before_the_first_write_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "step0" / "proc1"
    writer = opened(directory)

    def full(path: str, *pieces: bytes) -> None:
        raise OSError(28, "No space left on device")

    for name in ("a", "b"):
        writer.add(name, {"x": 1}, True)
    with monkeypatch.context() as patch:
        patch.setattr(step_files, "write_new", full)
        writer.flush()
    writer.add("a", {"x": 2}, True)
    writer.flush()
    assert writer.close().problems == {}
    assert json.loads((directory / "dump.json").read_text())["data"] == {"b": {"x": 1}, "a": {"x": 2}}


def test_the_directory_appears_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However far the first write got, there is either no directory or one with every document."""
    real = step_files.write_new
    for fail_at in range(5):
        directory = tmp_path / f"step{fail_at}" / "proc1"
        writer = opened(directory)
        writer.meta["a"] = 1
        writer.add("a", {"x": 1}, True)
        calls = 0

        def write(path: str, *pieces: bytes, limit: int = fail_at) -> None:
            nonlocal calls
            calls += 1
            if calls > limit:
                raise OSError(28, "No space left on device")
            real(path, *pieces)

        with monkeypatch.context() as patch:
            patch.setattr(step_files, "write_new", write)
            writer.flush()
            assert directory.exists() == (fail_at == 4)
            if fail_at == 4:
                assert sorted(os.listdir(directory)) == ["construct.json", "dump.json", "meta.json", "stack.json"]
        writer.add("b", {"x": 2}, True)
        report = writer.close()
        assert report.lost == 0
        assert list(json.loads((directory / "dump.json").read_text())["data"]) == ["a", "b"]
        assert json.loads((directory / "meta.json").read_text()) == {"a": 1}
        assert os.listdir(directory.parent) == ["proc1"]


def test_somebody_else_makes_the_directory_first(tmp_path: Path) -> None:
    directory = tmp_path / "step0" / "proc1"
    writer = opened(directory)
    writer.add("a", {"x": 1}, True)
    directory.mkdir(parents=True)
    (directory / "own.txt").write_text("mine")
    assert writer.close().problems == {}
    assert json.loads((directory / "dump.json").read_text())["data"] == {"a": {"x": 1}}
    assert (directory / "own.txt").read_text() == "mine"
