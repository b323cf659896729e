"""Reads the Markdown files of the project: their code blocks, links and headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md", *(ROOT / "docs").rglob("*.md")])
TRANSLATED = [
    ROOT / "docs" / "zh" / name
    for name in (
        "quickstart.md",
        "recording.md",
        "files.md",
        "crash-safety.md",
        "custom_apis.md",
        "enable.md",
        "isolate.md",
        "load.md",
        "python_api.md",
        "risk_levels.md",
        "run.md",
        "switching_on.md",
        "transformers.md",
        "lightning.md",
        "mindspore.md",
        "sglang.md",
        "vllm.md",
        "vllm_ascend.md",
    )
] + sorted((ROOT / "docs" / "zh" / "errors").glob("*.md"))
"""These repeat the code blocks of their originals in docs/."""

OF_MINDSPORE = ROOT / "docs" / "mindspore.md"
"""Its blocks need MindSpore: tests/mindspore/test_quick_start.py runs them."""

# A comment in front of a block says what a test has to know: <!-- file: config.json -->, <!-- exit: 1 -->, <!-- shows: output -->,
# <!-- transcript: make demo -->
_FENCE = re.compile(r"^(?P<ticks>```+)(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=ticks)[ \t]*$", re.MULTILINE | re.DOTALL)
_NOTE = re.compile(r"<!-- (\w+): (.+?) -->\s*\Z")
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^(#+) +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced code block. `note` is the key and the value of the comment in front of it."""

    document: Path
    line: int
    language: str
    text: str
    note: tuple[str, str] | None

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks(document: Path) -> list[Block]:
    """The code blocks of a document, in order."""
    text = document.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        note = _NOTE.search(before)
        pair = (note.group(1), note.group(2)) if note else None
        found.append(Block(document, before.count("\n") + 1, match["language"].strip(), match["text"], pair))
    return found


def prose(document: Path) -> str:
    """The text without its code blocks."""
    return _FENCE.sub("", document.read_text(encoding="utf-8"))


def links(document: Path) -> list[str]:
    """The targets of links, as written."""
    return _LINK.findall(prose(document))


def headings(document: Path) -> list[tuple[int, str]]:
    """Level and text of the headings."""
    return [(len(marks), text) for marks, text in _HEADING.findall(prose(document))]


def anchors(document: Path) -> set[str]:
    """What a link may name after `#`, made from the headings as code hosts make it."""
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for _, text in headings(document)}


def normalised(text: str) -> list[str]:
    """The lines of a program's output without what depends on the day, the process, the machine or the version of a library."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"_\d{14}(_\d+)?\b", "_TIME", text)  # a number after it: the second one of one second
    text = re.sub(r"\(\d+\)", "(PID)", text)
    text = re.sub(r"(\b|_)proc\d+", r"\1procPID", text)
    text = re.sub(r"\+\d+ ms", "+N ms", text)
    text = re.sub(r"\bthrough /.*?/(\w+\.py):\d+ ", r"through .../\1:LINE ", text)  # a line of an installed library
    text = re.sub(r"\b(modeling_\w+\.py):\d+", r"\1:LINE", text)  # a line of transformers
    text = re.sub(r"\bat /.*?/(\w+\.py:\d+ )", r"at .../\1", text)
    text = re.sub(r"-?\b\d+\.\d+(e-?\d+)?\b", "NUMBER", text)
    text = re.sub(r"\b\d+ (pass|warning|error)\b", r"N \1", text)
    return [re.sub(r" +", " ", line).strip() for line in text.strip().splitlines()]
