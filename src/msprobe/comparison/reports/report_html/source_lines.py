"""The lines of code around a frame, from the file as it is now; only read, never run."""

from __future__ import annotations

import os
import stat
import tokenize
from functools import lru_cache

AROUND = 4
MAX_BYTES = 4 << 20
MAX_LINE = 400


def context(path: str, line: int, source: str) -> tuple[int, list[str]] | None:
    """Number of the first line, and the lines around `line`.

    None where the file is not here or no Python file, or where its line is not the one that was recorded: it has changed since, or
    the dump names a file that its maker wants to have copied into a report.
    """
    if not path.endswith(".py") or not source or has_changed(path, line, source):
        return None
    lines = _lines(path)
    if not lines:
        return None
    start = max(1, line - AROUND)
    return start, [text.rstrip()[:MAX_LINE] for text in lines[start - 1 : line + AROUND]]


def has_changed(path: str, line: int, source: str) -> bool:
    """Whether the Python file is here, and its line is not the one that was recorded."""
    if not path.endswith(".py") or not source:
        return False
    lines = _lines(path)
    return bool(lines) and not (0 < line <= len(lines) and lines[line - 1].strip() == source.strip())


@lru_cache(maxsize=256)
def _lines(path: str) -> tuple[str, ...]:
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_BYTES:
            return ()
        with tokenize.open(path) as stream:
            return tuple(stream.read().splitlines())
    except (OSError, SyntaxError, ValueError):  # ValueError: a NUL in the path, or a text that is not in the encoding it names
        return ()
