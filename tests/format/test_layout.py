"""Names of files and directories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe.errors import DumpFormatError
from msprobe.format import layout


def test_directories() -> None:
    step = layout.step_dir("dump", 3)
    assert step == "dump/step3"
    assert layout.rank_dir(step, 0, 77) == "dump/step3/rank0"
    assert layout.rank_dir(Path(step), None, 77) == "dump/step3/proc77"


def test_documented_file_names() -> None:
    assert layout.tensor_file_name("X.forward.0", "input", ("0", "b")) == "X.forward.0.input.0.b.pt"
    assert layout.tensor_file_name("X.forward.0", "output", (0, "h")) == "X.forward.0.output.0.h.pt"
    assert layout.tensor_file_name("Torch.add.0.forward", "kwargs", ["other"]) == "Torch.add.0.forward.kwargs.other.pt"
    assert layout.tensor_file_name("X.parameters_grad.0", "", ["weight"]) == "X.parameters_grad.0.weight.pt"
    assert layout.tensor_file_name("y.0.debug", "") == "y.0.debug.pt"
    assert layout.tensor_file_name("X.forward.0", "input", (0,), ".npy") == "X.forward.0.input.0.npy"


@pytest.mark.parametrize(
    "name", ["Module.fc.Linear.forward.0.input.0.pt", "a b:c*d.pt", "模型.forward.0.pt", "x" * 255, ".hidden", "a%2Fb.pt"]
)
def test_safe_names_stay(name: str) -> None:
    assert layout.safe_file_name(name) == name


@pytest.mark.parametrize("name", ["a/b.pt", "../x.pt", "/etc/passwd", "a\0b.pt", "x" * 256, "模" * 100 + ".pt", "\ud800.pt", "", ".", ".."])
def test_unsafe_names_become_safe(name: str, tmp_path: Path) -> None:
    safe = layout.safe_file_name(name)
    assert safe != name
    assert len(safe.encode()) <= 255
    (tmp_path / safe).write_bytes(b"x")
    assert os.listdir(tmp_path) == [safe]
    assert safe.endswith(".pt") == name.endswith(".pt")


@given(st.lists(st.text(st.characters(), max_size=300), min_size=2, max_size=6, unique=True))
def test_different_names_give_different_files(names: list[str]) -> None:
    assert len({layout.safe_file_name(name) for name in names}) == len(names)


def test_long_names_with_a_common_beginning_differ() -> None:
    first, second = ("Module." + "block." * 60 + end + ".forward.0.input.0.pt" for end in "ab")
    assert layout.safe_file_name(first) != layout.safe_file_name(second)
    assert layout.safe_file_name(first) == layout.safe_file_name(first)


def test_listing_sorts_by_number_and_ignores_what_is_no_dump(tmp_path: Path) -> None:
    for name in ("step10", "step2", "step02", "stepx", "step", "notes"):
        (tmp_path / name).mkdir()
    (tmp_path / "step7").write_text("a file")
    for name in ("rank1", "rank0", "proc99", "proc7", "rank01"):
        (tmp_path / "step2" / name).mkdir()
    assert layout.steps(tmp_path) == {2: tmp_path / "step2", 10: tmp_path / "step10"}
    assert list(layout.steps(tmp_path)) == [2, 10]
    assert layout.ranks(tmp_path / "step2") == {0: tmp_path / "step2/rank0", 1: tmp_path / "step2/rank1"}
    assert list(layout.procs(tmp_path / "step2")) == [7, 99]
    with pytest.raises(OSError, match="missing"):
        layout.steps(tmp_path / "missing")


def test_other_directories_of_a_step(tmp_path: Path) -> None:
    for name in ("rank0", "rank0.proc12", "rank0.proc7", "rank10.proc1", "rank00", "rank0.proc01", "rank0.proc", "proc3", "proc3x"):
        (tmp_path / name).mkdir()
    (tmp_path / "rank1.proc5").write_text("a file")
    (tmp_path / "rankx").write_text("a file")
    assert {key: path.name for key, path in layout.beside_ranks(tmp_path).items()} == {
        (0, 7): "rank0.proc7",
        (0, 12): "rank0.proc12",
        (10, 1): "rank10.proc1",
    }
    assert [path.name for path in layout.misnamed(tmp_path, "rank", "proc")] == ["proc3x", "rank0.proc", "rank0.proc01", "rank00"]
    assert layout.misnamed(tmp_path, "step") == []


def test_whether_a_directory_holds_a_dump(tmp_path: Path) -> None:
    assert not layout.holds_dump(tmp_path) and not layout.holds_dump(tmp_path / "missing")
    (tmp_path / "debug.json").write_text("{}")
    assert layout.holds_dump(tmp_path)


def test_tensor_path_stays_inside(tmp_path: Path) -> None:
    assert layout.tensor_path(tmp_path, "a.pt") == tmp_path / "a.pt"
    for name in ("../a.pt", "/etc/passwd", "", "..", "a\0"):
        with pytest.raises(DumpFormatError, match="no file name"):
            layout.tensor_path(tmp_path, name)
