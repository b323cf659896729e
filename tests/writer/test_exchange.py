"""Swapping files, with the kernel's help and without."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from msprobe.writer import exchange


@pytest.fixture(params=["kernel", "links", "nothing"])
def means(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What this machine can do: exchange names, make hard links, or neither."""
    if request.param != "kernel":
        monkeypatch.setattr(exchange, "_atomic_exchange", lambda first, second: False)
    if request.param == "nothing":

        def refuse(source: str, target: str) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
    return str(request.param)


def test_exchange(means: str, tmp_path: Path) -> None:
    hidden, final = tmp_path / ".a.next", tmp_path / "a"
    hidden.write_text("new")
    final.write_text("old")
    kept = exchange.exchange(str(hidden), str(final))
    assert kept == (means != "nothing")
    assert final.read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ([".a.next", "a"] if kept else ["a"])
    if kept:
        assert hidden.read_text() == "old"


def test_put_over(means: str, tmp_path: Path) -> None:
    final = tmp_path / "a"
    for text in ("first", "second"):
        (tmp_path / "new").write_text(text)
        exchange.put_over(str(tmp_path / "new"), str(final))
        assert final.read_text() == text
        assert os.listdir(tmp_path) == ["a"]


def test_missing_files_raise(means: str, tmp_path: Path) -> None:
    (tmp_path / "only").write_text("x")
    if means != "nothing":  # there the final file need not exist
        with pytest.raises(FileNotFoundError):
            exchange.exchange(str(tmp_path / "only"), str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError):
        exchange.exchange(str(tmp_path / "missing"), str(tmp_path / "only2"))


def test_real_failures_are_not_taken_for_missing_support(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Not a directory"):
        exchange.exchange(str(tmp_path / "a"), str(Path(exchange.__file__) / "b"))


def test_this_linux_has_the_system_call() -> None:
    assert exchange._find_renameat2() is not None


def test_a_spare_from_a_killed_process_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(exchange, "_atomic_exchange", lambda first, second: False)
    for name, text in ((".a.next", "new"), ("a", "old"), (".a.next~", "stale")):
        (tmp_path / name).write_text(text)
    assert exchange.exchange(str(tmp_path / ".a.next"), str(tmp_path / "a"))
    assert {name: (tmp_path / name).read_text() for name in os.listdir(tmp_path)} == {"a": "new", ".a.next": "old"}
