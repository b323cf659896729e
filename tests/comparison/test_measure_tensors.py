from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msprobe.comparison.inputs import DumpPair
from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.measure_tensors import TensorMeasurer, measure_tensors
from msprobe.comparison.one_pair import examine
from msprobe.comparison.rows import calls_of
from msprobe.format.tensor_file import TensorData

from .dumps import api, malicious, save_array, tensor, tensor_call, truncated


def data(array: Any, dtype: str | None = None) -> TensorData:
    array = np.ascontiguousarray(array)
    return TensorData(dtype or str(array.dtype), array.shape, memoryview(array.tobytes()))


def metrics(target: Any, golden: Any) -> Measure:
    return measure_tensors(data(np.asarray(target)), data(np.asarray(golden)))


F32 = np.float32
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("target", "golden", "cells", "agreement"),
    [
        ([1.0, 2.0], [1.0, 2.0], (1.0, 0.0, 0.0, 0.0, 1.0, 1.0), Agreement.SAME),
        ([2.0, 4.0], [1.0, 2.0], (1.0, math.sqrt(5), 2.0, 1.0, 0.0, 0.0), Agreement.DIFFERENT),
        ([0.0, 0.0], [0.0, -0.0], (1.0, 0.0, 0.0, 0.0, 1.0, 1.0), Agreement.SAME),
        ([1.0, 1.0], [0.0, 0.0], ("Nan", math.sqrt(2), 1.0, 2.0**52, 0.0, 0.0), Agreement.DIFFERENT),
        ([0.0, 0.0], [1.0, 1.0], ("Nan", math.sqrt(2), 1.0, 1.0, 0.0, 0.0), Agreement.DIFFERENT),
        ([NAN, 1.0], [NAN, 1.0], (1.0, 0.0, 0.0, 0.0, 1.0, 1.0), Agreement.SAME),
        ([INF, 1.0], [INF, 1.5], (1.0, 0.5, 0.5, 0.333333333333, 0.5, 0.5), Agreement.DIFFERENT),
        ([NAN, 1.0], [1.0, NAN], ("N/A",) * 6, Agreement.DIFFERENT),
        ([1.0, 1.0], [1.0, NAN], ("N/A",) * 6, Agreement.DIFFERENT),
        ([INF, 1.0], [-INF, 1.0], ("N/A",) * 6, Agreement.DIFFERENT),
        ([INF, 1.0], [2.0, 1.0], ("N/A",) * 6, Agreement.DIFFERENT),
        ([[1.0, 2.0]], [1.0, 2.0], ("shape unmatched",) * 6, Agreement.DIFFERENT),
        (1.5, 1.25, (1.0, 0.25, 0.25, 0.2, 0.0, 0.0), Agreement.DIFFERENT),
        (NAN, NAN, (1.0, 0.0, 0.0, 0.0, 1.0, 1.0), Agreement.SAME),
        ([2.0], [-1.0], (-1.0, 3.0, 3.0, 3.0, 0.0, 0.0), Agreement.DIFFERENT),
        (True, False, ("Nan", 1.0, 1.0, 2.0**52, 0.0, 0.0), Agreement.DIFFERENT),
        (np.array([2**62]), np.array([2**62 + 1]), (1.0, 1.0, 1.0, 2.168e-19, 1.0, 1.0), Agreement.DIFFERENT),
        (np.array([2**64 - 1], np.uint64), np.array([0], np.uint64), ("Nan", 2.0**64, 2.0**64, 2.0**116, 0.0, 0.0), 3),
        (np.array([1 + 1j]), np.array([1 - 1j]), (0.0, 2.0, 2.0, math.sqrt(2), 0.0, 0.0), Agreement.DIFFERENT),
        ([1e308, 1e308], [1e308, -1e308], (0.0, INF, INF, 2.0, 0.5, 0.5), Agreement.DIFFERENT),
        ([1e-200, 1e-200], [-1e-200, -1e-200], (-1.0, math.sqrt(8) * 1e-200, 2e-200, 2.0, 0.0, 0.0), Agreement.DIFFERENT),
        (np.array([1.0, 2.0], F32), np.array([1.0, 2.0 + 2e-7], F32), None, Agreement.ROUNDING),
        (np.array([1.0, 2.0], np.float64), np.array([1.0, 2.0], F32), (1.0, 0.0, 0.0, 0.0, 1.0, 1.0), Agreement.ROUNDING),
    ],
)
def test_metrics(target: Any, golden: Any, cells: Any, agreement: Agreement) -> None:
    found = metrics(target, golden)
    assert found.agreement == agreement
    if cells is not None:
        assert [c if isinstance(c, str) else pytest.approx(c, rel=1e-9) for c in cells] == list(found.cells)


