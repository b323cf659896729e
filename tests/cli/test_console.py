"""The progress bar: only in a terminal, only when it takes long, and never on standard output."""

from __future__ import annotations

import io
import sys

import pytest

from msprobe.cli import console


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Not a fixture: pytest exchanges sys.stderr between a test's setup and the test."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return stream


def test_none_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with console.progress_bar() as progress:
        assert progress is None


def test_quiet_while_it_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    with console.progress_bar() as progress:
        assert progress is not None
        for done in range(5):
            progress(done, 4, "step0 rank0")
    assert terminal.getvalue() == ""


def test_a_bar_when_it_takes_long(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    terminal = a_terminal(monkeypatch)
    monkeypatch.setattr(console, "_PATIENCE", 0.0)
    with console.progress_bar() as progress:
        assert progress is not None
        progress(1, 4, "step0 [bold]rank0\x1b[31m")
        progress(4, 4, "step0 rank3")
    shown = terminal.getvalue()
    assert "4/4" in shown and "step0 rank3" in shown
    assert "\x1b[31m" not in shown.replace("\x1b[38", "")
    assert capsys.readouterr().out == ""


def test_one_pair_needs_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = a_terminal(monkeypatch)
    monkeypatch.setattr(console, "_PATIENCE", 0.0)
    with console.progress_bar() as progress:
        assert progress is not None
        progress(0, 1, "")
        progress(1, 1, "")
    assert terminal.getvalue() == ""
