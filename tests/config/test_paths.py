from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from msprobe.config.paths import current_directory, why_not_directory, why_not_writable


@pytest.mark.parametrize("path", [".", "new", "new/a/b", "with space/c*?;", "数据/x"])
def test_places_that_can_be_made(path: str, tmp_path: Path) -> None:
    assert why_not_writable(path) is None
    assert why_not_writable(str(tmp_path / path)) is None
    assert list(tmp_path.iterdir()) == []


def test_links_to_directories_are_directories(tmp_path: Path) -> None:
    Path("real").mkdir()
    os.symlink("real", "link")
    assert why_not_writable("link/sub") is None
    assert why_not_directory("link") is None


def test_something_in_the_way(tmp_path: Path) -> None:
    Path("file").touch()
    os.symlink("nowhere", "link")
    for path in ("file", "file/a", "file/a/b"):
        assert why_not_writable(path) == f"{tmp_path}/file is a file, choose another directory"
    for path in ("link", "link/a"):
        assert (why_not_writable(path) or "").startswith(f"{tmp_path}/link is a link to something that does not exist")


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b", "x" * 300])
@pytest.mark.parametrize("check", [why_not_writable, why_not_directory])
def test_impossible_paths(path: str, check: object) -> None:
    assert check(path).startswith("not a possible path (")  # type: ignore[operator]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(tmp_path: Path) -> None:
    Path("closed").mkdir(mode=0o500)
    assert why_not_writable("closed/a") == f"there is no permission to write in {tmp_path}/closed, choose another directory"
    os.chmod("closed", 0)
    assert why_not_directory("closed") == "there is no permission to read this directory"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs Linux's /proc")
def test_a_file_system_where_nobody_can_make_anything() -> None:
    """Of root's, only an attempt tells: the mode bits allow it."""
    assert why_not_writable("/proc/foo/a") == "there is no permission to write in /proc, choose another directory"


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EACCES, "there is no permission to write in {}, choose another directory"),
        (errno.EPERM, "there is no permission to write in {}, choose another directory"),
        (errno.EROFS, "there is no permission to write in {}, choose another directory"),
        (errno.ENOENT, "there is no permission to write in {}, choose another directory"),
        (errno.ENOSPC, "nothing can be written in {} (No space left on device), make room or choose another directory"),
        (errno.EIO, "nothing can be written in {} (Input/output error), choose another directory"),
    ],
)
@pytest.mark.parametrize("path", [".", "new/a"])
def test_what_the_attempt_says_counts(path: str, number: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network mount that takes root for nobody, where the mode bits say nothing."""
    tried: list[str] = []

    def refused(path: str, mode: int = 0o777) -> None:
        tried.append(path)
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(os, "mkdir", refused)
    assert why_not_writable(path) == reason.format(tmp_path)
    assert [os.path.dirname(one) for one in tried] == [str(tmp_path)], "in the nearest directory that is there, and once"


def test_a_parent_that_goes_while_it_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process cleans up: what its directory lay in is asked."""
    make = os.mkdir
    Path("old").mkdir()

    def cleaned(path: str, mode: int = 0o777) -> None:
        if os.path.isdir("old"):
            os.rmdir("old")
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", cleaned)
    assert why_not_writable("old/a") is None
    assert list(tmp_path.iterdir()) == []


def test_many_at_once_neither_meet_nor_leave_anything(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as several:
        assert set(several.map(why_not_writable, ["new/a"] * 200)) == {None}
    assert list(tmp_path.iterdir()) == []


def test_directories_to_read(tmp_path: Path) -> None:
    Path("file").touch()
    assert why_not_directory(str(tmp_path)) is None
    assert why_not_directory("file") == "is a file, a directory is needed"
    assert why_not_directory("nope") == f"no such directory (looked in {tmp_path})"
    assert why_not_directory("file/nope") == f"no such directory (looked in {tmp_path})"
    assert why_not_directory("/nope/nope") == "no such directory"


def test_a_deleted_current_directory_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        raise FileNotFoundError

    monkeypatch.setattr(os, "getcwd", gone)
    assert current_directory() == "a current directory that no longer exists"
    assert (why_not_writable("x") or "").startswith("not a possible path")
