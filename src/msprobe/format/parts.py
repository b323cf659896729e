"""A dump.json read a few megabytes at a time, so that what it holds is never in memory as a whole.

JSON has no places at which a text may be cut. A file as the recorders write it, indented, has: a line break never stands inside a string,
so where one is followed by just the indentation of an entry and a quotation mark, the next entry begins. Whether the file is of that
layout need not be believed: each part is parsed as an object of its own, and cut anywhere else the first part would not be balanced. Then,
and for every damage, `NotInParts` is raised; reader.read_dump reads such a file, or says what is wrong with it.
"""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ujson

from msprobe.format.reader import Dump

_DATA = re.compile(rb'"data": \{(\r?\n[ \t]*)"')
_HEAD_WITHIN = 1 << 16
_AT_ONCE = 4 << 20


class NotInParts(Exception):
    """The file is not of the layout that can be read in parts, or is damaged."""


class Part(NamedTuple):
    """Some entries of the file, in its order: their text, `"name": {...}` each, or, of those at the end of the file, the entries."""

    texts: Sequence[bytes]
    entries: dict[str, Any]


def read_in_parts(path: Path) -> tuple[Dump, Iterator[Part]]:
    """What stands before the entries (`data` is empty), and the entries, some of them at a time.

    The texts have not been parsed, so who takes them must (`parse`), at the latest when a text is not known to be an entry's.
    A name that comes twice is not noticed here.

    Raises NotInParts, also while the entries are asked for; what was given so far may then be less than the truth and must be dropped.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise NotInParts
        file = io.FileIO(path)
    except OSError:
        raise NotInParts from None
    try:
        block = file.read(_HEAD_WITHIN)
        opening = _DATA.search(block)
        if opening is None:
            raise NotInParts
        head = _parsed(block[: opening.start()] + b'"data": {}}')
        task = head.get("task")
        level, framework, directory = (head.get(key) for key in ("level", "framework", "dump_data_dir"))
        if not isinstance(task, str) or not all(text is None or isinstance(text, str) for text in (level, framework, directory)):
            raise NotInParts
    except BaseException as error:
        file.close()
        if isinstance(error, OSError):
            raise NotInParts from None
        raise
    rest = block[opening.end() - len(opening[1]) - 1 :]
    return Dump(path, task, level, framework, directory, {}), _entries(file, rest, b"," + opening[1] + b'"')


def parse(texts: Sequence[bytes]) -> dict[str, Any]:
    """The entries of some texts. Raises NotInParts; so where the texts are not one entry each."""
    entries = _parsed(b"{" + b",".join(texts) + b"}")
    if len(entries) != len(texts):
        raise NotInParts
    for name, text in zip(entries, texts, strict=True):
        if not text.startswith(b'"' + name.encode("utf-8", "surrogatepass") + b'":'):
            raise NotInParts
    return entries


def _entries(file: io.FileIO, rest: bytes, separator: bytes) -> Iterator[Part]:
    rest = rest.lstrip()
    with file:
        while True:
            try:
                block = file.read(_AT_ONCE)
            except (OSError, MemoryError):
                raise NotInParts from None
            if not block:
                break
            rest += block
            end = rest.rfind(separator)
            if end > 0:
                yield Part([b'"' + text for text in rest[1:end].split(separator)], {})
                rest = rest[end + len(separator) - 1 :]
    if b'"data": {' in rest:
        raise NotInParts
    last = _parsed(b'{"data": {' + rest)
    if set(last) != {"data"} or not isinstance(last["data"], dict):
        raise NotInParts
    yield Part((), last["data"])


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        content = ujson.loads(text)
    except (ValueError, OverflowError, RecursionError, MemoryError):
        raise NotInParts from None
    if not isinstance(content, dict):
        raise NotInParts
    return content
