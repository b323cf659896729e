"""The documents agree with the Makefile and with pyproject.toml."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from docs.documents import DOCUMENTS, ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it along


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=!~;\[ ]", requirement, maxsplit=1)[0].lower() for requirement in requirements}


def test_each_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = _names(project["dependencies"]).union(*map(_names, project["optional-dependencies"].values()))
    text = (ROOT / "docs" / "dependencies.md").read_text().lower()
    first_cells = re.findall(r"^\|([^|]*)\|([^|]*)\|", text, re.MULTILINE)
    explained = {word.strip(" `") for cells in first_cells for cell in cells for word in cell.split(",")}
    assert wanted - explained == {"msprobe"}  # the extra `test` holds other extras


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_every_make_target_that_is_named_exists() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    targets = sorted(set(re.findall(r"`?make ([a-z]+)`", text)) | set(re.findall(r"^make ([a-z]+)$", text, re.MULTILINE)))
    assert {"demo", "test", "lint", "bench"} <= set(targets)
    for target in targets:
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"make {target}: {done.stderr}"


def test_the_check_can_be_started() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