def test_empty_against_empty_is_no_difference() -> None:
    found = metrics(np.zeros((0, 3), F32), np.zeros((0, 3), F32))
    assert (found.cells, found.agreement) == (("unsupported",) * 6, Agreement.SAME)


@pytest.mark.parametrize(("value", "cell"), [(1.00000381e-4, 0.000100000381), (2.0000000001e-9, 2e-9), (1.23456e-13, 1.235e-13)])
def test_twelve_decimals_but_never_nothing(value: float, cell: float) -> None:
    assert metrics([1.0 + 0.0, value], [1.0, 0.0]).cells[2] == pytest.approx(cell, rel=1e-12)


def test_a_difference_of_rounding_in_a_narrow_dtype() -> None:
    one, next_up = (np.array([v], np.uint16) for v in (0x3F80, 0x3F81))  # bfloat16 1.0 and 1.0078125
    found = measure_tensors(data(one, "bfloat16"), data(next_up, "bfloat16"))
    assert found.agreement is Agreement.ROUNDING
    assert found.cells[2] == 0.0078125


def measure_files(tmp_path: Path, target: Any, golden: Any, break_target: Any = None) -> Measure:
    rows = []
    for side, array in (("target", target), ("golden", golden)):
        record = save_array(tmp_path / side, "Torch.a.0.forward.output.0.pt", array) if not isinstance(array, dict) else array
        rows.append(calls_of({"Torch.a.0.forward": api([], [record])}, "")[0].rows[0])
    if break_target is not None:
        break_target(tmp_path / "target" / "dump_tensor_data" / "Torch.a.0.forward.output.0.pt")
    return TensorMeasurer(tmp_path / "target" / "dump_tensor_data", tmp_path / "golden" / "dump_tensor_data")(rows[0], rows[1])


def test_files_are_read(tmp_path: Path) -> None:
    assert measure_files(tmp_path, [1.0, 2.0], [1.0, 2.5]).cells[2] == 0.5


def test_files_that_are_missing_or_damaged_are_named(tmp_path: Path) -> None:
    """F1."""
    found = measure_files(tmp_path / "a", [1.0], [1.0], Path.unlink)
    assert (found.agreement, found.cells, found.lost) == (Agreement.UNKNOWN, ("unsupported",) * 6, True)
    assert "Torch.a.0.forward.output.0.pt" in found.reason
    assert "target" in found.reason
    found = measure_files(tmp_path / "b", [1.0], [1.0], truncated)
    assert found.lost and "Torch.a.0.forward.output.0.pt" in found.reason


def test_a_malicious_file_is_refused_and_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "run"
    found = measure_files(tmp_path, [1.0], [1.0], lambda path: malicious(path, marker))
    assert found.lost and found.reason
    assert not marker.exists()


@pytest.mark.parametrize("name", ["../secret.pt", "/etc/passwd", "a/b.pt", "..", "", "a\0b.pt"])
def test_a_file_name_that_leaves_the_directory_is_not_followed(name: str, tmp_path: Path) -> None:
    found = measure_files(tmp_path, tensor(data_name=name), tensor(data_name=name))
    assert "leaves its directory" in found.reason


