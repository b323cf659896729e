"""What is kept of files that could not be written."""

from __future__ import annotations

import errno
import os

import pytest

from msprobe.writer import failed_files
from msprobe.writer.failed_files import FailedFiles

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_names_come_by_reason_once_and_below_a_directory_only(caplog: pytest.LogCaptureFixture) -> None:
    failed = FailedFiles()
    for path in ("/d/step0/a.pt", "/d/step0/deep/b.pt", "/d/step01/c.pt"):
        failed.add(path, FULL)
    failed.add("/d/step0/d.pt", RuntimeError("odd"))
    assert failed.problems == {FULL.strerror: 3, "RuntimeError: odd": 1}
    assert failed.take("/d/step0") == {FULL.strerror: ["a.pt", "deep/b.pt"], "RuntimeError: odd": ["d.pt"]}
    assert failed.take("/d/step0") == {}
    assert failed.take("/d") == {FULL.strerror: ["step01/c.pt"]}
    assert [record.getMessage().split(" cannot")[0] for record in caplog.records] == ["/d/step0/a.pt"]


def test_beyond_a_number_of_names_they_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_files, "_MOST_NAMES", 3)
    monkeypatch.setattr(failed_files, "_MOST_LISTS", 2)
    failed = FailedFiles()
    for directory in "xyz":
        for number in range(4):
            failed.add(f"/{directory}/{number}", FULL)
    assert failed.problems == {FULL.strerror: 12}
    assert [failed.take(f"/{directory}") for directory in "xyz"] == [{FULL.strerror: ["0", "1", "2"]}] * 2 + [{}]
