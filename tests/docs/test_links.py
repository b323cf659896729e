"""Links inside the documents lead somewhere, and the translations keep up."""

from __future__ import annotations

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
