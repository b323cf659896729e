"""Lines for the log of a step that is over."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from msprobe.writer import flush_all
from msprobe.writer.appended_lines import AppendedLines
from msprobe.writer.flusher import flusher


def test_lines_come_to_the_end_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("before\n")
    lines = AppendedLines(str(path))
    for text in ("one", "of two\nlines", "é\ud800"):
        lines.add(text)
    flush_all()
    assert path.read_text() == "before\none\nof two lines\né\\ud800\n"
    assert id(lines) not in flusher().live


def test_a_directory_that_is_gone_costs_the_lines_only(tmp_path: Path) -> None:
    lines = AppendedLines(str(tmp_path / "gone" / "log"))
    lines.add("one")
    flush_all()
    assert id(lines) not in flusher().live and not (tmp_path / "gone").exists()


def test_who_flushes_all_waits_for_what_another_thread_is_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, goes_on = threading.Event(), threading.Event()
    real = AppendedLines._append

    def slowly(self: AppendedLines, text: str) -> None:
        writing.set()
        assert goes_on.wait(20)
        real(self, text)

    monkeypatch.setattr(AppendedLines, "_append", slowly)
    lines = AppendedLines(str(tmp_path / "log"))
    lines._lines.append("one")  # not registered yet: the flush thread does not come to it first
    flusher().live[id(lines)] = lines
    first = threading.Thread(target=lines.flush_if_dirty)
    first.start()
    assert writing.wait(20)
    second = threading.Thread(target=flush_all)
    second.start()
    second.join(0.3)
    assert second.is_alive()
    lines.add("meanwhile")
    goes_on.set()
    first.join(20)
    second.join(20)
    flush_all()
    assert (tmp_path / "log").read_text() == "one\nmeanwhile\n"
    assert id(lines) not in flusher().live


def test_a_forked_child_writes_nothing(tmp_path: Path) -> None:
    lines = AppendedLines(str(tmp_path / "log"))
    lines.become_inert()
    lines.add("one")
    flush_all()
    assert not (tmp_path / "log").exists()
    flusher().unregister(lines)
