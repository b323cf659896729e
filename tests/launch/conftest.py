from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.runs import Runs

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The beginning of a command that runs a script; server.py says how."""
    path = tmp_path_factory.mktemp("server") / "socket"
    with subprocess.Popen([sys.executable, str(HERE / "server.py"), str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield [sys.executable, str(HERE / "program.py"), str(path)]
        process.terminate()


@pytest.fixture
def runs(server: list[str], tmp_path: Path) -> Runs:
    """Runs scripts in an empty directory, with `msprobe run` and without."""
    return Runs(server, tmp_path)


@pytest.fixture
def alone(tmp_path: Path) -> Runs:
    """Runs commands that need no server."""
    return Runs([], tmp_path)
