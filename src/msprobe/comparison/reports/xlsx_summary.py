"""The first sheet of the workbook: what was compared, the first difference, counts, notes, and what the words mean."""

from __future__ import annotations

from xlsxwriter.workbook import Workbook  # type: ignore[import-untyped]

from msprobe.comparison.describe import describe
from msprobe.comparison.inputs import Plan
from msprobe.comparison.outcome import Outcome, PairReport
from msprobe.comparison.sentence import opening

COLOURS = {"pass": "#A9D8EE", "warning": "#FFD966", "error": "#F28C5E", "unmatched": "#D9A7E8", "not compared": "#C9CDD2"}
"""Of the cell `Result`. Colour-blind people can tell them apart, by lightness too."""

SHADES = {"pass": "", "warning": "#FFF7DC", "error": "#FCE4D9", "unmatched": "#F5E8F9", "not compared": "#F0F1F3"}
"""Of the rest of the row."""

MEANINGS = {
    "pass": "compared, and equal up to rounding",
    "warning": "differs, but only follows from what differed before; or differs slightly",
    "error": "differs where it should not",
    "unmatched": "only one side has this value",
    "not compared": "could not be measured; the reason is in Err_message",
}

_UNITS = (
    ("NPU …", "the target: the run in question, whatever it ran on"),
    ("Bench …", "the golden run, which is trusted"),
    ("… diff", "target - golden"),
    ("…RelativeErr (statistics)", "|difference / golden| in per cent"),
    ("MaxRelativeErr, … Err Ratio (tensors)", "of single elements; the ratios are shares between 0 and 1"),
)


def add(book: Workbook, report: PairReport) -> None:
    """Adds the sheet `summary` to a workbook."""
    sheet = book.add_worksheet("summary")
    sheet.hide_gridlines(2)
    sheet.set_column(0, 0, 30)
    sheet.set_column(1, 1, 16)
    sheet.set_column(2, 2, 90)
    title = book.add_format({"bold": True, "font_size": 15})
    head = book.add_format({"bold": True, "font_size": 12, "bottom": 1, "bottom_color": "#8A939E"})
    mono = book.add_format({"font_name": "Consolas", "font_size": 10})
    line = 0

    def put(*cells: object, style: object = None) -> None:
        nonlocal line
        for column, cell in enumerate(cells):
            if isinstance(cell, int):
                sheet.write_number(line, column, cell, style)
            elif cell:
                sheet.write_string(line, column, _clean(str(cell)), style)
        line += 1

    def section(name: str) -> None:
        nonlocal line
        line += 1
        put(name, style=head)

    alone = Outcome(Plan("file", (report.pair,), (), ()), (report,), ())
    put(opening(alone), style=title)
    section("Compared")
    put("target", "", report.pair.target)
    put("golden", "", report.pair.golden)
    put("by", "", report.mode)
    if report.pair.title:
        put("step and rank", "", report.pair.title)
    section("Result")
    put("rows that both sides have", report.matched)
    for word, meaning in MEANINGS.items():
        sheet.write_string(line, 0, word, book.add_format({"bg_color": COLOURS[word], "bold": True}))
        sheet.write_number(line, 1, report.counts[word])  # type: ignore[index]
        sheet.write_string(line, 2, meaning)
        line += 1
    skipped = (opening(alone), "result: ", "note: ", f"{report.matched} rows matched", f"{report.pair.title}: ")
    told = [line.text for line in describe(alone) if line.text and not line.text.startswith(skipped)]
    if told:
        section("First difference")
        for text in told:
            put(text, style=mono)
    if report.notes:
        section("Notes")
        for note in report.notes:
            put(note)
    section("Columns")
    for name, meaning in _UNITS:
        put(name, "", meaning)
    sheet.activate()


def _clean(text: str) -> str:
    from msprobe.comparison.reports.xlsx import text_cell

    return text_cell(text)
