"""Whether directories named in the file can be read or made, asked before training starts rather than after an hour."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from msprobe.config.messages import printable

_NO_PERMISSION = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT}
"""ENOENT: file systems of the kernel (/proc) say so of every name that is not theirs."""
_FULL = {errno.ENOSPC, errno.EDQUOT}


def why_not_writable(path: str) -> str | None:
    """Why files cannot be made in the directory `path`, which need not exist yet; None when they can."""
    try:
        current = os.path.abspath(path)
        while True:
            while (kind := _kind(current)) is None:
                current = os.path.dirname(current)
            shown = printable(current)
            if kind == "link":
                return f"{shown} is a link to something that does not exist, remove it or choose another directory"
            if kind == "file":
                return f"{shown} is a file, choose another directory"
            error = _attempt(current)
            if error is None:
                return None
            if os.path.isdir(current):
                return _refused(shown, error)
            # It has gone meanwhile, as where another process cleans up: what it lay in is asked.
    except (OSError, ValueError) as error:
        return _impossible(error)


def why_not_directory(path: str) -> str | None:
    """Why `path` is not a directory that can be read; None when it is one."""
    try:
        kind = _kind(os.path.abspath(path))
    except (OSError, ValueError) as error:
        return _impossible(error)
    if kind is None or kind == "link":
        return f"no such directory (looked in {current_directory()})" if not os.path.isabs(path) else "no such directory"
    if kind == "file":
        return "is a file, a directory is needed"
    if not os.access(path, os.R_OK | os.X_OK):
        return "there is no permission to read this directory"
    return None


def current_directory() -> str:
    """The current directory for a message; it can have been deleted."""
    try:
        return printable(os.getcwd())
    except OSError:
        return "a current directory that no longer exists"


def _attempt(directory: str) -> OSError | None:
    """Make a directory in this one, and remove it.

    os.access would answer root by the mode bits alone: they allow what /proc, or a network mount that takes root for nobody, refuses.
    """
    # Processes of several machines may try the same place at once: the name is no other one's.
    own = os.path.join(directory, f".msprobe-{os.urandom(8).hex()}")
    try:
        os.mkdir(own, 0o700)
    except OSError as error:
        return error
    with suppress(OSError):
        os.rmdir(own)
    return None


def _refused(shown: str, error: OSError) -> str:
    if error.errno in _NO_PERMISSION:
        return f"there is no permission to write in {shown}, choose another directory"
    make_room = "make room or " if error.errno in _FULL else ""
    return f"nothing can be written in {shown} ({error.strerror}), {make_room}choose another directory"


def _kind(path: str) -> str | None:
    """`directory`, `file` (anything else), `link` (a broken one), or None where there is nothing."""
    try:
        return "directory" if stat.S_ISDIR(os.stat(path).st_mode) else "file"
    except (FileNotFoundError, NotADirectoryError):
        return "link" if os.path.islink(path) else None
    except PermissionError:
        return None  # a parent is closed to us: found and reported on the way up


def _impossible(error: OSError | ValueError) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else "it contains characters that no path can have"
    return f"not a possible path ({reason})"
