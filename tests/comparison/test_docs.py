"""What docs/compare.md and its Chinese sister promise is what the code does."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import pytest

from msprobe.cli import compare, isolate, merge_result
from msprobe.cli.compare import _NOT_YET
from msprobe.comparison import report_summary, thresholds
from msprobe.comparison.calls import UNINITIALISED
from msprobe.comparison.judge import RESULTS
from msprobe.comparison.reasons import _WORDS, Reason
from msprobe.comparison.report_csv import columns

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "compare.md", ROOT / "docs" / "zh" / "compare.md"]
DTYPES = {
    "float64, complex128": ("float64", "complex128"),
    "float32, complex64": ("float32", "complex64"),
    "float16, complex32": ("float16", "complex32"),
    "bfloat16": ("bfloat16",),
    "float8 e4m3 / e5m2": ("float8_e4m3fn", "float8_e5m2"),
}


@pytest.fixture(params=PAGES, ids=lambda path: path.parent.name)
def page(request: pytest.FixtureRequest) -> str:
    path: Path = request.param
    return path.read_text(encoding="utf-8")


def test_table_of_rounding(page: str) -> None:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    table = {row[0]: row[1:] for row in cells if row[0] in DTYPES}
    assert table.keys() == DTYPES.keys()
    for label, dtypes in DTYPES.items():
        for column, numbers in enumerate((thresholds.ROUNDING, thresholds.SLIGHT)):
            given = [float(text) for text in table[label][column].split("/")]
            assert [numbers[dtype] for dtype in dtypes] == (given if len(given) == len(dtypes) else given * len(dtypes))


def test_numbers_of_the_rules(page: str) -> None:
    for number in (thresholds.THOUSANDTH_INPUT, thresholds.THOUSANDTH_OUTPUT, thresholds.NORM_INPUT, thresholds.NORM_OUTPUT):
        assert f" {number}" in page


def test_every_option_that_is_not_built_yet_is_listed(page: str) -> None:
    for flags, _, _ in _NOT_YET:
        assert f"`{flags[0]}`" in page


def test_words_columns_and_ignored_calls(page: str) -> None:
    for word in RESULTS:
        assert f"| `{word}` |" in page
    for mode in ("statistics", "tensor", "md5"):
        for column in columns(mode, (), stack=True):  # type: ignore[arg-type]
            assert column in page
    assert ", ".join(report_summary.COLUMNS) in page
    for api in UNINITIALISED - {"empty_with_format"}:
        assert f"`{api}`" in page


def test_the_sentence_in_place_of_a_first_difference(page: str) -> None:
    reason = Reason(
        76,
        "row has another dtype on each side",
        "rows have another dtype on each side",
        "Module.0.Linear.forward.0 input.0: torch.float64 / torch.float32",
    )
    assert f"Values agree up to rounding; {reason}" in page
    assert _WORDS["dtype"] == (reason.one, reason.many)


@pytest.mark.parametrize("page", PAGES, ids=["en", "zh"])
def test_a_printed_sample_has_the_words_of_its_mode(page: Path) -> None:
    """Nothing runs what was printed for a reader's own model; under four statistics stands how far these are apart."""
    text = page.read_text(encoding="utf-8")
    table = r"^ +Max +Min +Mean +Norm\n +target .*\n +golden .*\n"
    below = re.findall(table + r" +(\D+?) [\d.]", text, re.MULTILINE)
    assert below and set(below) == {"largest difference of these"}


@pytest.mark.parametrize("folder", [".", "zh"])
@pytest.mark.parametrize(("command", "name"), [(compare, "compare.md"), (merge_result, "compare.md"), (isolate, "isolate.md")])
def test_every_option_is_named(command: Any, name: str, folder: str) -> None:
    """In both spellings; those that are not built yet, too."""
    parser = argparse.ArgumentParser(add_help=False)
    command.add_arguments(parser)
    page = (ROOT / "docs" / folder / name).read_text(encoding="utf-8")
    spellings = [spelling for action in parser._actions for spelling in action.option_strings]
    assert len(spellings) > 5
    assert [spelling for spelling in spellings if not re.search(rf"[\s`\[]{spelling}[\s`\]]", page)] == []
