"""Reading the JSON of a dump directory: ours and the existing tool's."""

from __future__ import annotations

import gc
import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ujson

from msprobe.errors import DumpFormatError
from msprobe.format import layout

# What a value can begin with such that json complains about its beginning when the end is missing.
_WORDS = ("true", "false", "null", "NaN", "Infinity", "-Infinity", ".", "e", "e-", "e+", "E", "E-", "E+")

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Dump:
    """A dump.json or debug.json. `data` maps entry names to records, in the order of the file."""

    path: Path
    task: str
    level: str | None
    framework: str | None
    dump_data_dir: str | None
    data: dict[str, Any] = field(repr=False)

    @property
    def tensor_dir(self) -> Path:
        """Where its tensor files are: beside the file, wherever the directory was moved, else where `dump_data_dir` says."""
        beside = self.path.parent / layout.TENSORS
        if self.dump_data_dir and not beside.is_dir() and os.path.isdir(self.dump_data_dir):
            return Path(self.dump_data_dir)
        return beside


def read_dump(path: PathLike) -> Dump:
    """The dump in the file `path`, or in the dump.json of the directory `path`. Raises DumpFormatError."""
    file = _file(path, layout.DUMP)
    content = _read_object(file)
    data = content.get("data")
    if not isinstance(data, dict):
        reason = 'has no "data"' if data is None else f'has "data" of type {_json_type(data)} instead of object'
        raise DumpFormatError(f"{file} {reason}; is it a dump.json?")
    task = content.get("task")
    if not isinstance(task, str):
        raise DumpFormatError(f'{file} has no "task"; is it a dump.json?')
    return Dump(
        file,
        task,
        _optional_text(content, "level", file),
        _optional_text(content, "framework", file),
        _optional_text(content, "dump_data_dir", file),
        data,
    )


def read_stack(path: PathLike) -> dict[str, list[str]]:
    """Entry name -> frames, innermost first, from a stack.json or the directory that holds one. Raises DumpFormatError."""
    file = _file(path, layout.STACK)
    frames_of: dict[str, list[str]] = {}
    for number, group in _read_object(file).items():
        if not (isinstance(group, list) and len(group) == 2 and all(map(_is_text_list, group))):
            raise DumpFormatError(f'{file}: "{number}" is not [[names], [frames]]; is it a stack.json?')
        names, frames = group
        frames_of.update(dict.fromkeys(names, frames))
    return frames_of


def read_construct(path: PathLike) -> dict[str, str | None]:
    """Entry name -> name of its parent, or None, from a construct.json or the directory that holds one. Raises DumpFormatError."""
    file = _file(path, layout.CONSTRUCT)
    parents = _read_object(file)
    for name, parent in parents.items():
        if parent is not None and not isinstance(parent, str):
            raise DumpFormatError(f'{file}: the parent of "{name}" is of type {_json_type(parent)}; is it a construct.json?')
    return parents


def read_meta(path: PathLike) -> dict[str, Any]:
    """What is known beyond the contract, from a meta.json or the directory that may hold one; {} where there is none.

    Raises DumpFormatError for a file that is there and cannot be read.
    """
    file = _file(path, layout.META)
    return _read_object(file) if file.exists() else {}


def _file(path: PathLike, name: str) -> Path:
    file = Path(path)
    return file / name if file.is_dir() else file


def _read_object(file: Path) -> dict[str, Any]:
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise DumpFormatError(f"{file} cannot be read: it is not a file")  # reading a pipe might never end
        raw = file.read_bytes()
    except FileNotFoundError:
        raise DumpFormatError(f"{file} does not exist") from None
    except OSError as problem:
        raise DumpFormatError(f"{file} cannot be read: {problem.strerror}") from None
    except MemoryError:
        raise DumpFormatError(f"{file} is too large for the memory of this machine") from None
    content = _parse(raw, file)
    if not isinstance(content, dict):
        raise DumpFormatError(f"{file} holds a JSON {_json_type(content)} instead of an object")
    return content


def _parse(raw: bytes, file: Path) -> Any:
    if not raw.strip():
        raise DumpFormatError(f"{file} is empty")
    collecting = gc.isenabled()
    gc.disable()  # a million fresh objects, none of them garbage: looking through them takes twice as long as making them
    try:
        return ujson.loads(raw)
    except (ValueError, OverflowError, RecursionError, MemoryError):
        pass  # its messages have no line numbers, and it stops at a nesting that json still reads
    finally:
        if collecting:
            gc.enable()
    try:
        return json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as problem:
        what = "is cut off" if problem.reason == "unexpected end of data" else "is not UTF-8 text"
        raise DumpFormatError(f"{file} {what} (byte {problem.start})") from None
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno} column {problem.colno}"
        if _ends_early(problem):
            raise DumpFormatError(f"{file} is cut off: nothing follows what begins at {where}") from None
        raise DumpFormatError(f"{file} is not valid JSON: {problem.msg.removesuffix(' at')}, {where}") from None
    except (RecursionError, ValueError, MemoryError) as problem:
        raise DumpFormatError(f"{file} cannot be read as JSON: {problem or type(problem).__name__}") from None


def _ends_early(problem: json.JSONDecodeError) -> bool:
    """Whether what json could not read is the beginning of something that the end of the file cut short."""
    rest = problem.doc[problem.pos :].strip()
    return problem.msg.startswith("Unterminated string") or any(word.startswith(rest) for word in _WORDS)


def _optional_text(content: dict[str, Any], key: str, file: Path) -> str | None:
    value = content.get(key)
    if value is not None and not isinstance(value, str):
        raise DumpFormatError(f'{file} has "{key}" of type {_json_type(value)} instead of string')
    return value


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _json_type(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}
    return names.get(type(value), type(value).__name__)
