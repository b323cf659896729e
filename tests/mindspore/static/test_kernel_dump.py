"""Level L2 on a CPU, where MindSpore's own dump writes tensors; see kernel_dump_cases.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore


def test_kernels_of_the_list_in_the_step_that_was_asked_for(run_mindspore: Callable[..., Any], tmp_path: Path) -> None:
    answer = run_mindspore("kernel_dump_cases.py", tmp_path)
    assert answer["variable"] == f"{answer['here']}/dump/kernel_kbyk_dump.json" and answer["other"] is None
    settings = json.loads((tmp_path / "dump" / "kernel_kbyk_dump.json").read_text(encoding="utf-8"))["common_dump_settings"]
    assert (settings["iteration"], settings["kernels"], settings["input_output"]) == ("1", ["name-regex(.*MatMul.*)"], 2)
    files = [Path(name) for name in answer["files"]]
    assert len(files) == 2 and all(file.name.startswith("MatMul.") and ".output." in file.name for file in files)
    assert {file.parent.name for file in files} == {"1"}
    output = (tmp_path / "output.txt").read_text(encoding="utf-8")
    assert 'does not look at "rank" (a process without communication has none, and writes); "file_format"' in output
    assert "synchronize" not in output and "[ERROR]" not in output
