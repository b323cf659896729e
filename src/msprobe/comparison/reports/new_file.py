"""A new file beside those that are there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PART = ".part"
"""What the name of a file ends in while it is written: where a process was killed, it is left, and the rest of the name says of what."""


@contextmanager
def new_file(directory: Path, stem: str, suffix: str) -> Iterator[tuple[Path, BinaryIO]]:
    """Creates `{stem}.{suffix}` in `directory`, which is made if need be; `_1`, `_2` … is appended where that exists.

    Gives its path and the open stream. The file has its name when it is complete, and `{name}.part` until then. Raises OSError; whatever
    goes wrong inside, no file is left.
    """
    directory.mkdir(parents=True, exist_ok=True)
    counter = 0
    while True:
        path = directory / (f"{stem}_{counter}.{suffix}" if counter else f"{stem}.{suffix}")
        part = path.with_name(path.name + PART)
        counter += 1
        if path.exists():
            continue
        try:
            stream = open(part, "xb", buffering=1 << 20)  # noqa: SIM115 - closed below
            break
        except FileExistsError:  # another process is at it, or was killed
            continue
    try:
        with stream:
            yield path, stream
        part.replace(path)
    except BaseException as error:
        part.unlink(missing_ok=True)
        if isinstance(error, OSError) and (error.filename is None or str(error.filename) == str(part)):  # writing does not know the name
            error.filename = str(path)
        raise
