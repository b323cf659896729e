"""Runs the user's command: what it prints goes to the terminal and to a file, what it ends with is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from msprobe.errors import UsageError

_PATIENCE = 10.0
"""Seconds that a script has to end after a signal, and that somebody else may hold its output open after it has ended."""


@dataclass(frozen=True)
class Ended:
    """How a command ended. `code` is negative for the signal that killed it; `last_words`: the last line of its standard error."""

    code: int
    last_words: str

    @property
    def how(self) -> str:
        """In words: `exit code 3`, `signal SIGSEGV`."""
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return f"signal {signal.Signals(-self.code).name}"
        except ValueError:
            return f"signal {-self.code}"


def run(command: Sequence[str], variables: dict[str, str], log: Path) -> Ended:
    """Runs a command to its end.

    Args:
        command: program and arguments.
        variables: environment variables beside those of this process.
        log: a file that gets all that the command prints.

    Raises:
        UsageError: the program cannot be started.
        OSError: the log cannot be written.
    """
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **variables}
    with open(log, "wb", buffering=0) as file:
        try:
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            raise UsageError(f"the command {command[0]!r} cannot be run: {error.strerror}") from None
        last: deque[bytes] = deque([b""], maxlen=1)
        assert process.stdout is not None and process.stderr is not None
        copiers = [
            threading.Thread(target=_copy, args=(process.stdout, sys.stdout, file, None), daemon=True),
            threading.Thread(target=_copy, args=(process.stderr, sys.stderr, file, last), daemon=True),
        ]
        for copier in copiers:
            copier.start()
        with _passing_on_signals(process):
            code = _wait(process)
        for copier in copiers:
            copier.join(_PATIENCE)  # a process that it left behind may hold the pipes open
    return Ended(code, last[0].decode("utf-8", "replace").strip())


def _wait(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait()
    except BaseException:  # an interruption: the terminal has sent it to the script, too
        for end in (process.terminate, process.kill):
            try:
                process.wait(_PATIENCE)
                break
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                end()
        raise


@contextmanager
def _passing_on_signals(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whoever ends this process by SIGTERM means the script as well."""

    def end(number: int, _: Any) -> None:
        process.send_signal(number)
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _copy(source: IO[bytes], terminal: Any, file: IO[bytes], last: deque[bytes] | None) -> None:
    """To the terminal at once, to the file in whole lines, which do not mix with those of the other stream.

    `last` keeps the last line with text, of those not written by msprobe's logger.
    """
    rest = b""
    while chunk := os.read(source.fileno(), 1 << 16):
        _show(chunk, terminal)
        lines, end, rest = (rest + chunk).rpartition(b"\n")
        _keep(lines + end, file, last)
    _keep(rest, file, last)


def _keep(lines: bytes, file: IO[bytes], last: deque[bytes] | None) -> None:
    try:
        file.write(lines)
    except (OSError, ValueError):  # the disk is full, or the file closed already: the script goes on
        pass
    if last is not None:
        last.extend(line for line in lines.split(b"\n") if line.strip() and not _of_our_log(line))


def _of_our_log(line: bytes) -> bool:
    return any(mark in line for mark in (b" [INFO] ", b" [WARNING] ", b" [DEBUG] "))


def _show(chunk: bytes, terminal: Any) -> None:
    try:
        binary = getattr(terminal, "buffer", None)
        if binary is not None:
            binary.write(chunk)
        else:
            terminal.write(chunk.decode("utf-8", "replace"))
        terminal.flush()
    except (OSError, ValueError):  # nobody reads any more
        pass
