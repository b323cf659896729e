"""Temporary directories that are gone afterwards, also when Ctrl-C comes while they are being removed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


def make_directory() -> str:
    """A new directory, the caller's to remove. Raises OSError."""
    return tempfile.mkdtemp(prefix="msprobe-")


def remove_directory(directory: str) -> None:
    """Remove the directory and what is in it; what cannot be removed stays. An interruption is let through when that is done."""
    try:
        shutil.rmtree(directory, ignore_errors=True)
    except BaseException:  # tempfile.TemporaryDirectory has forgotten the directory by then
        shutil.rmtree(directory, ignore_errors=True)
        raise


@contextmanager
def temporary_directory() -> Iterator[str]:
    """A new directory, gone at the end. Raises OSError where none can be made."""
    directory = make_directory()
    try:
        yield directory
    finally:
        remove_directory(directory)
