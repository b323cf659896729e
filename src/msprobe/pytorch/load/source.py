"""Where the values come from: the directory of one step and rank of an earlier dump, and the file of one tensor in it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import torch

from msprobe.config.result import LoadConfig
from msprobe.contain import let_through
from msprobe.errors import ConfigError, DumpFormatError
from msprobe.format import layout, reader, tensor_file
from msprobe.format.reader import Dump
from msprobe.format.tensor_file import TensorData
from msprobe.pytorch import torch_internals

_ROLES = {"input": "input_args", "kwargs": "input_kwargs"}
_IN_NAMES = (".input.", ".kwargs.")
_MOST_NAMED = 8


class NoSource(Exception):
    """The dump has no directory for a step and rank; the text says why and what to do.

    `unclear`: there are some, and only the user can say which. `about`: the kind of problem, the same for every step.
    """

    def __init__(self, text: str, unclear: bool = False, about: str = "") -> None:
        super().__init__(text)
        self.unclear, self.about = unclear, about


class Source:
    """The dump that is loaded.

    Args:
        load: the `load` section.
        directory: what a relative `load.path` is relative to; "" for the current one.

    Raises:
        ConfigError: the dump has no steps at all, or not the one that `source_step` names.
    """

    def __init__(self, load: LoadConfig, directory: str = "") -> None:
        self.root = os.path.abspath(os.path.join(directory, load.path))
        self._step, self._rank = load.source_step, load.source_rank
        try:
            steps = layout.steps(self.root)
        except OSError as error:
            raise ConfigError(f'"load"."path" is {load.path}: the directory cannot be read ({error.strerror})') from None
        if not steps:
            parent = os.path.basename(self.root)
            hint = f"; write {os.path.dirname(self.root)}" if parent.startswith("step") and parent[4:].isdecimal() else ""
            raise ConfigError(f'"load"."path" is {load.path}: it must be the directory that holds step0, step1 and so on{hint}')
        if self._step is not None and self._step not in steps:
            raise ConfigError(f'"load"."source_step" is {self._step}: {self.root} has {_listed([f"step{n}" for n in steps])} only')

    def of(self, step: int, rank: int | None) -> StepSource:
        """What is loaded in a step on a rank.

        Raises:
            NoSource: there is no directory for it, or it cannot be told which one.
        """
        wanted = step if self._step is None else self._step
        directory = layout.step_dir(self.root, wanted)
        if not os.path.isdir(directory):
            raise NoSource(f'{self.root} has no step{wanted}; "source_step" loads one step of it in every step', about="no step")
        rank = rank if self._rank is None else self._rank
        try:
            ranks, procs = layout.ranks(directory), list(layout.procs(directory).values())
        except OSError as error:
            raise NoSource(f"{directory} cannot be read: {error.strerror}") from None
        names = _listed([path.name for path in (*ranks.values(), *procs)])
        if self._rank is not None or rank is not None:
            if rank in ranks:
                return StepSource(ranks[rank])
            if self._rank is not None or ranks or len(procs) != 1:
                hint = '; "source_rank" loads one rank of it on every rank' if self._rank is None else ""
                raise NoSource(f"{directory} has no rank{rank}, but {names}{hint}", self._rank is not None)
            return StepSource(procs[0])  # recorded by a single process: the one there is
        if len(procs) > 1:
            raise NoSource(f"{directory} has the directories of several processes, {names}: remove all but the one to load", True)
        if procs:
            return StepSource(procs[0])
        if len(ranks) == 1:
            return StepSource(next(iter(ranks.values())))
        if not ranks:
            raise NoSource(f"{directory} holds no rank* and no proc* directory")
        raise NoSource(f'{directory} holds {names}, and this process has no rank: say which one to load by "source_rank"', True)


class StepSource:
    """One step of one rank or process.

    Args:
        directory: `{root}/step{S}/{rank{R}|proc{pid}}`.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._tensors = directory / layout.TENSORS
        self._records: dict[str, Any] | None = None
        self._dump: Dump | None = None
        self._calls: frozenset[str] | None = None

    def why_missing(self, entry: str) -> tuple[str, bool]:
        """What dump.json says of why a call has no files, "" if nothing; and whether that holds for all calls."""
        dump = self._dump
        if dump is None:
            return "", False
        if dump.task != "tensor":
            return f'the dump was recorded with task "{dump.task}", and only task "tensor" writes tensor files', True
        if dump.level == "L1":
            return "the dump was recorded at level L1, which has no modules; L0 and mix do", True
        return ("" if entry in dump.data else "the dump has no such call"), False

    def has(self, entry: str) -> bool:
        """Whether a call was recorded, by dump.json, or by the names of the files where there is none that can be read."""
        if self._calls is None:
            try:
                self._record(entry, "input", ())
            except DumpFormatError:
                self._records = None  # told when the first tensor is looked for
            known = set(self._records or ())
            if not known:
                with contextlib.suppress(OSError):
                    known = {name.partition(mark)[0] for name in os.listdir(self._tensors) for mark in _IN_NAMES if mark in name}
            self._calls = frozenset(known)
        return entry in self._calls

    def find(self, entry: str, role: str, path: tuple[str, ...]) -> tuple[Path, TensorData | None]:
        """The file of one tensor, and its values where it needs no file: an empty tensor has none.

        Args:
            entry: `Module.{path}.{Class}.forward.{n}`.
            role: `input` or `kwargs`.
            path: the place in the arguments, as in the file's name.
        """
        record = self._record(entry, role, path)
        named = self._tensors / layout.tensor_file_name(entry, role, path)
        if not isinstance(record, dict):
            return named, None
        name = record.get("data_name")
        if isinstance(name, str):
            try:
                return layout.tensor_path(self._tensors, name), None
            except DumpFormatError:
                return named, None
        return named, _empty(record)

    def _record(self, entry: str, role: str, path: tuple[str, ...]) -> Any:
        """What dump.json says of a value; None where it says nothing."""
        if self._records is None:
            self._records = {}
            if (self.directory / layout.DUMP).exists():
                dump = reader.read_dump(self.directory)
                self._records, self._dump = dump.data, dump
                self._tensors = dump.tensor_dir
        found = self._records.get(entry)
        for part in (_ROLES[role], *path):
            if isinstance(found, dict):
                found = found.get(part)
            elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
                found = found[int(part)]
            else:
                return None
        return found


def read_tensor(path: Path) -> TensorData | torch.Tensor:
    """The tensor in a file. What the reader without torch does not know, such as sparse tensors, torch reads, by `weights_only`.

    Raises:
        DumpFormatError: the file holds no tensor, or nothing that can be read without running something.
    """
    try:
        return tensor_file.read(path)
    except DumpFormatError as refused:
        if not path.is_file():
            raise
        try:
            with torch_internals.no_dispatch_modes():
                found = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:  # torch has no list of what it raises for such files
            let_through(error)
            raise refused from None
        if not isinstance(found, torch.Tensor):
            raise refused
        return found


def _empty(record: dict[str, Any]) -> TensorData | None:
    shape, dtype = record.get("shape"), record.get("dtype")
    if not isinstance(shape, list) or 0 not in shape or not all(type(n) is int and 0 <= n < 1 << 40 for n in shape):
        return None
    name = dtype.removeprefix("torch.") if isinstance(dtype, str) else ""
    return TensorData(name, tuple(shape), memoryview(b"")) if isinstance(getattr(torch, name, None), torch.dtype) else None


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    rest = len(names) - _MOST_NAMED
    return f"{shown} and {rest} more" if rest > 0 else shown or "nothing"
