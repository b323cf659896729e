"""A new file beside those that are there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def new_file(directory: Path, stem: str, suffix: str) -> Iterator[tuple[Path, BinaryIO]]:
    """Creates `{stem}.{suffix}` in `directory`, which is made if need be; `_1`, `_2` … is appended where that exists.

    Gives its path and the open stream. Raises OSError; whatever goes wrong inside, no file is left.
    """
    directory.mkdir(parents=True, exist_ok=True)
    counter = 0
    while True:
        path = directory / (f"{stem}_{counter}.{suffix}" if counter else f"{stem}.{suffix}")
        try:
            stream = open(path, "xb", buffering=1 << 20)  # noqa: SIM115 - closed below
            break
        except FileExistsError:
            counter += 1
    try:
        with stream:
            yield path, stream
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # writing does not know the name
            error.filename = str(path)
        raise
