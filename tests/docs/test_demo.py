"""What README.md shows of `make demo` is what the demo prints."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.documents import ROOT, blocks

pytest.importorskip("transformers")


def normalised(text: str) -> list[str]:
    """Without what depends on the day, the process, the machine or the version of a library."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", text)
    text = re.sub(r"_\d{14}\b", "_TIME", text)
    text = re.sub(r"\(\d+\)", "(PID)", text)
    text = re.sub(r"\bproc\d+", "procPID", text)
    text = re.sub(r"\+\d+ ms", "+N ms", text)
    text = re.sub(r"\S*/site-packages/(\S+?):\d+ ", r".../\1:LINE ", text)  # a line of an installed library
    text = re.sub(r" /\S*/(examples/demo/)", r" .../\1", text)
    text = re.sub(r"-?\b\d+\.\d+(e-?\d+)?\b", "NUMBER", text)
    text = re.sub(r"\b\d+ (pass|warning|error)\b", r"N \1", text)
    return [re.sub(r" +", " ", line).strip() for line in text.strip().splitlines()]


def test_transcript_in_readme(tmp_path: Path) -> None:
    (shown,) = [block for block in blocks(ROOT / "README.md") if block.note == ("transcript", "make demo")]
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "MSPROBE_LOG_LEVEL": "1"}
    command = [sys.executable, "examples/demo/demo.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    printed, expected = normalised(done.stdout), normalised(shown.text)
    assert printed[-len(expected) :] == expected


def test_demo_blames_the_planted_line() -> None:
    """The line that README.md shows is the one with the fault in broken_layer.py."""
    (shown,) = [block for block in blocks(ROOT / "README.md") if block.note == ("transcript", "make demo")]
    found = re.search(r"broken_layer\.py:(\d+)", shown.text)
    assert found is not None
    line = (ROOT / "examples" / "demo" / "broken_layer.py").read_text().splitlines()[int(found.group(1)) - 1]
    assert "the fault" in line
