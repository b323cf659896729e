"""Runs the user's command: what it prints goes to the terminal and to a file, what it ends with is told."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from msprobe.errors import UsageError

_LONGEST = 240
_OF_A_RANK = re.compile(rb"^\[rank\d+\]: ?")
_OUR_LOG = re.compile(rb"\(\d+\) (\[rank \d+\] )?\[(DEBUG|INFO|WARNING|ERROR)\] ")
_OF_TORCHRUN = b"ChildFailedError"
_PATIENCE = 10.0
"""Seconds that a script has to end after a signal, and that somebody else may hold its output open after it has ended."""


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: negative for the signal that killed it.
        last_words: what it raised, or the last line of its standard error.
        unwritten: what our log in it said of files that could not be written; such a run says nothing.
    """

    code: int
    last_words: str
    unwritten: str = ""

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
        _rewind()
        try:
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            raise UsageError(f"the command {command[0]!r} cannot be run: {error.strerror}{_python_for(command)}") from None
        last = LastWords()
        assert process.stdout is not None and process.stderr is not None
        copiers = [
            threading.Thread(target=_copy, args=(process.stdout, sys.stdout, file, None), daemon=True),
            threading.Thread(target=_copy, args=(process.stderr, sys.stderr, file, last), daemon=True),
        ]
        with _passing_on_signals(process):  # before anybody reads that the script is there
            code = _wait(process, copiers)
        for copier in copiers:
            copier.join(_PATIENCE)  # a process that it left behind may hold the pipes open
    return Ended(code, last.text(code), last.unwritten)


def _python_for(command: Sequence[str]) -> str:
    script = command[0].endswith(".py") and os.path.isfile(command[0])
    return f"; a script needs its interpreter: python {command[0]}" if script else ""


def _rewind() -> None:
    """A file that is the standard input is read by every run from its beginning. A pipe and a terminal have none."""
    try:
        os.lseek(0, 0, os.SEEK_SET)
    except OSError:
        pass


class LastWords:
    """What a process wrote last to its standard error, but for lines of our log.

    A message may have several lines, and a launcher like torchrun adds to what the script wrote: where the process ends with code 1, as by
    an exception, the first line after its last traceback is what counts. Of several ranks the first that failed counts; what the others
    then say is that they lost it.
    """

    def __init__(self) -> None:
        self.unwritten = ""
        self._line = b""
        self._raised: dict[bytes, bytes] = {}
        """Prefix of the rank, or nothing -> what it raised."""
        self._in_traceback: set[bytes] = set()

    def add(self, line: bytes) -> None:
        """One line, in the order in which they come."""
        if _of_our_log(line):
            if b" cannot be written" in line and not self.unwritten:
                self.unwritten = line.rpartition(b"] ")[2].decode("utf-8", "replace").partition("; the run goes on")[0].strip()
            return
        if not line.strip():
            return
        found = _OF_A_RANK.match(line)
        rank = found.group() if found else b""
        self._line = line = line[len(rank) :]
        if line.startswith(b"Traceback (most recent call last)"):
            self._in_traceback.add(rank)
        elif rank in self._in_traceback and not line[:1].isspace():
            self._in_traceback.remove(rank)
            if not (self._raised and _OF_TORCHRUN in line):
                self._raised[rank] = line

    def text(self, code: int) -> str:
        """One line, no longer than is read."""
        raised = next((line for rank, line in self._raised.items() if rank), self._raised.get(b""))
        found = (raised if code == 1 and raised else self._line).decode("utf-8", "replace").strip()
        return found if len(found) <= _LONGEST else f"{found[:_LONGEST]}..."


def _wait(process: subprocess.Popen[bytes], copiers: Sequence[threading.Thread]) -> int:
    """Starts the copiers and waits for the end of the process, also where a signal comes meanwhile."""
    try:
        for copier in copiers:
            copier.start()
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


def _copy(source: IO[bytes], terminal: Any, file: IO[bytes], last: LastWords | None) -> None:
    """To the terminal at once, to the file in whole lines, which do not mix with those of the other stream.

    `last` is told every line.
    """
    rest = b""
    while chunk := os.read(source.fileno(), 1 << 16):
        _show(chunk, terminal)
        lines, end, rest = (rest + chunk).rpartition(b"\n")
        _keep(lines + end, file, last)
    _keep(rest, file, last)


def _keep(lines: bytes, file: IO[bytes], last: LastWords | None) -> None:
    try:
        file.write(lines)
    except (OSError, ValueError):  # the disk is full, or the file closed already: the script goes on
        pass
    if last is not None:
        for line in lines.split(b"\n"):
            last.add(line)


def _of_our_log(line: bytes) -> bool:
    return _OUR_LOG.search(line) is not None


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
