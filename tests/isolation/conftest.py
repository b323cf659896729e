from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolation.scripts import Scripts

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The beginning of a command that runs a script; script_server.py says how."""
    socket = tmp_path_factory.mktemp("server") / "socket"
    with subprocess.Popen([sys.executable, str(HERE / "script_server.py"), str(socket)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield [sys.executable, "-S", "-E", str(HERE / "script_client.py"), str(socket)]
        process.terminate()


@pytest.fixture
def scripts(server: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripts:
    """Runs scripts, and isolates them, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("MSPROBE_ISOLATE", "FAULT"):
        monkeypatch.delenv(name, raising=False)
    assert os.getcwd() == str(tmp_path)
    return Scripts(server, tmp_path)
