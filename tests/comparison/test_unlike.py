"""Two dumps in which almost every row differs: the quick ways through the stages say what the general ones say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comparison.dumps import Json, api, tensor, write_dump
from comparison.unlike import unlike
from msprobe.comparison import csv_text, measure_many, one_pair, report_csv, rows
from msprobe.comparison.inputs import DumpPair
from msprobe.comparison.judging import weighing
from msprobe.comparison.match import match
from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.measure_statistics import StatisticsMeasurer

_INSTEAD = Measure(("N/A",) * 8, Agreement.UNKNOWN)
needs_c = pytest.mark.skipif(rows._rows_of is None, reason="msprobe was installed without a compiler")


def spelled(directory: Path, target: Json, golden: Json) -> tuple[str, str]:
    """The CSV made in bulk, and the same made cell by cell."""
    compared = one_pair.examine(DumpPair(write_dump(directory / "t", target), write_dump(directory / "g", golden), None, ""))
    return "".join(report_csv.text_of(compared)), "".join(csv_text.lines_of(report_csv.rows_of(compared)))


@pytest.mark.parametrize("seed", range(12))
def test_in_bulk_as_one_by_one(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, golden = unlike(seed, 40)
    monkeypatch.setattr(measure_many, "_ARRAY_FROM", 1)
    quick, cell_by_cell = spelled(tmp_path / "quick", target, golden)
    assert quick == cell_by_cell
    monkeypatch.setattr(measure_many, "_ARRAY_FROM", 10**9)
    monkeypatch.setattr(rows, "_rows_of", None)
    monkeypatch.setattr(weighing, "_weigh", None)
    assert spelled(tmp_path / "slow", target, golden)[0] == quick


@needs_c
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_rows_made_in_c(seed: int) -> None:
    for like in (False, True):
        made = []
        for quick in (True, False):
            with pytest.MonkeyPatch.context() as monkeypatch:
                if not quick:
                    monkeypatch.setattr(rows, "_rows_of", None)
                target, golden = unlike(seed, 6)
                first = rows.calls_of(target, "")
                known = {call.name: call for call in first} if like else {}
                second = rows.Builder("", known).calls(golden)
                shared = [
                    [row is other for row, other in zip(call.rows, known[call.name].rows, strict=False)]
                    for call in second
                    if call.name in known
                ]
                made.append(repr((first, second, shared)))
        assert made[0] == made[1]


@needs_c
@pytest.mark.parametrize(
    "value",
    [
        {"": tensor()},
        {"type": 3, "a": tensor()},
        [[[tensor(), None], {"b": [1, "x"]}]],
        tensor(shape=(True, 2)),
        {**tensor(), "shape": [2, None]},
        {**tensor(), "shape": [2, 3.0]},
        {**tensor(), "shape": [10**30, 2]},
        {**tensor(), "shape": "unknown"},
        {**tensor(), "dtype": 7},
        {**tensor(), "requires_grad": 1},
        {**tensor(), "requires_grad": None},
        {**tensor(), "Max": "NaN", "Norm": "Infinity"},
        {**tensor(), "md5": "0f"},
        {**tensor(), "data_name": "Torch.a.0.forward.input.0.pt"},
        {"type": "torch.Size", "value": [1, 2]},
        {"type": "slice", "value": [None, 1, None]},
        {"class_type": "P2POp", "op": "isend", "peer": 1},
        {"type": "int", "value": 3, "dtype": "x"},
        "\ud800",
    ],
)
def test_values_out_of_the_ordinary(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    data = {
        "Torch.a.0.forward": {
            "input_args": [value, tensor()],
            "input_kwargs": {"src": {"type": "int", "value": 1}},
            "more": 3,
            "output": value,
        }
    }
    quick = rows.calls_of(data, "")
    twins = rows.Builder("", {call.name: call for call in quick}).calls(data)
    monkeypatch.setattr(rows, "_rows_of", None)
    slow = rows.calls_of(data, "")
    assert repr(quick) == repr(slow)
    assert repr(twins) == repr(rows.Builder("", {call.name: call for call in slow}).calls(data))


@needs_c
def test_too_deep_for_c_is_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    value: object = tensor()
    for _ in range(200):
        value = [value]
    data = {"Torch.a.0.forward": api([value], [])}
    quick = rows.calls_of(data, "")
    monkeypatch.setattr(rows, "_rows_of", None)
    assert quick == rows.calls_of(data, "")
    assert quick[0].rows[0].key == "input.0" + ".0" * 200


def test_cells_are_as_a_tuple() -> None:
    sides = [rows.calls_of({f"Torch.a.{i}.forward": api([tensor(1.0 + i)], [tensor(x + i)]) for i in range(300)}, "") for x in (1.0, 1.5)]
    calls = measure_many.measure_calls(match(*sides), StatisticsMeasurer(), (), _INSTEAD)
    measure = calls[7].rows[1].measure
    assert measure is not None
    plain = StatisticsMeasurer()(*calls[7].rows[1].pair)  # type: ignore[arg-type]
    assert isinstance(measure.cells, csv_text.Cells)
    assert measure == plain
    assert hash(measure.cells) == hash(plain.cells)
    assert len(measure.cells) == 8
    assert list(measure.cells) == list(plain.cells)
    assert measure.cells[3] == plain.cells[3]
    assert list(measure.cells[:2]) == list(plain.cells[:2])
    assert measure.cells != ("0",) * 8
    assert measure.cells != "0"
