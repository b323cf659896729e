"""Functions that a script has imported by name before start() are recorded, too; see by_name.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore


def test_functions_imported_by_name_are_recorded_and_put_back(run_mindspore: Callable[..., Any], tmp_path: Path) -> None:
    assert run_mindspore("dump/by_name.py", tmp_path) == {"same": True, "one": True, "back": True}
    (path,) = tmp_path.glob("dump/step0/*/dump.json")
    names = [name for name in json.loads(path.read_text(encoding="utf-8"))["data"] if name.endswith(".forward")]
    assert "deprecat" not in (tmp_path / "output.txt").read_text(encoding="utf-8").lower()  # importing us warns of nothing
    assert [name.removesuffix(".forward") for name in names] == [
        "Functional.relu.0",
        "Functional.tanh.0",
        "Tensor.__mul__.0",
        "Functional.sin.0",
        "Functional.relu.1",
        "Tensor.__add__.0",
        "Tensor.sum.0",
    ]  # fmt: skip  (mint.tanh is ops.tanh: which of the two the script has imported cannot be told)
