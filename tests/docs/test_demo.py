"""What README.md shows of `make demo` is what the demo prints."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.documents import ROOT, blocks, normalised

pytest.importorskip("transformers")


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
