"""A .pt that does not hold what dump.json says of it is told, never passed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.outcome import Outcome

from .dumps import read_csv, save_array, tensor_call

GIVEN = np.array([[1.0, -4.0], [2.0, 3.0]], np.float32)
NAME = "Torch.op.0.forward.output.0.pt"


def record(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text())
    content["data"]["Torch.op.0.forward"]["output"][0].update(changes)
    path.write_text(json.dumps(content))


def compared(directory: Path) -> tuple[Outcome, dict[str, str]]:
    outcome = compare(directory / "t", directory / "g", directory / "o")
    assert outcome.reports[0].csv is not None
    return outcome, read_csv(outcome.reports[0].csv)[-1]


def both(directory: Path, target: Any = GIVEN, golden: Any = GIVEN, dtype: str | None = None) -> tuple[Path, Path]:
    return tensor_call(directory / "t", target, dtype=dtype), tensor_call(directory / "g", golden, dtype=dtype)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"Max": 9.0}, "largest magnitude 9 in the target dump, 4 in " + NAME),
        ({"Norm": 7.0}, "Norm 7 in the target dump, 5.47723 in " + NAME),
        ({"Max": 3.5}, "the files are equal, Max as recorded is not"),
        ({"Mean": 0.75, "Min": -3.99}, "the files are equal, Min and Mean as recorded are not"),
        ({"dtype": "torch.float16"}, "dtype float16 in the target dump, float32 in " + NAME),
    ],
)
def test_equal_files_do_not_make_up_for_other_records(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    target, golden = both(tmp_path)
    record(target, **changes)
    if "dtype" in changes:
        record(golden, **changes)
    outcome, row = compared(tmp_path)
    assert row["Result"] == "not compared"
    assert f"a record contradicts its tensor file: {said}; it was changed or mixed up after recording" in row["Err_message"]
    assert row["Cosine"] == "1.0"
    assert outcome.exit_code == 1
    assert str(outcome.reports[0].reasons[0]).startswith("1 record contradicts its tensor file (first: Torch.op.0.forward output.0: ")


def test_a_record_of_another_shape_on_both_sides(tmp_path: Path) -> None:
    for path in both(tmp_path):
        record(path, shape=[4])
    assert compared(tmp_path)[1]["Result"] == "not compared"


def test_files_equal_to_each_other_and_not_to_what_both_recorded(tmp_path: Path) -> None:
    both(tmp_path)
    for side in ("t", "g"):
        save_array(tmp_path / side, NAME, GIVEN * 2)
    outcome, row = compared(tmp_path)
    assert (row["Result"], outcome.exit_code) == ("not compared", 1)


def test_a_file_that_differs_stays_an_error_and_is_told(tmp_path: Path) -> None:
    both(tmp_path)
    save_array(tmp_path / "t", NAME, GIVEN * 2)
    _, row = compared(tmp_path)
    assert row["Result"] == "error"
    assert "largest magnitude 4 in the target dump, 8 in" in row["Err_message"]


@pytest.mark.parametrize(
    "array",
    [
        np.array([np.nan, 1.0, np.inf], np.float32),
        np.array([1e-30, -1e-40], np.float64),
        np.array([6e4, 6e4], np.float16),
        np.zeros((0, 3), np.float32),
        np.array(-3.5, np.float32),
        np.array([1, 2], np.int64),
        np.array([True, False]),
        np.array([1 + 2j], np.complex64),
    ],
    ids=str,
)
def test_true_records_are_believed(tmp_path: Path, array: Any) -> None:
    for path in both(tmp_path, array, array):
        if array.dtype == np.float32 and array.ndim == 0:
            record(path, Norm=-3.5)  # the existing tool gives the Norm of a 0-d tensor the sign of its value
        if array.dtype == np.float64:
            record(path, Norm=0.0)  # squares added up in float32
    outcome, row = compared(tmp_path)
    assert (row["Result"], outcome.exit_code) == ("pass", 0)


def test_statistics_of_two_tools_may_differ_by_rounding(tmp_path: Path) -> None:
    target, _ = both(tmp_path)
    record(target, Norm=5.477226, Mean=0.5000001)
    assert compared(tmp_path)[1]["Result"] == "pass"
