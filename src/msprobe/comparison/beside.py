"""The files beside a dump.json: construct.json and stack.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from msprobe.errors import DumpFormatError
from msprobe.format import layout, reader

_T = TypeVar("_T")


def parents_of(dump: Path, notes: list[str]) -> Mapping[str, str | None]:
    """construct.json; {} where there is none. A file that cannot be read is told in `notes`."""
    return _optional(reader.read_construct, dump, layout.CONSTRUCT, notes, "modules around calls cannot be named") or {}


def stacks_of(dump: Path, notes: list[str]) -> Mapping[str, Sequence[str]] | None:
    """stack.json; None where there is none, which is told in `notes` as well."""
    return _optional(reader.read_stack, dump, layout.STACK, notes, "no lines of code can be shown")


def _optional(
    read: Callable[[Path], Mapping[str, _T]], dump: Path, name: str, notes: list[str], consequence: str
) -> Mapping[str, _T] | None:
    path = dump.parent / name
    if not path.is_file():
        if dump.name == layout.DEBUG or name == layout.CONSTRUCT:  # values saved by hand never have one; calls alone have no modules
            return None
        notes.append(f"{path} does not exist: {consequence}")
        return None
    try:
        return read(path)
    except DumpFormatError as error:
        notes.append(f"{error}: {consequence}")
        return None
