"""docs/coverage.md: every test it names exists, every row has one or is told to be missing, no field and no interface is left out."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from functools import cache

import pytest

from docs.documents import ROOT, headings, prose

PAGE = ROOT / "docs" / "coverage.md"
PROMISES = ("promise", "where", "test", "beyond it")
DIFFERENCES = ("there", "here", "why", "test")
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def tables() -> dict[tuple[str, ...], list[dict[str, str]]]:
    """Header of a table -> the rows of all tables with that header."""
    found: dict[tuple[str, ...], list[dict[str, str]]] = {}
    header: tuple[str, ...] | None = None
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            header = None
            continue
        cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
        if header is None:
            header = cells
            found.setdefault(header, [])
        else:
            assert len(cells) == len(header), line
            if set("".join(cells)) - set("- "):
                found[header].append(dict(zip(header, cells, strict=True)))
    return found


TABLES = tables()


@cache
def names_in(path: str) -> frozenset[str]:
    """Names of the test functions of a file."""
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


@pytest.mark.parametrize("header", [PROMISES, DIFFERENCES])
def test_every_test_that_is_named_exists(header: tuple[str, ...]) -> None:
    wrong = []
    for row in TABLES[header]:
        for path, name in _TEST.findall(row["test"]):
            if not (ROOT / "tests" / path).exists() or name not in names_in(path):
                wrong.append(f"{path}::{name}")
    assert wrong == []


@pytest.mark.parametrize("header", [PROMISES, DIFFERENCES])
def test_every_row_names_tests_and_nothing_else(header: tuple[str, ...]) -> None:
    """Or is a dash."""
    assert TABLES[header]
    odd = [row for row in TABLES[header] if _TEST.sub("", row["test"]).replace(",", "").strip() not in ("", "-") or not row["test"]]
    assert odd == []


def test_a_dash_is_listed_as_not_yet_and_nothing_else_is() -> None:
    missing = {row["promise"] for row in TABLES[PROMISES] if row["test"] == "-"}
    assert missing == {row["promise"] for rows in TABLES.values() for row in rows if "where it will come from" in row}
    assert [row for row in TABLES[DIFFERENCES] if row["test"] == "-"] == []


def test_no_promise_stands_twice() -> None:
    promises = [row["promise"] for row in TABLES[PROMISES]]
    assert [promise for promise in promises if promises.count(promise) > 1] == []


def test_every_field_of_the_configuration_has_a_row() -> None:
    """Those of config.json that the two documents know."""
    from msprobe.config.result import Config, Section

    ours = {"framework", "source", "load", "section", "ops_dir"}
    of_mindspore = {"check_mode"}
    names = {field.name for kind in (Config, Section) for field in fields(kind)} - ours - of_mindspore
    fields_section = PAGE.read_text(encoding="utf-8").partition("## Fields of config.json")[2].partition("\n## ")[0]
    assert [name for name in sorted(names) if f"`{name}`" not in fields_section] == []


def test_every_public_name_has_a_row() -> None:
    pytorch = pytest.importorskip("msprobe.pytorch")
    from msprobe.pytorch import PrecisionDebugger

    names = {name for name in vars(PrecisionDebugger) if not name.startswith("_")} | set(pytorch.__all__)
    promised = " ".join(row["promise"] for row in TABLES[PROMISES])
    assert [name for name in sorted(names) if not re.search(rf"`{name}\b", promised)] == []


def test_the_chinese_page_points_at_every_section() -> None:
    chinese = prose(ROOT / "docs" / "zh" / "coverage.md")
    anchors = [re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for level, text in headings(PAGE) if level == 2]
    assert [anchor for anchor in anchors if f"#{anchor})" not in chinese] == []
