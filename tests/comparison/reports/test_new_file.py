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


def test_until_it_is_complete_it_has_another_name(tmp_path: Path) -> None:
    """So that whatever ends the process leaves no half file under the name of a result, and what is left says of what it is."""
    with new_file(tmp_path, "a", "csv") as (path, stream):
        stream.write(b"half")
        assert not path.exists() and [found.name for found in tmp_path.iterdir()] == ["a.csv.part"]
        with new_file(tmp_path, "a", "csv") as (other, _):
            assert other.name == "a_1.csv"
    assert sorted(found.name for found in tmp_path.iterdir()) == ["a.csv", "a_1.csv"]


def test_what_a_killed_process_left_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "a.csv.part").write_text("left")
    with new_file(tmp_path, "a", "csv") as (path, _):
        pass
    assert path.name == "a_1.csv" and (tmp_path / "a.csv.part").read_text() == "left"
