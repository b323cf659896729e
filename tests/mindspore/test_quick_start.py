"""docs/mindspore.md does what it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from docs.documents import OF_MINDSPORE
from docs.test_code_blocks import check, programs_of

pytestmark = pytest.mark.mindspore


def test_the_page_runs(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    check(OF_MINDSPORE, tmp_path, programs_of(tmp_path_factory.mktemp("bin"), [os.environ["MSPROBE_MINDSPORE_PYTHON"]]))
