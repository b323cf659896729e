"""isolate.json: which runs were made and what they said, so that an interrupted search goes on where it stopped."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from msprobe.errors import UsageError

FILE = "isolate.json"
Kind = Literal["everything", "plain", "first"]
Outcome = Literal["recorded", "right", "wrong", "crashed"]


@dataclass(frozen=True)
class Run:
    """One run of the script that came to its end.

    Attributes:
        number: from 1 on; its files lie in `run{number}`.
        kind: every input replaced, none, or those of the first `given` calls.
        given: number of module calls whose inputs were replaced.
        outcome: whether the end was right, for the halving; `crashed`: the script failed before the step was recorded.
        how: how the script ended.
        last_words: the last line of its standard error.
        text: the verdict, as it was printed.
    """

    number: int
    kind: Kind
    given: int
    outcome: Outcome
    how: str
    last_words: str
    text: str


class Record:
    """What is known in the directory of a search.

    Args:
        directory: where everything of the search lies; made if need be.
        subject: what the search is about; a record of another subject is of no use.
        resume: go on with what is there.

    Raises:
        UsageError: the directory holds something that is not ours.
        OSError: it cannot be used.
    """

    def __init__(self, directory: Path, subject: dict[str, Any], resume: bool) -> None:
        self.directory = directory
        self.subject = subject
        self.runs: list[Run] = []
        self.note = ""
        """What became of an earlier record, one sentence; "" where there is nothing to say."""
        directory.mkdir(parents=True, exist_ok=True)
        before = self._read()
        if before is None:
            if resume:
                self.note = f"{directory / FILE} does not exist: there is nothing to resume, the search begins"
        elif not resume:
            self._remove(before[1])
        elif changed := _changed(before[0], subject):
            self.note = f"{changed} has changed since the search in {directory}: it begins anew"
            self._remove(before[1])
        else:
            self.runs = before[1]
            self.note = f"resumed in {directory}: {len(self.runs)} runs are there already"
        leftover = directory / f"run{len(self.runs) + 1}"
        if before is None and leftover.exists():
            raise UsageError(f"{leftover} exists, and is of no search that is known here (no {FILE}): give another directory with -o")

    def place(self, number: int) -> Path:
        """The directory of a run, as an absolute path."""
        return (self.directory / f"run{number}").absolute()

    def begin(self) -> tuple[int, Path]:
        """Number and empty directory of the next run. What an interrupted one has left there goes."""
        number = len(self.runs) + 1
        place = self.place(number)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        self._write({})
        return number, place

    def add(self, run: Run) -> None:
        """The run has come to its end."""
        self.runs.append(run)
        self._write({})

    def finish(self, result: dict[str, Any]) -> None:
        """The search is over."""
        self._write(result)

    def _write(self, result: dict[str, Any]) -> None:
        content = {"subject": self.subject, "runs": [asdict(run) for run in self.runs], "result": result}
        path = self.directory / FILE
        fresh = path.with_name(f"{FILE}.new")
        fresh.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", errors="backslashreplace")
        os.replace(fresh, path)

    def _read(self) -> tuple[dict[str, Any], list[Run]] | None:
        path = self.directory / FILE
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return dict(content["subject"]), [Run(**run) for run in content["runs"]]
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError):
            raise UsageError(f"{path} is no record of msprobe isolate: give another directory with -o, or remove it") from None

    def _remove(self, runs: Sequence[Run]) -> None:
        """Files of a search that nobody goes on with, the run that was cut off included."""
        for number in range(1, len(runs) + 2):
            shutil.rmtree(self.place(number), ignore_errors=True)


_WORDS = {
    "golden": "the golden dump",
    "command": "the command",
    "directory": "the working directory",
    "files": "a file that the command names",
}


def _changed(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Which part of the subject is another one, in words."""
    now = json.loads(json.dumps(now))
    return next((_WORDS.get(name, name) for name in now if before.get(name) != now[name]), "")


def subject(golden: dict[str, Any], command: Sequence[str]) -> dict[str, Any]:
    """What a search is about: the golden dump, the command, where it runs, and the files that it names."""
    files: dict[str, list[int]] = {}
    for argument in command:
        try:
            found = os.stat(argument)
        except (OSError, ValueError):
            continue
        if not os.path.isdir(argument):
            files[argument] = [found.st_size, found.st_mtime_ns]
    return {"golden": golden, "command": list(command), "directory": os.getcwd(), "files": files}
