"""Files that the flush thread makes while the caller goes on."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from msprobe.writer import StepWriter


def opened(directory: Path) -> StepWriter:
    return StepWriter(directory, task="statistics", level="mix", background=True)


def wait_for(path: Path) -> None:
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.005)


def test_the_empty_documents_come_by_themselves(tmp_path: Path) -> None:
    writer = opened(tmp_path / "step0" / "proc1")
    wait_for(tmp_path / "step0" / "proc1" / ".construct.json.next")  # the last of them
    assert json.loads((tmp_path / "step0" / "proc1" / "dump.json").read_text())["data"] == {}
    writer.add("a", {"x": 1}, True)
    writer.add_call("a", None)
    report = writer.close()
    assert report.problems == {}
    assert json.loads((tmp_path / "step0" / "proc1" / "dump.json").read_text())["data"] == {"a": {"x": 1}}
    assert json.loads((tmp_path / "step0" / "proc1" / "construct.json").read_text()) == {"a": None}
    assert sorted(os.listdir(tmp_path / "step0" / "proc1")) == ["construct.json", "dump.json", "meta.json", "stack.json"]


def test_a_close_that_comes_first_makes_them_itself(tmp_path: Path) -> None:
    for number in range(50):
        directory = tmp_path / f"step{number}" / "proc1"
        writer = opened(directory)
        writer.add("a", {"x": number}, True)
        assert writer.close().problems == {}
        assert json.loads((directory / "dump.json").read_text())["data"] == {"a": {"x": number}}
        assert sorted(os.listdir(directory)) == ["construct.json", "dump.json", "meta.json", "stack.json"]


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "in_the_way").write_text("")
    writer = opened(tmp_path / "in_the_way" / "proc1")
    writer.add("a", {}, True)
    report = writer.close()
    assert report.lost == 1 and report.problems
