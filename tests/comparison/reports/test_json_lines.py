from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from comparison.dumps import api, frame, read_csv, statistics, tensor, tensor_call, write_dump
from comparison.net import Net
from msprobe.comparison.reports.json_lines import snake

from .made import HOSTILE, hostile, outcome_of, structure


def refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def lines_of(target: Path, golden: Path, output: Path) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, str]]]:
    """Header and rows of the JSON lines, and the rows of the CSV."""
    (report,) = outcome_of(target, golden, output, "jsonl").reports
    assert report.jsonl is not None and report.csv is not None
    header, *rows = [json.loads(line, parse_constant=refuse) for line in report.jsonl.read_text(encoding="utf-8").split("\n")[:-1]]
    return header, rows, read_csv(report.csv)


def test_each_row_of_the_csv_is_a_line(tmp_path: Path) -> None:
    header, rows, table = lines_of(Net(relu_gain=1.5).write(tmp_path / "t"), Net().write(tmp_path / "g"), tmp_path / "o")
    assert (header["format"], header["version"], header["mode"]) == ("msprobe.compare.rows", 1, "statistics")
    assert len(rows) == len(table)
    for row, cells in zip(rows, table, strict=True):
        assert row["npu_name"] == cells["NPU Name"]
        assert row["result"] == cells["Result"]
        assert row["messages"] == json.loads(cells["Err_message"])
        assert str(row["npu_max"]) == cells["NPU max"]
        assert set(header["columns"]) <= set(row)
    first = next(row for row in rows if row["result"] == "error")
    assert first["call"] == "Functional.relu.0.forward"
    assert (first["direction"], first["role"], first["key"]) == ("forward", "output", "output.0")
    assert first["parent"] == "Module.blocks.0.Block.forward.0"
    assert (first["max_diff"], first["max_relative_err"]) == (1.0, pytest.approx(100 / 3))
    assert first["stack"] is None  # it stands in the first row of its call
    assert any("model.py" in frame for row in rows if row["call"] == first["call"] and row["stack"] for frame in row["stack"])


def test_numbers_that_json_has_not(tmp_path: Path) -> None:
    def side(name: str, *values: Any) -> Path:
        return write_dump(tmp_path / name, {"Torch.a.0.forward": api([statistics(*values)], [{"type": "int", "value": 1 << 70}])})

    nan, inf = float("nan"), float("inf")
    _, rows, _ = lines_of(side("t", nan, inf, -inf, None), side("g", 1.0, 1.0, 1.0, 1.0), tmp_path / "o")
    assert [rows[0][f"npu_{word}"] for word in ("max", "min", "mean", "l2norm")] == ["NaN", "Infinity", "-Infinity", None]
    assert rows[0]["max_diff"] == "NaN" and rows[0]["min_relative_err"] == "Infinity" and rows[0]["l2norm_diff"] == "Diff"
    assert rows[1]["npu_max"] == 1 << 70


def test_tensors_and_missing_values(tmp_path: Path) -> None:
    _, rows, _ = lines_of(tensor_call(tmp_path / "t", [1.0, 2.5]), tensor_call(tmp_path / "g", [1.0, 2.0]), tmp_path / "o")
    assert rows[1]["max_abs_err"] == 0.5 and rows[1]["one_thousandth_err_ratio"] == 0.5
    target = write_dump(tmp_path / "t2", {"Torch.a.0.forward": api([tensor(1.0)], [])})
    golden = write_dump(tmp_path / "g2", {"Torch.a.0.forward": api([tensor(1.0), tensor(2.0)], [])})
    _, rows, _ = lines_of(target, golden, tmp_path / "o")
    assert rows[1]["npu_name"] is None and rows[1]["npu_max"] is None and rows[1]["max_diff"] is None
    assert rows[1]["bench_name"] == "Torch.a.0.forward.input.1" and rows[1]["result"] == "unmatched"


def test_texts_are_those_that_were_recorded(tmp_path: Path) -> None:
    _, rows, _ = lines_of(*hostile(tmp_path), tmp_path / "o")
    assert {row["npu_max"] for row in rows if row["key"] == "input.1"} == set(HOSTILE)  # no apostrophe before a formula


def test_calls_without_values(tmp_path: Path) -> None:
    header, rows, table = lines_of(*structure(tmp_path), tmp_path / "o")
    assert header["mode"] == "structure"
    assert [row["result"] for row in rows] == [cells["Result"] for cells in table]
    assert next(row["messages"] for row in rows if row["call"] == "Functional.relu.0.forward")[0].startswith("warning: The line of code")


def test_half_of_a_surrogate_pair(tmp_path: Path) -> None:
    data = {"Torch.a.0.forward": api([{"type": "str", "value": "\ud800"}], [tensor()])}
    path = write_dump(tmp_path / "t", data, stack={"Torch.a.0.forward": [frame("/m.py", 1, "f", "\ud800")]})
    _, rows, _ = lines_of(path, path, tmp_path / "o")
    assert rows[0]["npu_max"] == "\ud800"


@pytest.mark.parametrize(
    ("column", "key"),
    [
        ("NPU Tensor Shape", "npu_tensor_shape"),
        ("MaxRelativeErr", "max_relative_err"),
        ("L2norm diff", "l2norm_diff"),
        ("NPU Requires_grad", "npu_requires_grad"),
        ("One Thousandth Err Ratio", "one_thousandth_err_ratio"),
        ("BENCH MD5", "bench_md5"),
        ("EucDist", "euc_dist"),
    ],
)
def test_names_of_keys(column: str, key: str) -> None:
    assert snake(column) == key
