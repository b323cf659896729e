"""The documents' code does what they say: every block in a language that can run is run.

Each document has a directory of its own, with README's config.json in it; its blocks run there in order. `<!-- file: NAME -->` in front
of a block saves it instead, `<!-- exit: N -->` gives the exit code to expect, `<!-- shows: output -->` says that the last block printed
these lines. Other blocks marked `text` are left alone.

`python` forks from a process that has imported torch (warm_python); the slow tests give what a user reads first real interpreters.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import warm_python
from docs.documents import DOCUMENTS, OF_MINDSPORE, ROOT, TRANSLATED, Block, blocks, normalised

# The translations' blocks are those of the originals (test_links.py).
RUN = [path for path in DOCUMENTS if path not in TRANSLATED and path != OF_MINDSPORE and blocks(path)]
IN_REAL_INTERPRETERS = [path for path in RUN if path.stem in ("README", "quickstart", "run", "enable", "switching_on", "transformers")]
SHELLS = {"shell", "bash", "sh"}
NOT_CODE = {"text", "diff", "yaml", "csv"}


def programs_of(directory: Path, python: list[str]) -> str:
    """A PATH whose `python` and `msprobe` are the ones under test."""
    for name, command in (("python", python), ("msprobe", [sys.executable, "-m", "msprobe"])):
        script = directory / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o755)
    return f"{directory}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize("document", RUN, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_run(document: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    imports = "transformers" if "from transformers" in document.read_text(encoding="utf-8") else "torch"
    check(document, tmp_path, programs_of(tmp_path_factory.mktemp("bin"), warm_python.command(imports)))


@pytest.mark.slow
@pytest.mark.parametrize("document", IN_REAL_INTERPRETERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_run_in_interpreters_of_their_own(document: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    check(document, tmp_path, programs_of(tmp_path_factory.mktemp("bin"), [sys.executable]))


def check(document: Path, directory: Path, programs: str) -> None:
    """Runs the blocks of a document, in order. `programs`: a PATH."""
    [config] = [block for block in blocks(ROOT / "README.md") if block.note == ("file", "config.json")]
    (directory / "config.json").write_text(config.text, encoding="utf-8")
    environment = os.environ | {"PATH": programs, "PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1", "MSPROBE_LOG_LEVEL": "1"}
    printed = ""
    for block in blocks(document):
        if block.language == "json":
            json.loads(block.text)
        if block.note is not None and block.note[0] == "file":
            (directory / block.note[1]).write_text(block.text, encoding="utf-8")
        elif block.language in SHELLS or block.language == "python":
            printed = _run(block, directory, environment)
        elif block.note == ("shows", "output"):
            assert "\n".join(normalised(block.text)) in "\n".join(normalised(printed)), f"{block} is not what was printed:\n{printed}"
        else:
            assert block.language in NOT_CODE | {"json"}, f"{block}: a block marked {block.language} is run by nobody"


def _run(block: Block, directory: Path, environment: dict[str, str]) -> str:
    command = ["python", "-c", block.text] if block.language == "python" else ["bash", "-euo", "pipefail", "-c", block.text]
    command[0] = shutil.which(command[0], path=environment["PATH"]) or command[0]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=300, check=False)
    expected = int(block.note[1]) if block.note is not None and block.note[0] == "exit" else 0
    assert done.returncode == expected, f"{block} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
