from __future__ import annotations

from pathlib import Path

import pytest

from launch.runs import ARMED, Runs
from warm_python import command


def warm(kind: str) -> list[str]:
    """The beginning of a command that runs a script in a process that has torch already; its client is a Python that looks for us."""
    python, *_, client, socket = command(kind)
    return [python, client, socket, ARMED]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Runs scripts in an empty directory, with `msprobe run` and without."""
    return Runs(warm("torch"), tmp_path)


@pytest.fixture
def packages(tmp_path: Path) -> Runs:
    """The same, with transformers and accelerate loaded."""
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    return Runs(warm("transformers"), tmp_path)


@pytest.fixture
def alone(tmp_path: Path) -> Runs:
    """Runs commands in interpreters of their own."""
    return Runs([], tmp_path)
