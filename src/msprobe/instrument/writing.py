"""Writes what was planned: the configuration first, so that no script is left without it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from msprobe.errors import UsageError
from msprobe.instrument import configuring, source
from msprobe.instrument.answer import Answer, Check
from msprobe.instrument.plan import Planner


def write(planner: Planner, answer: Answer, python: str) -> None:
    """Makes an answer with status `ready` into one with status `written`.

    Raises UsageError, OSError: one of the files cannot be written; the script is as it was then, and so is the configuration.
    """
    assert planner.text is not None
    path = Path(answer.config["path"])
    before = path.read_bytes() if path.is_file() else None
    data = planner.source.encoded(planner.text)
    compiles = _compiles(data, planner.source.shown, python)
    if not compiles.ok:
        raise UsageError(f"{planner.source.shown} with the lines in it is no program for {python}: {compiles.text}; nothing was written")
    if answer.config["action"] != "keep":
        configuring.write(path, answer.config["content"])
        answer.written.append(str(path))
    try:
        source.replace(planner.source, data)
    except BaseException:
        if answer.config["action"] != "keep":
            _restore(path, before)
        raise
    answer.written.append(str(planner.source.path))
    answer.checks.append(compiles)
    answer.checks.append(_valid(path))
    answer.status = "written"
    answer.message = f"written: {', '.join(answer.written)}"


def _compiles(data: bytes, shown: str, python: str) -> Check:
    """By the interpreter that will run it; it leaves no .pyc. An interpreter that cannot be started decides nothing: ours has parsed it."""
    code = "import sys; compile(sys.stdin.buffer.read(), sys.argv[1], 'exec', dont_inherit=True)"
    try:
        done = subprocess.run([python, "-W", "ignore", "-c", code, shown], input=data, capture_output=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        compile(data, shown, "exec", dont_inherit=True)
        return Check("compiles", True, f"{shown} compiles")
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return Check("compiles", False, last[0])
    return Check("compiles", True, f"{shown} compiles")


def _valid(path: Path) -> Check:
    configuring.read(str(path))
    return Check("config", True, f"{path} is valid")


def _restore(path: Path, before: bytes | None) -> None:
    try:
        if before is None:
            os.unlink(path)
        else:
            source.write_whole(path.resolve(), before, like=path.resolve())
    except OSError:
        pass
