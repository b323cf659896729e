"""What a pool of threads has to write: names, their contents and directories."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from msprobe.format.tensor_files import Writing

Saver = Callable[[str], None]
Key = tuple[bytes, str, tuple[int, ...]]


class Known:
    """A content seen in a directory. While `name` is None its file is being written, and `waiting` names get their link afterwards."""

    __slots__ = ("batch", "first", "name", "waiting")

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self.waiting: list[str] = []
        self.first = ""
        self.batch: list[Job] | None = None
        """In which it is being written, as `first`."""


class Directory:
    """What was submitted for one directory."""

    __slots__ = ("contents", "names", "path", "submitted")

    def __init__(self, path: str) -> None:
        self.path = path
        self.contents: dict[Key, Known] = {}
        self.names: set[str] = set()
        self.submitted: set[Key] = set()
        """Contents that were queued; another name for one of them needs no data."""


class Job:
    """A name that a thread has to bring into the world: by `saver`, as a file (`writing`) or as a link to the file with content `key`."""

    __slots__ = ("directory", "is_first", "key", "known", "name", "nbytes", "owner", "saver", "writing")

    def __init__(self, name: str, nbytes: int, directory: Directory, key: Key | None, saver: Saver | None = None) -> None:
        self.name = name
        self.nbytes = nbytes
        self.directory = directory
        self.key = key
        self.saver = saver
        self.writing: Writing | None = None
        self.owner: Any = None
        """What its data lies in."""
        self.known: Known | None = None
        self.is_first = False
        """Its file is the one that the other names of this content are linked to."""

    @property
    def path(self) -> str:
        return os.path.join(self.directory.path, self.name)


def same_content_failed() -> OSError:
    """Why there is no link: there is nothing to link to."""
    return OSError(errno.EIO, "the file with the same content could not be written")
