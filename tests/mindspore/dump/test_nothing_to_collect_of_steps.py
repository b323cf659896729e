"""A step that has ended is freed at once, and not when Python's garbage collector comes to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore


def test_of_what_is_recorded(run_mindspore: Callable[..., Any], tmp_path: Path) -> None:
    found = run_mindspore("dump/nothing_to_collect.py", tmp_path)
    assert len(found) == 6
    assert found == {key: {} for key in found}
