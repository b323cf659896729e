"""The golden dump: which of its steps is used, and which module calls it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe.errors import DumpFormatError, UsageError
from msprobe.format import layout, names, reader

_RECORD_ONE = 'record the golden run with "task": "tensor" and "level": "L0" (or "mix")'


@dataclass(frozen=True)
class GoldenRank:
    """What one process of the golden run recorded.

    Attributes:
        label: name of its directory, `rank0` or `proc12`.
        directory: that directory.
        calls: its forward calls of modules, in the order in which they began.
        parents: construct.json, entry -> the entry around it; empty where there is none.
    """

    label: str
    directory: Path
    calls: tuple[str, ...]
    parents: Mapping[str, str | None]


@dataclass(frozen=True)
class Golden:
    """The golden dump of one step.

    Attributes:
        root: absolute path of the dump root.
        step: the step that is used.
        ranks: by label.
    """

    root: Path
    step: int
    ranks: Mapping[str, GoldenRank]

    @property
    def length(self) -> int:
        """Number of module calls of the rank that has most."""
        return max(len(rank.calls) for rank in self.ranks.values())

    def first(self, count: int) -> dict[str, tuple[str, ...]]:
        """Of every rank, its first `count` calls."""
        return {label: rank.calls[:count] for label, rank in self.ranks.items()}

    def fingerprint(self) -> dict[str, Any]:
        """What changes when somebody records into this dump again."""
        marks: dict[str, Any] = {}
        for label, rank in self.ranks.items():
            found = (rank.directory / layout.DUMP).stat()
            marks[label] = [found.st_size, found.st_mtime_ns]
        return {"root": str(self.root), "step": self.step, "dumps": marks}


def open_golden(path: Path, step: int | None) -> Golden:
    """Looks at a dump root.

    Args:
        path: the dump root, with `step*` directories inside.
        step: the step to use; None for the first.

    Raises:
        UsageError: there is no such directory or step, or it does not hold what is needed; says how to record that.
        DumpFormatError: a file of it cannot be read.
    """
    root = path.absolute()
    if not root.is_dir():
        raise UsageError(f"--golden {path}: there is no such directory")
    try:
        steps = layout.steps(root)
        if not steps:
            inside = f"; give the dump root above it, {_root_above(root)}" if _root_above(root) else ""
            raise UsageError(f"--golden {path}: it holds no step* directory, so it is no dump root{inside}")
        chosen = next(iter(steps)) if step is None else step
        if chosen not in steps:
            raise UsageError(f"--golden {path}: it has no step{chosen}; there are: {', '.join(f'step{number}' for number in steps)}")
        ranks = layout.ranks(steps[chosen])
        found = list((ranks or layout.procs(steps[chosen])).values())
    except OSError as error:
        raise UsageError(f"--golden {path}: {error.filename} cannot be read: {error.strerror}") from None
    if not found:
        raise UsageError(f"--golden {path}: step{chosen} holds no rank* or proc* directory")
    if not ranks and len(found) > 1:
        listed = ", ".join(directory.name for directory in found)
        raise UsageError(
            f"--golden {path}: step{chosen} holds {len(found)} proc* directories ({listed}), of several processes or runs: which of them "
            "is meant cannot be known; record one run, or one with ranks, into a dump_path of its own"
        )
    return Golden(root, chosen, {directory.name: _rank(directory) for directory in found})


def _root_above(directory: Path) -> Path | None:
    for above, below in ((directory.parent, directory), (directory.parent.parent, directory.parent)):
        if below in layout.steps(above).values():
            return above
    return None


def _rank(directory: Path) -> GoldenRank:
    dump = reader.read_dump(directory)
    if dump.task != "tensor":
        raise UsageError(f'{dump.path} was recorded with task "{dump.task}": it has no tensors to give to modules; {_RECORD_ONE}')
    if dump.level == "L1":
        raise UsageError(f'{dump.path} was recorded at level "L1", which knows no modules; {_RECORD_ONE}')
    if dump.framework not in (None, "pytorch"):
        raise UsageError(f"{dump.path} is of framework {dump.framework}; isolation is for PyTorch")
    parents = reader.read_construct(directory) if (directory / layout.CONSTRUCT).is_file() else {}
    recorded = {name for name in dump.data if is_forward(name)}
    if not recorded:
        raise UsageError(f"{dump.path} holds no forward call of a module; {_RECORD_ONE}, without list and scope")
    if not dump.tensor_dir.is_dir():
        raise DumpFormatError(f"{dump.tensor_dir} does not exist: the dump has lost its tensors")
    in_order = [name for name in parents if name in recorded]  # construct.json has calls as they begin, dump.json as they end
    known = set(in_order)
    return GoldenRank(directory.name, directory, (*in_order, *(name for name in dump.data if name in recorded - known)), parents)


def is_forward(name: str) -> bool:
    """Whether this is the name of a forward call of a module."""
    parts = names.parse(name)
    return isinstance(parts, names.ModuleName) and parts.direction == names.FORWARD