def test_a_side_without_a_file(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("Max", "Min", "Mean", "Norm"))
    found = measure_files(tmp_path, tensor(**nothing), [[1.0] * 3] * 2)
    assert found.reason == "the target side has no tensor file for this value" and found.lost
    neither = measure_files(tmp_path, tensor(), tensor())
    assert neither.agreement is Agreement.UNKNOWN and not neither.lost and neither.reason.endswith("; Max, Min, Mean and Norm agree")


def test_a_difference_of_the_statistics_shows_without_files(tmp_path: Path) -> None:
    for target, golden in ((tensor(5.0), tensor()), (tensor(5.0), [[1.0] * 3] * 2)):
        found = measure_files(tmp_path, target, golden)
        assert found.agreement is Agreement.DIFFERENT and not found.lost and "they differ" in found.reason


def test_shapes_are_compared_as_recorded(tmp_path: Path) -> None:
    assert measure_files(tmp_path, np.zeros((1, 3), F32), np.zeros(3, F32)).cells == ("shape unmatched",) * 6
    assert measure_files(tmp_path, np.zeros((0,), F32), np.zeros(3, F32)).cells == ("unsupported",) * 6
    assert measure_files(tmp_path, np.zeros((0,), F32), np.zeros(0, F32)).agreement is Agreement.SAME


def test_plain_values_are_compared_by_what_dump_json_holds(tmp_path: Path) -> None:
    measurer = TensorMeasurer(tmp_path, tmp_path)
    records = [{"type": "int", "value": 1}, {"type": "int", "value": 2}]
    rows = [calls_of({"Torch.a.0.forward": api([record], [])}, "")[0].rows[0] for record in records]
    assert measurer(rows[0], rows[0]).agreement is Agreement.SAME
    assert measurer(rows[0], rows[1]).agreement is Agreement.DIFFERENT


def test_hard_linked_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from msprobe.format import tensor_file

    reads: list[str] = []
    original = tensor_file.read
    monkeypatch.setattr(tensor_file, "read", lambda path: (reads.append(str(path)), original(path))[1])
    rows = []
    for side in ("t", "g"):
        record = save_array(tmp_path / side, "Torch.a.0.forward.output.0.pt", [1.0])
        folder = tmp_path / side / "dump_tensor_data"
        os.link(folder / "Torch.a.0.forward.output.0.pt", folder / "Torch.b.0.forward.input.0.pt")
        linked = {**record, "data_name": "Torch.b.0.forward.input.0.pt"}
        rows.append(calls_of({"Torch.b.0.forward": api([linked], [record])}, "")[0].rows)
    measurer = TensorMeasurer(tmp_path / "t" / "dump_tensor_data", tmp_path / "g" / "dump_tensor_data")
    assert measurer(rows[0][0], rows[1][0]) == measurer(rows[0][1], rows[1][1])
    assert len(reads) == 2


def test_large_files_are_measured_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from msprobe.comparison import measure_tensors as module
    from msprobe.format import tensor_file

    random = np.random.default_rng(0)
    values = random.standard_normal(5000).astype(np.float32)
    target = tensor_call(tmp_path / "a", values * np.float32(1.01))
    golden = tensor_call(tmp_path / "b", values)
    whole = examine(DumpPair(target, golden, None, ""))
    monkeypatch.setattr(module, "_LARGE", 1000)
    opened: list[object] = []
    real = tensor_file.open_tensor
    monkeypatch.setattr(tensor_file, "open_tensor", lambda path: opened.append(path) or real(path))
    pieces = examine(DumpPair(target, golden, None, ""))
    assert len(opened) == 2
    assert [row.measure for call in pieces.calls for row in call.rows] == [row.measure for call in whole.calls for row in call.rows]


def test_one_file_under_both_names_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from msprobe.format import tensor_file

    path = tensor_call(tmp_path / "a", [1.0, math.nan])
    read: list[object] = []
    real = tensor_file.read
    monkeypatch.setattr(tensor_file, "read", lambda path: read.append(path) or real(path))
    compared = examine(DumpPair(path, path, None, ""))
    assert len(read) == 2  # the input and the output
    assert all(row.measure is not None and row.measure.agreement is Agreement.SAME for call in compared.calls for row in call.rows)
