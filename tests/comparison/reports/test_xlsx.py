from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comparison.dumps import api, read_csv, tensor, write_dump
from comparison.net import Net
from msprobe.comparison.outcome import PairReport
from msprobe.comparison.reports import xlsx
from msprobe.comparison.reports.xlsx_summary import COLOURS

from .made import HOSTILE, hostile, outcome_of, structure

openpyxl = pytest.importorskip("openpyxl")


def book_of(target: Path, golden: Path, output: Path) -> tuple[Any, PairReport]:
    (report,) = outcome_of(target, golden, output, "xlsx").reports
    return openpyxl.load_workbook(report.xlsx), report


def test_the_rows_are_those_of_the_csv(tmp_path: Path) -> None:
    book, report = book_of(Net(relu_gain=1.5).write(tmp_path / "t"), Net().write(tmp_path / "g"), tmp_path / "o")
    assert book.sheetnames == ["summary", "Sheet1"]
    assert report.csv is not None and report.xlsx is not None and report.xlsx.stem == report.csv.stem
    table = read_csv(report.csv)
    header, *rows = list(book["Sheet1"].iter_rows(values_only=True))
    assert list(header) == list(table[0])
    assert len(rows) == len(table)
    for row, cells in zip(rows, table, strict=True):
        for name, ours in zip(header, row, strict=True):
            csv = cells[name]
            same = float(csv) == ours if isinstance(ours, (int, float)) and not isinstance(ours, bool) else csv == str(ours)
            assert same, (name, csv, ours)


def test_header_filter_and_colours(tmp_path: Path) -> None:
    book, _ = book_of(Net(relu_gain=1.5).write(tmp_path / "t"), Net().write(tmp_path / "g"), tmp_path / "o")
    sheet = book["Sheet1"]
    assert sheet.freeze_panes == "B2"
    assert sheet.auto_filter.ref == sheet.dimensions
    place = [cell.value for cell in sheet[1]].index("Result")
    for row in sheet.iter_rows(min_row=2):
        colour = row[place].fill.fgColor.rgb
        assert colour == "FF" + COLOURS[row[place].value][1:]
    assert {row[place].value for row in sheet.iter_rows(min_row=2)} == {"pass", "warning", "error"}
    assert len(set(COLOURS.values())) == 5


def test_the_summary(tmp_path: Path) -> None:
    book, report = book_of(Net(relu_gain=1.5).write(tmp_path / "t"), Net().write(tmp_path / "g"), tmp_path / "o")
    rows = [[cell for cell in row if cell is not None] for row in book["summary"].iter_rows(values_only=True)]
    assert rows[0] == ["Inputs equal, `relu` in `blocks.0` differs (forward): model.py:102"]
    assert ["target", str(report.pair.target)] in rows
    for word, number in report.counts.items():
        assert any(row[:2] == [word, number] for row in rows)
    assert any(row and str(row[0]).startswith("First difference: Functional.relu.0.forward") for row in rows)
    assert book.active.title == "summary"


def test_nothing_becomes_a_formula_or_a_link(tmp_path: Path) -> None:
    book, _ = book_of(*hostile(tmp_path), tmp_path / "o")
    cells = [cell for sheet in book for row in sheet.iter_rows() for cell in row if cell.value is not None]
    assert {cell.data_type for cell in cells} == {"s", "n", "b"}
    assert not any(cell.hyperlink for cell in cells)
    assert HOSTILE[4] in {cell.value for cell in cells}


def test_calls_without_values(tmp_path: Path) -> None:
    book, report = book_of(*structure(tmp_path), tmp_path / "o")
    assert report.csv is not None
    assert [cell.value for cell in book["Sheet1"][1]] == list(read_csv(report.csv)[0])


def test_long_and_odd_texts_and_numbers(tmp_path: Path) -> None:
    values = ["x" * 40000, "a\x07b\ud800", 1 << 60, float("nan")]
    data = {"Torch.a.0.forward": api([{"type": type(value).__name__, "value": value} for value in values], [tensor()])}
    path = write_dump(tmp_path / "t", data)
    book, _ = book_of(path, path, tmp_path / "o")
    sheet = book["Sheet1"]
    place = [cell.value for cell in sheet[1]].index("NPU max")
    shown = [row[place] for row in sheet.iter_rows(min_row=2, values_only=True)]
    assert len(shown[0]) == 32767 and shown[0].endswith("…")
    assert shown[1:4] == ["a\\x07b\\ud800", str(1 << 60), "Nan"]


def test_more_rows_than_a_sheet_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx, "MAX_ROWS", 21)
    path = Net().write(tmp_path / "t")
    book, _ = book_of(path, path, tmp_path / "o")
    assert book.sheetnames == ["summary", "Sheet1", "Sheet2", "Sheet3"]
    assert sum(sheet.max_row - 1 for sheet in book if sheet.title != "summary") == 41
    assert book["Sheet3"].freeze_panes == "B2"
