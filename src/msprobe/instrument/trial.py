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

from msprobe.config.paths import why_not_writable
from msprobe.errors import DumpFormatError
from msprobe.format import layout, reader, trial
from msprobe.instrument.answer import Check

_PATIENCE = 10.0
"""Seconds that the script has to end, after SIGTERM or after its last line."""
_OTHERS = 0.5
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
    where = parent if os.path.isdir(parent) and why_not_writable(parent) is None else None
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
        ended, step = _follow(lines, last, time.monotonic() + seconds, say)
        if ended == "end":
            _wait(process)  # its output has ended, so it is about to
    finally:
        stopped = process.poll() is None
        _end(process)
    if step is not None:
        by_itself = f"the script had ended by itself then, with exit code {process.returncode}"
        return _looked_at(step, "then the script was ended by the trial" if stopped else by_itself)
    if ended == "time":
        return Check("trial", False, f"no step was recorded within {seconds:.0f} seconds (--trial-timeout gives it more)")
    return Check("trial", False, f"no step was recorded; the script ended with exit code {process.returncode}: {_last_words(last)}")


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.put(line.rstrip("\n"))
    except ValueError:
        pass  # closed
    lines.put(None)


def _follow(lines: queue.Queue[str | None], last: deque[str], until: float, say: Callable[[str], None]) -> tuple[str, str | None]:
    """Until a step is recorded, the command ends (`end`) or the time is over (`time`); and where the first step is."""
    step: str | None = None
    while True:
        left = until - time.monotonic()
        try:
            line = lines.get(timeout=max(left, 0))
        except queue.Empty:
            return "time", step
        if line is None:
            return "end", step
        say(line)
        ends = line.endswith(trial.ENDED)
        if not ends:
            last.append(line)
        if step is None and (step := trial.recorded(line)) is not None:
            until = min(until, time.monotonic() + _OTHERS)
        elif step is not None and ends:
            until = max(until, time.monotonic() + _PATIENCE)  # it has done all that it does, and is about to end by itself


def _end(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            _signal(process, number)
            _wait(process)
    _signal(process, signal.SIGKILL)  # what the script has started and left behind, in the group that is its own
    process.wait()


def _wait(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        pass


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _looked_at(step: str, how: str) -> Check:
    """Whether there is something in the first step."""
    try:
        places = _places(Path(step))
        calls = sum(_calls(place) for place in places)
    except (DumpFormatError, OSError) as error:
        return Check("trial", False, f"the recording cannot be read: {error}")
    if not calls:
        return Check("trial", False, f"a step without calls was recorded; {how}")
    processes = f"{len(places)} process{'es' if len(places) > 1 else ''}"
    return Check("trial", True, f"dump.json is at {step} (removed again): {calls} calls of {processes}; {how}")


def _last_words(last: Sequence[str]) -> str:
    """What msprobe warned of last, else the last line at all."""
    words = next((line for line in reversed(last) if "[WARNING]" in line or "[ERROR]" in line), "")
    return words.partition("] ")[2] or next((line.strip() for line in reversed(last) if line.strip()), "it printed nothing")


def _places(step: Path) -> list[Path]:
    """The directories of the processes that recorded a step."""
    return sorted(path for path in step.iterdir() if path.is_dir()) if step.is_dir() else []


def _calls(place: Path) -> int:
    """How many entries a process has recorded: with task structure they are in construct.json alone."""
    names = [name for name in (layout.DUMP, layout.DEBUG) if (place / name).exists()]
    found = sum(len(reader.read_dump(place / name).data) for name in names)
    return found or (len(reader.read_construct(place)) if (place / layout.CONSTRUCT).exists() else 0)
