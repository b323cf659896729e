from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.comparison.reports.new_file import new_file


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    paths = []
    for number in range(3):
        with new_file(tmp_path / "new", "a", "txt") as (path, stream):
            stream.write(str(number).encode())
        paths.append(path)
    assert [path.name for path in paths] == ["a.txt", "a_1.txt", "a_2.txt"]
    assert [path.read_text() for path in paths] == ["0", "1", "2"]


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_file(tmp_path, "a", "txt"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_disk_has_the_name_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError) as caught, new_file(tmp_path, "a", "txt"):
        raise OSError(28, "No space left on device")
    assert caught.value.filename == str(tmp_path / "a.txt")
