"""Names of the directories and files of a dump, and how to find them again.

`{root}/step{N}/{rank{R}|proc{pid}}/` holds dump.json, stack.json, construct.json, meta.json and dump_tensor_data/*.pt. Where another
running process uses the directory of a process's rank, it is `rank{R}.proc{pid}`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from msprobe.errors import DumpFormatError

DUMP = "dump.json"
STACK = "stack.json"
CONSTRUCT = "construct.json"
DEBUG = "debug.json"
META = "meta.json"
SAVED_AT = "saved_at"
TENSORS = "dump_tensor_data"
ERRORS = "dump_error_info.log"

# What Linux file systems take for one name, in bytes.
MAX_FILE_NAME = 255
_HASH_DIGITS = 16
_STEP = re.compile(r"step(0|[1-9][0-9]*)\Z")
_RANK = re.compile(r"rank(0|[1-9][0-9]*)\Z")
_PROC = re.compile(r"proc(0|[1-9][0-9]*)\Z")
_BESIDE = re.compile(r"rank(0|[1-9][0-9]*)\.proc(0|[1-9][0-9]*)\Z")
_UNSAFE = re.compile("[/\0\ud800-\udfff]")


def step_dir(root: str | os.PathLike[str], step: int) -> str:
    """`{root}/step{step}`; a relative root stays relative."""
    return os.path.join(os.fspath(root), f"step{step}")


def rank_dir(step_directory: str | os.PathLike[str], rank: int | None, pid: int) -> str:
    """`rank{rank}` inside a step's directory, or `proc{pid}` for a process that has no rank."""
    return os.path.join(os.fspath(step_directory), f"proc{pid}" if rank is None else f"rank{rank}")


def safe_file_name(name: str) -> str:
    """`name` itself where a file may be called so; else an escaped, shortened name that ends in a hash of the whole name.

    The extension (`.pt`, `.npy`) is kept. Two different names never give the same file name, short of a collision of 64-bit hashes.
    """
    if name.isascii() and len(name) <= MAX_FILE_NAME and "/" not in name and "\0" not in name and name not in {"", ".", ".."}:
        return name
    escaped = _UNSAFE.sub(lambda found: f"%{ord(found.group()):02X}", name)
    if escaped == name and name not in {"", ".", ".."} and len(name.encode()) <= MAX_FILE_NAME:
        return name
    stem, dot, extension = escaped.rpartition(".")
    if not dot or not 1 <= len(extension) <= 4 or not extension.isalnum() or not extension.isascii():
        stem, extension = escaped, ""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
    suffix = f".{digest}.{extension}" if extension else f".{digest}"
    room = MAX_FILE_NAME - len(suffix)
    return stem.encode()[:room].decode("utf-8", "ignore") + suffix


def tensor_file_name(entry: str, role: str, path: Iterable[str | int] = (), suffix: str = ".pt") -> str:
    """The file that holds one value of an entry: `X.forward.0`, `input`, (0, "b") -> `X.forward.0.input.0.b.pt`.

    `role` is `input`, `output`, `kwargs`, `parameters`, or "" where the path follows the entry directly (`X.parameters_grad.0.weight.pt`).
    """
    name = ".".join([entry, role, *map(str, path)] if role else [entry, *map(str, path)]) + suffix
    return safe_file_name(name)


def tensor_path(tensor_directory: str | os.PathLike[str], data_name: str) -> Path:
    """The file of a record's `data_name`. Raises DumpFormatError for a name that would lead out of the directory."""
    if not data_name or "/" in data_name or "\0" in data_name or data_name in {".", ".."}:
        raise DumpFormatError(f"{os.fspath(tensor_directory)}: the data_name {data_name!r} is no file name")
    return Path(tensor_directory) / data_name


def steps(root: str | os.PathLike[str]) -> dict[int, Path]:
    """The step directories of a dump root, by step number, ascending. A root that cannot be listed raises OSError."""
    return _numbered(root, _STEP)


def ranks(step_directory: str | os.PathLike[str]) -> dict[int, Path]:
    """The `rank{R}` directories of a step, by rank, ascending."""
    return _numbered(step_directory, _RANK)


def procs(step_directory: str | os.PathLike[str]) -> dict[int, Path]:
    """The `proc{pid}` directories of a step, by process id, ascending."""
    return _numbered(step_directory, _PROC)


def beside_ranks(step_directory: str | os.PathLike[str]) -> dict[tuple[int, int], Path]:
    """The `rank{R}.proc{pid}` directories of a step, by rank and process id, ascending."""
    found: dict[tuple[int, int], Path] = {}
    with os.scandir(step_directory) as listing:
        for item in listing:
            match = _BESIDE.match(item.name)
            if match and item.is_dir():
                found[int(match.group(1)), int(match.group(2))] = Path(item.path)
    return dict(sorted(found.items()))


def misnamed(directory: str | os.PathLike[str], *words: str) -> list[Path]:
    """Directories whose names begin with one of `words` (`step`, `rank`, `proc`) and are none of ours (`step01`, `rank0_old`), sorted."""
    ours = (_STEP, _RANK, _PROC, _BESIDE)
    with os.scandir(directory) as listing:
        names = [item for item in listing if item.name.startswith(words) and not any(pattern.match(item.name) for pattern in ours)]
        return sorted(Path(item.path) for item in names if item.is_dir())


def holds_dump(directory: str | os.PathLike[str]) -> bool:
    """Whether a dump.json or debug.json lies in a directory, as far as can be seen."""
    return any(os.path.exists(os.path.join(directory, name)) for name in (DUMP, DEBUG))


def _numbered(directory: str | os.PathLike[str], pattern: re.Pattern[str]) -> dict[int, Path]:
    found: dict[int, Path] = {}
    with os.scandir(directory) as listing:
        for item in listing:
            match = pattern.match(item.name)
            if match and item.is_dir():
                found[int(match.group(1))] = Path(item.path)
    return dict(sorted(found.items()))
