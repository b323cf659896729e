"""Where a process with a rank writes, and what it says before it replaces an earlier run's dump."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.recording import place
from msprobe.recording.place import Place


@pytest.fixture(autouse=True)
def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_looked", set())


def leave(root: Path, step: int, rank: int, document: str = "dump.json") -> Path:
    directory = root / f"step{step}" / f"rank{rank}"
    directory.mkdir(parents=True)
    (directory / document).write_text("{}")
    return directory


@pytest.mark.parametrize("document", ["dump.json", "debug.json"])
@pytest.mark.parametrize("step", [2, 7])
def test_an_earlier_runs_dump_is_told_of_before_it_is_replaced(
    document: str, step: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = leave(tmp_path, step, 1, document)
    Place(str(tmp_path), 2, 1).release()
    Place(str(tmp_path), 2, 1).release()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"{directory} holds a dump of an earlier run, which is replaced")


def test_what_is_not_replaced_is_not_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    leave(tmp_path, 1, 0)  # a step before the first one of this run: training was resumed
    leave(tmp_path, 2, 1)  # another rank's
    (tmp_path / "step2" / "rank0").mkdir()
    Place(str(tmp_path), 2, 0).release()
    assert caplog.messages == []


def test_what_this_process_wrote_is_no_earlier_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Place(str(tmp_path), 0, 0).release()
    (tmp_path / "step0" / "rank0" / "dump.json").write_text("{}")
    Place(str(tmp_path), 0, 0).release()
    assert caplog.messages == []


def test_beside_another_running_process_nothing_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = Place(str(tmp_path), 0, 0)
    (tmp_path / "step0" / "rank0" / "dump.json").write_text("{}")
    place._looked.clear()
    second = Place(str(tmp_path), 0, 0)
    first.release()
    second.release()
    assert [text.partition(" ")[0] for text in caplog.messages] == ["another"]


def test_without_a_rank_another_runs_directory_is_told_of_and_a_siblings_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for process in (2, 3):
        (tmp_path / "step0" / f"proc{process}").mkdir(parents=True)
    Place(str(tmp_path), 0, None, lambda: {2, 3})
    assert caplog.messages == []
    Place(str(tmp_path), 0, None, lambda: {3})
    Place(str(tmp_path), 0, None)
    assert [text.partition(": an earlier run's")[0].rpartition("already ")[2] for text in caplog.messages] == [
        "holds proc2",
        "holds proc2, proc3",
    ]
