"""What README.md shows of `make demo` is what the demo prints."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import warm_python
from docs.documents import ROOT, blocks, normalised
from docs.test_code_blocks import programs_of

pytest.importorskip("transformers")


@pytest.mark.parametrize("interpreter", ["forked", pytest.param("real", marks=pytest.mark.slow)])
def test_transcript_in_readme(tmp_path: Path, interpreter: str) -> None:
    (shown,) = [block for block in blocks(ROOT / "README.md") if block.note == ("transcript", "make demo")]
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "MSPROBE_LOG_LEVEL": "1"}
    command = [sys.executable, "examples/demo/demo.py"]
    if interpreter == "forked":  # what the demo takes for its interpreter is one that has imported transformers
        (tmp_path / "bin").mkdir()
        programs_of(tmp_path / "bin", warm_python.command("transformers"))
        start = "import runpy, sys; sys.executable = sys.argv[1]; runpy.run_path('examples/demo/demo.py', run_name='__main__')"
        command = [sys.executable, "-c", start, str(tmp_path / "bin" / "python")]
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
