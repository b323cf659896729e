"""A Python file as bytes and as text, and how it is replaced: whole or not at all."""

from __future__ import annotations

import ast
import codecs
import io
import os
import re
import stat
import sys
import tempfile
import tokenize
from dataclasses import dataclass
from pathlib import Path

from msprobe.errors import UsageError

_LARGEST = 8 << 20
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


@dataclass(frozen=True)
class Source:
    """A script.

    Attributes:
        path: the file itself, behind all symbolic links, absolute.
        shown: the path as the user gave it.
        data: its bytes.
        encoding: of the text; the byte-order mark is no part of the text.
        text: the decoded text with its own line ends.
    """

    path: Path
    shown: str
    data: bytes
    encoding: str
    text: str

    def encoded(self, text: str) -> bytes:
        """Another text in this file's encoding, with its byte-order mark."""
        mark = codecs.BOM_UTF8 if self.data.startswith(codecs.BOM_UTF8) else b""
        return mark + text.encode(self.encoding)


def split_lines(text: str) -> list[str]:
    """The lines with their ends. Only what ends a line for Python does: not a form feed, not U+2028."""
    return _LINE.findall(text)


def line_end(line: str) -> str:
    """How a line ends: `\\r\\n`, `\\n`, `\\r` or not at all."""
    return line[len(line.rstrip("\r\n")) :]


def read(path: str | os.PathLike[str]) -> Source:
    """Reads a script.

    Raises UsageError: it is not there, not readable, no Python, or in an encoding whose bytes could not be given back.
    """
    source = read_any(path)
    check_syntax(source.text, source.shown)
    return source


def read_any(path: str | os.PathLike[str]) -> Source:
    """Like `read`, but what is in the file need not be right Python: somebody may be working on it."""
    shown = os.fspath(path)
    if shown.endswith(".ipynb"):
        raise UsageError(
            f"{shown} is a notebook: make a script of it (jupyter nbconvert --to script {shown}), or write the lines by hand "
            "(debugger.start(model) before the forward pass, debugger.stop() and debugger.step() at the end of the iteration)"
        )
    try:
        real = Path(shown).resolve(strict=True)
        with open(real, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{shown} is not a file: give the script that holds the training or inference loop")
            data = file.read(_LARGEST + 1)
    except IsADirectoryError:
        raise UsageError(f"{shown} is a directory: give the script that holds the training or inference loop") from None
    except FileNotFoundError:
        raise UsageError(f"{shown}: no such file") from None
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle; ValueError: a zero byte in the path
        raise UsageError(f"{shown} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > _LARGEST:
        raise UsageError(f"{shown} has more than {_LARGEST >> 20} MB: that is no script")
    return _decoded(real, shown, data)


def _decoded(real: Path, shown: str, data: bytes) -> Source:
    try:
        lines = io.BytesIO(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))  # it knows no line that ends in \r alone
        encoding = tokenize.detect_encoding(lines.readline)[0]
        if encoding == "utf-8-sig":
            encoding = "utf-8"
        bare = data[len(codecs.BOM_UTF8) :] if data.startswith(codecs.BOM_UTF8) else data
        text = bare.decode(encoding)
    except (SyntaxError, UnicodeError, LookupError) as error:
        raise UsageError(f"{shown} is no Python source: {error}") from None
    source = Source(real, shown, data, encoding, text)
    if "\0" in text:
        raise UsageError(f"{shown} is no Python source: there are zero bytes in it")
    if source.encoded(text) != data:
        raise UsageError(f"{shown} is in the encoding {encoding}, which does not give the same bytes back: save it as UTF-8 first")
    return source


def check_syntax(text: str, shown: str) -> None:
    """Raises UsageError, with the line, where the text is no Python."""
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the user's own code, at their own run
            ast.parse(text)
    except SyntaxError as error:
        line = split_lines(text)[error.lineno - 1].strip() if error.lineno and error.lineno <= len(split_lines(text)) else ""
        hint = ""
        if line.startswith(("%", "!")):
            hint = "; lines that begin with % or ! are a notebook's: take them out first"
        elif re.match(r"(print|exec)\s+[\w'\"]", line):
            hint = "; this is Python 2"
        elif re.match(r"type\s+\w+.*=|(?:async\s+)?(?:def|class)\s+\w+\[", line) or "f-string" in error.msg:
            hint = f"; msprobe runs under Python {sys.version_info[0]}.{sys.version_info[1]} here: for a script of a newer one use it there"
        raise UsageError(f"{shown}, line {error.lineno}: {error.msg}: {line[:100]!r}{hint}; nothing was changed") from None
    except (RecursionError, MemoryError, ValueError) as error:
        raise UsageError(f"{shown} cannot be parsed: {error}; nothing was changed") from None


def check_writable(source: Source) -> None:
    """Raises UsageError where the file could not be replaced."""
    if not os.access(source.path, os.W_OK) or not stat.S_IMODE(os.stat(source.path).st_mode) & 0o222:  # root may write anything
        raise UsageError(f"{source.shown} is read-only: allow writing first (chmod u+w {source.shown})")
    if not os.access(source.path.parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"no file can be made in {source.path.parent}, so {source.shown} cannot be replaced safely: allow writing there first"
        )


def replace(source: Source, data: bytes) -> None:
    """Writes the file anew: at every moment it is the old one or the new one. Mode and, where allowed, owner stay; links lead to it still.

    Raises UsageError: somebody else has changed it meanwhile. OSError: it cannot be written; it is as it was then.
    """
    check_writable(source)
    if source.path.read_bytes() != source.data:
        raise UsageError(f"{source.shown} was changed meanwhile by somebody else; nothing was written, start again")
    write_whole(source.path, data, like=source.path)


def write_whole(path: Path, data: bytes, like: Path | None = None) -> None:
    """A file that is there whole or not at all; with the mode and owner of `like`, or those of a new file. Raises OSError."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if like is not None:
                there = os.stat(like)
                os.chmod(name, stat.S_IMODE(there.st_mode))
                try:
                    os.chown(name, there.st_uid, there.st_gid)
                    os.chmod(name, stat.S_IMODE(there.st_mode))  # a change of the owner may have taken bits away
                except OSError:
                    pass  # another's file in a directory of ours: it becomes ours, as with an editor
            else:
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(name, 0o666 & ~mask)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        try:
            os.unlink(name)
        except OSError:
            pass
        raise
