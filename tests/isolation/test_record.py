from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.errors import UsageError
from msprobe.isolation.record import Record, Run, subject

SUBJECT = subject({"root": "/golden"}, ["python", "train.py"])
RUN = Run(1, "everything", 3, "recorded", "exit code 0", "", "all is well")


def begun(directory: Path) -> Record:
    record = Record(directory, SUBJECT, False)
    number, place = record.begin()
    assert number == 1 and place.is_dir()
    (place / "file").touch()
    record.add(RUN)
    return record


def test_resuming_takes_over_what_was_done(tmp_path: Path) -> None:
    begun(tmp_path).begin()[1].joinpath("half").touch()
    record = Record(tmp_path, SUBJECT, True)
    assert record.runs == [RUN] and "1 runs are there already" in record.note
    number, place = record.begin()
    assert number == 2 and list(place.iterdir()) == []  # what an interrupted run left is gone
    assert (tmp_path / "run1" / "file").exists()


def test_without_resume_it_begins_anew(tmp_path: Path) -> None:
    begun(tmp_path)
    record = Record(tmp_path, SUBJECT, False)
    assert record.runs == [] and record.note == "" and not (tmp_path / "run1").exists()


def test_another_subject_begins_anew_and_says_so(tmp_path: Path) -> None:
    begun(tmp_path)
    record = Record(tmp_path, subject({"root": "/golden"}, ["python", "other.py"]), True)
    assert record.runs == [] and record.note.startswith("the command has changed") and not (tmp_path / "run1").exists()


def test_a_script_that_was_edited_is_another_subject(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("1")
    before = subject({}, ["python", str(script)])
    script.write_text("12")
    assert subject({}, ["python", str(script)]) != before


def test_nothing_to_resume(tmp_path: Path) -> None:
    assert "there is nothing to resume" in Record(tmp_path, SUBJECT, True).note


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "run1").mkdir()
    with pytest.raises(UsageError, match="is of no search that is known here"):
        Record(tmp_path, SUBJECT, False)
    (tmp_path / "isolate.json").write_text("[]")
    with pytest.raises(UsageError, match="is no record of msprobe isolate"):
        Record(tmp_path, SUBJECT, False)
    assert (tmp_path / "run1").is_dir()
