"""Files of lines, an object of JSON each: several processes add to one, and a killed one leaves whole lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def append_line(path: str, value: Mapping[str, Any]) -> None:
    """Adds a line to a file of lines, in one write: several processes may do so, and a killed one leaves whole lines. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, json.dumps(value).encode() + b"\n")
    finally:
        os.close(descriptor)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of lines; nothing for a file that is not there. A last line that was cut off is left out."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
