"""MindSpore has an interpreter of its own: the tests that need it run scripts there, and look here at what these have left."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import warm_python

PYTHON = os.environ.get("MSPROBE_MINDSPORE_PYTHON", "")
SOURCE = Path(__file__).parents[2] / "src"
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without that interpreter what is marked cannot run."""
    if not PYTHON:
        for item in items:
            if item.get_closest_marker("mindspore"):
                item.add_marker(pytest.mark.skip(reason="MSPROBE_MINDSPORE_PYTHON does not name an interpreter that has MindSpore"))


@pytest.fixture(scope="session")
def run_mindspore() -> Callable[..., Any]:
    """`run(script, directory, *arguments)` runs a script of tests/mindspore in an empty directory, in a process that has imported MindSpore
    (warm_python); gives what it has put into the file that is its first argument. `status`: what it must end with."""

    def run(script: str, directory: Path, *arguments: str, status: int = 0) -> Any:
        answer = directory / "answer.json"
        environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE}", "GLOG_v": "3"}
        command = [*warm_python.command("mindspore"), str(HERE / script), str(answer), *arguments]
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=900)
        assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
        (directory / "output.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
        return json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else None

    return run
