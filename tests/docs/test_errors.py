"""docs/errors: every place of the source that raises or warns has a page, and every message that a page shows is in the source."""

from __future__ import annotations

import ast
import inspect
import re
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from docs.documents import ROOT, blocks, headings
from msprobe import errors

SOURCE = ROOT / "src" / "msprobe"
PAGES = ROOT / "docs" / "errors"
INDEX = PAGES / "README.md"
CHINESE = ROOT / "docs" / "zh" / "errors" / "README.md"
CLASSES = {name for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)}
_ROW = re.compile(r"^\| \[[^\]]+\]\(([\w/.]+)\) \|.*\| ([^|]+) \|$", re.MULTILINE)


@cache
def globs() -> dict[str, list[str]]:
    """Page -> where its messages come from."""
    return {page: re.findall(r"`([^`]+)`", where) for page, where in _ROW.findall(INDEX.read_text(encoding="utf-8"))}


@cache
def pages_of(file: str) -> frozenset[str]:
    return frozenset(page for page, patterns in globs().items() if any(fnmatch(file, pattern) for pattern in patterns))


def _speaks(node: ast.AST) -> bool:
    """Whether a user sees what is said here: one of our exceptions is raised, or the log gets a warning or an error."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        return isinstance(node.exc.func, ast.Name) and node.exc.func.id in CLASSES
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        return (node.func.value.id, node.func.attr) in {("logger", "warning"), ("logger", "error")}
    return False


@cache
def speaking() -> dict[str, list[int]]:
    """File -> the lines where it speaks."""
    found: dict[str, list[int]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        lines = [node.lineno for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if _speaks(node)]
        if lines:
            found[path.relative_to(SOURCE).as_posix()] = lines
    return found


@cache
def texts(file: Path) -> tuple[str, ...]:
    """The strings of a file; what is filled in later is an ellipsis."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            found.append("".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return tuple(found)


def test_every_place_that_speaks_has_a_page() -> None:
    assert len(speaking()) > 60
    assert [f"{file}, lines {lines}" for file, lines in speaking().items() if not pages_of(file)] == []


def test_every_row_leads_to_a_page_and_every_page_has_a_row() -> None:
    assert set(globs()) == {path.name for path in PAGES.glob("*.md")} - {"README.md"}
    files = [path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")]
    assert [pattern for patterns in globs().values() for pattern in patterns if not any(fnmatch(file, pattern) for file in files)] == []


def test_every_class_of_errors_is_explained() -> None:
    for document in (INDEX, CHINESE):
        text = document.read_text(encoding="utf-8")
        assert [name for name in sorted(CLASSES) if f"`{name}`" not in text] == [], document


def test_the_chinese_index_leads_to_every_page() -> None:
    """In the same order; that a page's code is the original's, test_links.py says."""
    text = CHINESE.read_text(encoding="utf-8")
    assert re.findall(r"^\| \[[^\]]+\]\(([\w.]+)\)", text, re.MULTILINE) == list(globs())
    assert {path.name for path in CHINESE.parent.glob("*.md")} == {*globs(), INDEX.name}


@pytest.mark.parametrize("page", sorted(path.name for path in PAGES.glob("*.md") if path != INDEX))
def test_a_page(page: str) -> None:
    """Its first block is messages, of the source files of its row; it has an example, which test_code_blocks.py runs."""
    first, *others = blocks(PAGES / page)
    assert first.language == "text" and first.note is None
    files = [path for path in SOURCE.rglob("*.py") if page in pages_of(path.relative_to(SOURCE).as_posix())]
    known = [text for file in files for text in texts(file)]
    for message in first.text.splitlines():
        pattern = re.compile(".*".join(map(re.escape, filter(None, map(str.strip, message.split("…"))))), re.DOTALL)
        assert any(map(pattern.search, known)), f"no file of the row of {page} says: {message}"
    assert [text for level, text in headings(PAGES / page) if level == 2] == ["An example"]
    assert any(block.language in ("python", "shell") for block in others) and any(block.note == ("shows", "output") for block in others)


@pytest.mark.parametrize("page", sorted(path.name for path in PAGES.glob("*.md") if path != INDEX))
def test_quotations_of_a_page(page: str) -> None:
    """What the first column of its table quotes is said somewhere, and quoted by the translation, in as many rows."""
    known = [text for file in SOURCE.rglob("*.py") for text in texts(file)]
    known += [path.read_text(encoding="utf-8") for path in (SOURCE / "config").glob("*.py")]  # names of fields and values
    rows, translated = (
        re.findall(r"^\| (.+) \| .+ \|$", (directory / page).read_text(encoding="utf-8"), re.MULTILINE)
        for directory in (PAGES, CHINESE.parent)
    )
    assert len(rows) > 2
    assert [re.findall(r"`[^`]+`", row) for row in rows] == [re.findall(r"`[^`]+`", row) for row in translated]
    for quotation in re.findall(r"`([^`]+)`", " ".join(rows)):
        pieces = [re.escape(piece.strip()) for piece in quotation.split("...") if piece.strip(' "')]
        assert any(re.search(".*".join(pieces), text, re.DOTALL) for text in known), f"nothing says: {quotation}"
