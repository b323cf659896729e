"""The rows of one pair of dumps as a workbook: a summary, then the columns of the CSV with colours, filters and a fixed header."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import xlsxwriter  # type: ignore[import-untyped]
from xlsxwriter.format import Format  # type: ignore[import-untyped]
from xlsxwriter.workbook import Workbook  # type: ignore[import-untyped]
from xlsxwriter.worksheet import Worksheet  # type: ignore[import-untyped]

from msprobe.comparison import report_csv
from msprobe.comparison.compared import Compared
from msprobe.comparison.outcome import PairReport
from msprobe.comparison.reports import xlsx_summary
from msprobe.comparison.reports.full_rows import STACK, full_rows
from msprobe.comparison.reports.new_file import new_file
from msprobe.comparison.stacks import frames_of
from msprobe.comparison.temporary import temporary_directory

SHEET = "Sheet1"
"""Name of the sheet with the rows, as in files of the existing tool; the next ones count on."""

MAX_ROWS = 1 << 20
"""Rows of a sheet, its header included: a limit of the file format, as are the next two."""

MAX_TEXT = 32767
_EXACT = 1 << 53  # the largest integer up to which a spreadsheet's numbers are exact

_WIDTHS = {"NPU Name": 58, "Bench Name": 58, "Err_message": 60, STACK: 60, "Data_name": 40, "Result": 13}
_WIDTH = 15
_OPTIONS = {
    "constant_memory": True,
    # A text stays a text: nothing that a dump says becomes a formula, a link or a number.
    "strings_to_formulas": False,
    "strings_to_urls": False,
    "strings_to_numbers": False,
}


def write(report: PairReport, compared: Compared, directory: Path, name: str) -> Path:
    """Writes `{name}.xlsx`; returns its path. Raises OSError."""
    # Rows wait in temporary files, which xlsxwriter leaves behind when it is interrupted.
    with temporary_directory() as waiting, new_file(directory, name, "xlsx") as (path, stream):
        whole = io.BytesIO()  # where it is interrupted, the archive that xlsxwriter forgets would end itself in a stream that is closed
        book = xlsxwriter.Workbook(whole, _OPTIONS | {"tmpdir": waiting})
        xlsx_summary.add(book, report)
        _add_rows(book, compared)
        book.close()
        stream.write(whole.getbuffer())
    return path


def _add_rows(book: Workbook, compared: Compared) -> None:
    header = report_csv.header(compared)
    result, message = header.index("Result"), header.index("Err_message")
    stack = header.index(STACK) if STACK in header else None
    shades = {word: book.add_format({"bg_color": colour}) if colour else None for word, colour in xlsx_summary.SHADES.items()}
    marks = {word: book.add_format({"bg_color": colour, "bold": True}) for word, colour in xlsx_summary.COLOURS.items()}
    texts: dict[int, str] = {}
    sheets = 0
    line = MAX_ROWS
    sheet: Worksheet | None = None
    for row in full_rows(compared):
        if sheet is None or line >= MAX_ROWS:
            _finish(sheet, line, len(header))
            sheets += 1
            sheet, line = _sheet(book, f"Sheet{sheets}", header), 1
        word = row.verdict.result
        shade = shades.get(word)
        for column, cell in enumerate(row.cells):
            if column == result:
                sheet.write_string(line, column, word, marks.get(word))
                continue
            if column == message:
                cell = json.dumps(row.verdict.messages, ensure_ascii=False) if row.verdict.messages else "[]"
            elif column == stack:
                cell = _stack(row.call.name, compared, texts) if row.first and row.target is not None else "N/A"
            _cell(sheet, line, column, cell, shade)
        line += 1
    if sheet is None:
        sheet, line = _sheet(book, SHEET, header), 1
    _finish(sheet, line, len(header))


def _sheet(book: Workbook, name: str, header: tuple[str, ...]) -> Worksheet:
    sheet: Worksheet = book.add_worksheet(name)
    head = book.add_format({"bold": True, "bottom": 1, "bg_color": "#E8ECF1", "valign": "vcenter"})
    for column, title in enumerate(header):
        sheet.set_column(column, column, _WIDTHS.get(title, max(_WIDTH, min(len(title) + 4, 30))))
    sheet.set_row(0, 22)
    for column, title in enumerate(header):
        sheet.write_string(0, column, title, head)
    sheet.freeze_panes(1, 1)
    return sheet


def _finish(sheet: Worksheet | None, line: int, columns: int) -> None:
    if sheet is not None:
        sheet.autofilter(0, 0, line - 1, columns - 1)


def _cell(sheet: Worksheet, line: int, column: int, cell: Any, shade: Format | None) -> None:
    kind = type(cell)
    if kind is bool:
        sheet.write_boolean(line, column, cell, shade)
    elif (kind is float and math.isfinite(cell)) or (kind is int and -_EXACT <= cell <= _EXACT):
        sheet.write_number(line, column, cell, shade)
    else:
        sheet.write_string(line, column, text_cell(cell), shade)


def text_cell(cell: Any) -> str:
    """Any value as a text that the file format can hold: words of the CSV for what is no number, no control characters, clipped."""
    if type(cell) is float:
        text = "Nan" if cell != cell else " inf" if cell > 0 else " -inf"
    else:
        text = "N/A" if cell is None else str(cell)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _stack(name: str, compared: Compared, texts: dict[int, str]) -> str:
    frames = frames_of(name, compared.stacks or {})
    if not frames:
        return "N/A"
    if id(frames) not in texts:
        texts[id(frames)] = repr(list(frames))
    return texts[id(frames)]
