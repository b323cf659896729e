"""The trial: the enabled script runs until its first step is recorded, and what was recorded is looked at."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from msprobe.errors import DumpFormatError
from msprobe.format import layout, reader, trial
from msprobe.instrument.answer import Check

_PATIENCE = 10.0
"""Seconds that the script has to end after SIGTERM."""
_OTHERS = 2.0
"""Seconds that other processes of the script have to end the same step."""


def run(command: Sequence[str], dump_path: str, seconds: float, say: Callable[[str], None]) -> Check:
    """Runs a command until it says that a step is recorded, ends it, and looks at the recording, which is removed then.

    Args:
        command: program and arguments.
        dump_path: where the real recording will go; the trial's goes beside it, on the same disk.
        seconds: how long it may take.
        say: gets each line that the command prints.
    """
    parent = os.path.dirname(os.path.abspath(dump_path))
    where = parent if os.path.isdir(parent) and os.access(parent, os.W_OK) else None
    directory = tempfile.mkdtemp(prefix=f"{os.path.basename(os.path.abspath(dump_path))}.trial.", dir=where)
    try:
        return _run(command, directory, seconds, say)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(command: Sequence[str], directory: str, seconds: float, say: Callable[[str], None]) -> Check:
    environment = {**os.environ, trial.VARIABLE: directory, "MSPROBE_LOG_LEVEL": "1", "PYTHONUNBUFFERED": "1"}
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return Check("trial", False, f"{command[0]} cannot be run: {error.strerror}")
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read, args=(process, lines), daemon=True).start()
    last: deque[str] = deque(maxlen=30)
    try:
        ended = _follow(lines, last, time.monotonic() + seconds, say)
    finally:
        recorded = process.poll() is None
        _end(process)
    return _judged(directory, process.returncode, ended, recorded, last, seconds)


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.put(line.rstrip("\n"))
    except ValueError:
        pass  # closed
    lines.put(None)


def _follow(lines: queue.Queue[str | None], last: deque[str], until: float, say: Callable[[str], None]) -> str:
    """Until a step is recorded (`step`), the command ends (`end`) or the time is over (`time`)."""
    done = False
    while True:
        left = until - time.monotonic()
        try:
            line = lines.get(timeout=max(left, 0))
        except queue.Empty:
            return "step" if done else "time"
        if line is None:
            return "step" if done else "end"
        say(line)
        last.append(line)
        if not done and trial.recorded(line) is not None:
            done, until = True, min(until, time.monotonic() + _OTHERS)


def _end(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            _signal(process, number)
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                pass
    _signal(process, signal.SIGKILL)  # what the script has started and left behind, in the group that is its own
    process.wait()


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _judged(directory: str, code: int, ended: str, stopped: bool, last: Sequence[str], seconds: float) -> Check:
    steps = layout.steps(directory)
    places = [place for step in steps.values() for place in _places(step)]
    try:
        calls = sum(_calls(place) for place in places)
    except (DumpFormatError, OSError) as error:
        return Check("trial", False, f"the recording cannot be read: {error}")
    if ended == "step" and calls:
        where = next((found for line in last if (found := trial.recorded(line))), directory)
        how = "then the script was ended" if stopped else f"the script ended with exit code {code}"
        number = f"{len(places)} process{'es' if len(places) > 1 else ''}"
        return Check(
            "trial", True, f"dump.json is at {where} (removed again): {calls} calls of {number} in step {next(iter(steps))}; {how}"
        )
    if ended == "time":
        return Check("trial", False, f"no step was recorded within {seconds:.0f} seconds (--trial-timeout gives it more)")
    words = next((line for line in reversed(last) if "[WARNING]" in line or "[ERROR]" in line), "")
    final = next((line for line in reversed(last) if line.strip()), "it printed nothing")
    what = "a step without calls was recorded" if ended == "step" else "no step was recorded"
    about = words.partition("] ")[2] if words else final.strip()
    return Check("trial", False, f"{what}; the script ended with exit code {code}: {about}")


def _places(step: Path) -> list[Path]:
    """The directories of the processes that recorded a step."""
    return sorted(path for path in step.iterdir() if path.is_dir())


def _calls(place: Path) -> int:
    """How many entries a process has recorded: with task structure they are in construct.json alone."""
    names = [name for name in (layout.DUMP, layout.DEBUG) if (place / name).exists()]
    found = sum(len(reader.read_dump(place / name).data) for name in names)
    return found or (len(reader.read_construct(place)) if (place / layout.CONSTRUCT).exists() else 0)
