"""Links inside the documents lead somewhere, and the translations keep up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.documents import DOCUMENTS, ROOT, TRANSLATED, anchors, blocks, headings, links


def _name(document: Path) -> str:
    return str(document.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_links_lead_to_something(document: Path) -> None:
    dead = []
    for target in links(document):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            dead.append(target)
    assert not dead


@pytest.mark.parametrize("document", sorted((ROOT / "docs" / "zh").rglob("*.md")), ids=_name)
def test_a_translation_links_translations(document: Path) -> None:
    """A page of the same name is linked on purpose: it says that it is the original."""
    docs = ROOT / "docs"
    english = []
    for target in links(document):
        file = (document.parent / target.partition("#")[0]).resolve()
        if "://" in target or not file.is_relative_to(docs) or file.is_relative_to(docs / "zh"):
            continue
        twin = docs / "zh" / file.relative_to(docs)
        if twin.exists() and twin != document:
            english.append(target)
    assert english == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_every_block_says_what_it_is(document: Path) -> None:
    """A block without a language would be run by nobody and noticed by nobody."""
    assert [str(block) for block in blocks(document) if not block.language] == []


@pytest.mark.parametrize("document", TRANSLATED, ids=_name)
def test_translation_has_the_same_code_and_sections(document: Path) -> None:
    original = ROOT / "docs" / document.relative_to(ROOT / "docs" / "zh")
    assert original.exists(), f"{document} translates nothing"
    assert [level for level, _ in headings(document)] == [level for level, _ in headings(original)]
    assert [(b.language, b.text, b.note) for b in blocks(document)] == [(b.language, b.text, b.note) for b in blocks(original)]


def test_the_chinese_page_has_every_special_case() -> None:
    """Each of the same length, so far as two languages can be: half of it is missing in no translation."""
    pages = (("## Special cases", ROOT / "docs" / "recording.md"), ("## 特殊情况", ROOT / "docs" / "zh" / "recording.md"))
    sections = [page.read_text(encoding="utf-8").partition(title)[2].partition("\n## ")[0] for title, page in pages]
    cases, translated = ([len(text) for text in section.split("\n\n") if text.lstrip().startswith("**")] for section in sections)
    assert len(cases) == len(translated) > 8
    assert [(case, other) for case, other in zip(cases, translated, strict=True) if other < case / 5] == []


MARKED = [ROOT / "README.md", *(ROOT / "docs" / folder / name for folder in (".", "zh") for name in ("quickstart.md", "mindspore.md"))]


@pytest.mark.parametrize("document", MARKED, ids=_name)
def test_the_lines_of_a_script_are_marked_and_counted(document: Path) -> None:
    """`# 1` to `# 6`: each line of ours has its number, and the text says how many there are."""
    script = next(block.text for block in blocks(document) if block.note == ("file", "train.py"))
    ours = [line for line in script.splitlines() if re.match(r"from msprobe|seed_all|( *)debugger\b", line)]
    assert [re.search(r"# (\d)", line)[1] for line in ours] == list("123456")  # type: ignore[index]
    assert re.search("Six lines in the script|在脚本中加六行", document.read_text(encoding="utf-8"))
