from __future__ import annotations

import os
from pathlib import Path

import pytest

import warm_python
from isolation.scripts import Scripts


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripts:
    """Runs scripts, and isolates them, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("MSPROBE_ISOLATE", "FAULT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert os.getcwd() == str(tmp_path)
    return Scripts(warm_python.command("transformers"), tmp_path)
