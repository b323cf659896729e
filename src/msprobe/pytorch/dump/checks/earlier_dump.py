"""The dump at `bench_path`: found, checked and read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe.config import Config
from msprobe.errors import ConfigError, DumpFormatError
from msprobe.format import layout, reader
from msprobe.format.unread import Unread
from msprobe.log import logger

_COMPARABLE = ("statistics", "tensor")


@dataclass(frozen=True)
class EarlierStep:
    """One step of one process of the earlier run.

    Attributes:
        directory: where it lies.
        data: entry name -> value.
        ours: this tool made it: what it says of means, norms and gradients is computed as here.
        unread: which nulls in it stand for values.
    """

    directory: Path
    data: dict[str, Any]
    ours: bool
    unread: Unread


class EarlierDump:
    """The dump that a run is compared with while it runs, and how many differences have been found; one for a process.

    Args:
        config: its fields `bench_path` and `diff_nums` are set.

    Raises:
        ConfigError: there is no dump at `bench_path`.
    """

    def __init__(self, config: Config) -> None:
        assert config.section.bench_path is not None
        self.shown = config.section.bench_path
        self.limit = config.section.diff_nums
        self.found = 0
        """Differences so far, in all steps."""
        self._root = Path(os.path.abspath(self.shown))
        self._told: set[str] = set()
        self._read: dict[Path, EarlierStep] = {}
        if self._root == Path(os.path.abspath(config.dump_path)):
            raise ConfigError(f"{self._where(config)}: this is dump_path too, where the new dump goes; give them different directories")
        reason = self._why_no_dump()
        if reason:
            raise ConfigError(f"{self._where(config)}: {reason}")

    def is_of(self, config: Config) -> bool:
        """Whether this is what `config` asks for."""
        return (self.shown, self.limit) == (config.section.bench_path, config.section.diff_nums)

    @property
    def ended(self) -> bool:
        """Whether `diff_nums` differences have been found: there is nothing left to look for."""
        return 0 < self.limit <= self.found

    def step(self, number: int, rank: int | None, summary_mode: str) -> EarlierStep | None:
        """The same step of the same rank; None, and a warning, where the earlier run has none that can be read.

        Args:
            number, rank: of the step and of this process.
            summary_mode: of this run; a warning, once, where what the earlier run recorded of values has nothing in common with it.
        """
        try:
            directory = self._directory(number, rank)
            step = self._read.pop(directory, None) or _read(directory)
        except (DumpFormatError, OSError) as problem:
            self._warn(str(problem), f"step {number} is not compared with bench_path: {problem}")
            return None
        theirs = _summary_mode(step.data)
        if theirs is not None and theirs != summary_mode and "xor" in (theirs, summary_mode):
            text = f"bench_path holds {theirs}, this run {summary_mode}: nothing can be compared but dtypes and shapes"
            self._warn(text, f"{text}; record both with the same summary_mode")
        return step

    def _warn(self, what: str, text: str) -> None:
        if what not in self._told:
            self._told.add(what)
            logger.warning(text)

    def _where(self, config: Config) -> str:
        return f'{config.source}: "{config.task}"."bench_path" is "{self.shown}"'

    def _why_no_dump(self) -> str:
        try:
            steps = layout.steps(self._root)
            if not steps:
                inside = os.path.exists(self._root / layout.DUMP) or layout.ranks(self._root) or layout.procs(self._root)
                return f"holds no step0, step1 ...; {'name the directory above the steps' if inside else 'it is no dump'}"
            found = [path for step in steps.values() for path in _processes(step) if (path / layout.DUMP).exists()]
            if not found:
                return f"no {layout.DUMP} in its steps; it is no complete dump"
            self._read[found[0]] = _read(found[0])
        except (DumpFormatError, OSError) as problem:
            return str(problem)
        return ""

    def _directory(self, number: int, rank: int | None) -> Path:
        step = layout.steps(self._root).get(number)
        if step is None:
            raise DumpFormatError(f"{self.shown} has no step{number}")
        if rank is not None and rank in (ranks := layout.ranks(step)):
            return ranks[rank]
        processes = _processes(step)
        if len(processes) == 1 and not rank:
            return processes[0]
        wanted = "one process" if rank is None else f"rank{rank}"
        raise DumpFormatError(f"{step} holds {', '.join(path.name for path in processes[:4]) or 'nothing'}, and not {wanted}")


def _processes(step: Path) -> list[Path]:
    return [*layout.ranks(step).values(), *layout.procs(step).values()]


def _read(directory: Path) -> EarlierStep:
    dump = reader.read_dump(directory)
    if dump.task not in _COMPARABLE:
        raise DumpFormatError(f'{dump.path} was recorded with task "{dump.task}"; what can be compared is "statistics" and "tensor"')
    try:
        meta = reader.read_meta(directory)
        ours = "msprobe" in meta
    except DumpFormatError:
        meta, ours = {}, True  # there is a meta.json, which the existing tool does not write
    return EarlierStep(directory, dump.data, ours, Unread(meta))


def _summary_mode(record: Any) -> str | None:
    """What the first tensor tells that has anything to tell of its values; None where there is no such tensor."""
    if isinstance(record, dict) and isinstance(record.get("dtype"), str):
        checksum = record.get("md5")
        if isinstance(checksum, str):
            return "xor" if checksum.startswith("0x") else "md5"
        return None if record.get("Max") is None else "statistics"
    items = record.values() if isinstance(record, dict) else record if isinstance(record, list) else ()
    return next((found for item in items if (found := _summary_mode(item)) is not None), None)
