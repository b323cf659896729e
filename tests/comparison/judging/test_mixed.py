"""Statistics dumps of which some rows have tensor files (`tensor_list`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..commands import Ran, compare
from ..dumps import api, save_array, tensor, write_dump

WITH = "Torch.a.0.forward.output.0"
WITHOUT = "Torch.b.0.forward.output.0"


def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], target: Any, golden: Any, *, spoil: bool = False, other: float = 1.0) -> Ran:
    paths = []
    for side, array, value in (("t", target, other), ("g", golden, 1.0)):
        record = save_array(tmp_path / side, f"{WITH}.pt", np.asarray(array, np.float32))
        data = {"Torch.a.0.forward": api([], [record]), "Torch.b.0.forward": api([], [tensor(value)])}
        paths.append(write_dump(tmp_path / side, data))
    if spoil:
        (tmp_path / "t" / "dump_tensor_data" / f"{WITH}.pt").write_bytes(b"no tensor")
    return compare(capsys, *paths, tmp_path / "out")


def test_another_order_of_the_same_values_shows_in_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(tmp_path, capsys, [1.0, 2.0, 3.0], [1.0, 3.0, 2.0])
    assert ran.result(WITH) == "error" and ran.result(WITHOUT) == "pass"
    row = ran.row(WITH)
    assert row["Max diff"] == "0" and "Cosine" not in row  # the columns are those of statistics


def test_rows_without_files_are_compared_by_statistics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(tmp_path, capsys, [1.0, 2.0], [1.0, 2.0], other=2.0)
    assert ran.result(WITH) == "pass" and ran.result(WITHOUT) == "error"


def test_a_file_that_cannot_be_read_leaves_the_row_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(tmp_path, capsys, [1.0, 2.0], [1.0, 2.0], spoil=True)
    assert ran.code == 1 and ran.result(WITH) == "not compared"


def test_statistics_that_differ_stand_whatever_the_file_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, capsys, [1.0, 2.0], [1.0, 4.0], spoil=True).result(WITH) == "error"
