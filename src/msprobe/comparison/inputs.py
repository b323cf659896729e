"""First stage: what the two paths hold, and which dump of the target belongs to which of the golden side."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from msprobe.comparison.left_out import LeftOut
from msprobe.comparison.mapping.groups import Groups, grouped
from msprobe.errors import UsageError
from msprobe.format import layout

Level = Literal["file", "step", "root"]
_Numbered = tuple[Mapping[int, Path], Mapping[int, Path]]
_Seconds = tuple[Mapping[tuple[int, int], Path], Mapping[tuple[int, int], Path]]


@dataclass(frozen=True)
class DumpPair:
    """Two files to compare.

    Attributes:
        target, golden: a dump.json or debug.json each.
        step: number of the step, None when not known.
        label: `rank0`, `proc123`, or "" for two files given as such.
        target_group, golden_group: the dumps of the ranks whose values are put together on this side, `target` or `golden` among them.
        reference: the dump of the same step and rank that stands for the truth, None without `--reference`.
    """

    target: Path
    golden: Path
    step: int | None
    label: str
    reference: Path | None = None
    target_group: tuple[Path, ...] = ()
    golden_group: tuple[Path, ...] = ()

    @property
    def title(self) -> str:
        """`step0 rank0`, for messages; "" for two files given as such."""
        return " ".join(part for part in ("" if self.step is None else f"step{self.step}", self.label) if part)


@dataclass(frozen=True)
class Plan:
    """What is to be compared.

    Attributes:
        level: what both paths are.
        pairs: in the order of steps and ranks.
        one_sided: what exists on one side only, one sentence each.
        problems: what should have been compared and cannot be, one sentence each.
        notes: what else lies there and is left out, one sentence each.
    """

    level: Level
    pairs: tuple[DumpPair, ...]
    one_sided: tuple[str, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()


def make_plan(
    target: Path,
    golden: Path,
    steps: frozenset[int] | None = None,
    ranks: frozenset[int] | None = None,
    groups: Groups | None = None,
) -> Plan:
    """Looks at the two paths.

    Args:
        target, golden: two dump files, two directories with a dump file, two step directories (`rank*` or `proc*` inside), or two dump
            roots (`step*` inside).
        steps, ranks: only these are compared, None for all. Processes without a rank have none of `ranks`.
        groups: ranks whose values are put together where one side has more ranks than the other, see mapping.groups; None: none are.

    Raises:
        UsageError: a path does not exist or holds no dump, or the two are not of one kind; `steps` or `ranks` name what is not there.
    """
    levels = (_level(target, "target"), _level(golden, "golden"))
    if levels[0] != levels[1]:
        raise UsageError(
            f"the two paths are not of one kind: {target} is {_word(target, levels[0])}, {golden} is {_word(golden, levels[1])};"
            " give two files, two rank directories, two step directories or two dump roots"
        )
    if steps is not None and levels[0] != "root":
        raise UsageError(f"--step picks steps of a dump root, and {target} is {_WORDS[levels[0]]}")
    if levels[0] == "file":
        if ranks is not None:
            raise UsageError(f"--rank picks ranks of a dump root or a step directory, and {target} is {_WORDS['file']}")
        return Plan("file", (_file_pair(target, golden),), (), ())
    plan = _Planner(ranks, groups)
    if levels[0] == "step":
        plan.step(target, golden, None)
    else:
        if steps is None:
            for root in (target, golden):
                plan.left_out.in_root(root)
        plan.both(*_picked((layout.steps(target), layout.steps(golden)), steps, "step", "--step"), "step", plan.step)
    missing = sorted((ranks or frozenset()) - plan.ranks_seen)
    if missing:
        have = ", ".join(map(str, sorted(plan.ranks_seen))) or "none"
        raise UsageError(f"--rank {','.join(map(str, missing))}: no such rank in {target} and {golden}; there are: {have}")
    if not plan.pairs and not plan.problems:
        raise UsageError(f"nothing in {target} has a partner in {golden}: " + "; ".join(plan.one_sided))
    return Plan(levels[0], tuple(plan.pairs), tuple(plan.one_sided), tuple(plan.problems), tuple(dict.fromkeys(plan.left_out.notes())))


_WORDS: dict[Level, str] = {
    "file": "a dump file or the directory of one process",
    "step": "a step directory",
    "root": "a dump root",
}


def _word(path: Path, level: Level) -> str:
    if path.is_file() and path.name not in (layout.DUMP, layout.DEBUG):
        return f"a file that is called neither {layout.DUMP} nor {layout.DEBUG}"
    return _WORDS[level]


def _level(path: Path, side: str) -> Level:
    try:
        if path.is_file():
            return "file"
        if not path.is_dir():
            raise UsageError(f"the {side} path {path} does not exist")
        if _dump_file(path) is not None:
            return "file"
        if layout.ranks(path) or layout.procs(path) or layout.beside_ranks(path):
            return "step"
        if layout.steps(path):
            return "root"
    except OSError as error:
        raise UsageError(f"the {side} path {path} cannot be read: {error.strerror}") from None
    raise UsageError(f"the {side} path {path} holds no dump: no {layout.DUMP}, {layout.DEBUG}, rank*, proc* or step* in it")


def _dump_file(directory: Path) -> Path | None:
    return next((directory / name for name in _dump_files(directory)), None)


def _dump_files(directory: Path) -> list[str]:
    """Those of dump.json and debug.json that are there. A directory that cannot be looked into raises OSError."""
    return [name for name in (layout.DUMP, layout.DEBUG) if _is_file(directory / name)]


def _is_file(path: Path) -> bool:
    """As Path.is_file, which in some versions of Python says of a file that cannot be looked at that there is none."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _file_pair(target: Path, golden: Path) -> DumpPair:
    files: list[Path] = []
    for path, other in ((target, golden), (golden, target)):
        if path.is_file():
            files.append(_followed(path))
            continue
        wanted = layout.DEBUG if other.name == layout.DEBUG else layout.DUMP
        found = path / wanted if (path / wanted).is_file() else _dump_file(path)
        files.append(found if found is not None else path / wanted)
    return DumpPair(files[0], files[1], None, _label(files[0].parent.name) if target.is_dir() else "")


def _followed(path: Path) -> Path:
    """Where a link to a dump.json points to, unless the other files of the dump lie beside the link."""
    beside = (path.parent / name for name in (layout.TENSORS, layout.STACK))
    return path.resolve() if path.is_symlink() and not any(item.exists() for item in beside) else path


def _label(name: str) -> str:
    number, _, process = name[4:].partition(".proc")
    return name if name[:4] in ("rank", "proc") and f"{number}{process}".isdigit() else ""


def _name_one(target: Path, golden: Path, inside: Sequence[Mapping[int, Path]]) -> str:
    """What to do when a step directory holds several processes that nothing pairs: which side, where, and the options to give."""
    held: list[str] = []
    for side, path, found in (("target", target, inside[0]), ("golden", golden, inside[1])):
        procs = [item for item in found.values() if item.name.startswith("proc")]
        if len(procs) > 1:
            held.append(f"{path} of the {side} side holds {len(procs)} proc* directories (that many processes, or runs into one dump_path)")
    options = [f"{option} {next(iter(found.values()))}" for option, found in zip(("-tp", "-gp"), inside, strict=True) if found]
    return f"{'; '.join(held)}{'; ' if held else ''}name one directory of each side, as in {' '.join(options)}"


def _picked(
    sides: tuple[Mapping[int, Path], Mapping[int, Path]], wanted: frozenset[int] | None, word: str, option: str
) -> tuple[Mapping[int, Path], Mapping[int, Path]]:
    """Those of both sides that are wanted. One that neither side has is an error: to leave it out in silence would look like a pass."""
    if wanted is None:
        return sides
    there = sides[0].keys() | sides[1].keys()
    missing = sorted(wanted - there)
    if missing:
        have = ", ".join(map(str, sorted(there)))
        raise UsageError(f"{option} {','.join(map(str, missing))}: there is no such {word} on either side; there are: {have}")
    return _only(sides[0], wanted), _only(sides[1], wanted)


def _only(paths: Mapping[int, Path], wanted: frozenset[int]) -> dict[int, Path]:
    return {number: path for number, path in paths.items() if number in wanted}


class _Planner:
    def __init__(self, wanted_ranks: frozenset[int] | None = None, groups: Groups | None = None) -> None:
        self.wanted_ranks = wanted_ranks
        self.groups = groups
        self.ranks_seen: set[int] = set()
        self.pairs: list[DumpPair] = []
        self.one_sided: list[str] = []
        self.problems: list[str] = []
        self.left_out = LeftOut()

    def both(
        self, target: Mapping[int, Path], golden: Mapping[int, Path], word: str, use: Callable[[Path, Path, int], None], where: str = ""
    ) -> None:
        """Pairs by id, never by position; names what one side lacks."""
        for number in sorted(target.keys() | golden.keys()):
            if number not in golden:
                self.one_sided.append(f"{where}{word}{number} is in the target only")
            elif number not in target:
                self.one_sided.append(f"{where}{word}{number} is in the golden dump only")
            else:
                use(target[number], golden[number], number)

    def step(self, target: Path, golden: Path, number: int | None) -> None:
        where = "" if number is None else f"step{number} "
        try:
            ranks = layout.ranks(target), layout.ranks(golden)
            procs = layout.procs(target), layout.procs(golden)
            seconds = layout.beside_ranks(target), layout.beside_ranks(golden)
        except OSError as error:
            self.problems.append(f"{where}{error.filename} cannot be read: {error.strerror}")
            return
        self.ranks_seen |= ranks[0].keys() | ranks[1].keys() | {rank for found in seconds for rank, _ in found}
        if self.wanted_ranks is None:
            for directory, beside in ((target, procs[0] if ranks[0] else {}), (golden, procs[1] if ranks[1] else {})):
                self.left_out.in_step(directory, beside.values())
        if any((*ranks, *procs)) or not all(seconds):
            self.processes(target, golden, number, where, ranks, procs)
        self.seconds((target, golden), number, where, seconds)

    def processes(self, target: Path, golden: Path, number: int | None, where: str, ranks: _Numbered, procs: _Numbered) -> None:
        """What is called `rank{R}` or `proc{pid}` in one step."""
        if self.wanted_ranks is not None:
            ranks = _only(ranks[0], self.wanted_ranks), _only(ranks[1], self.wanted_ranks)
            procs = {}, {}
            if not ranks[0] and not ranks[1]:
                return
        sides = ranks[0] or procs[0], ranks[1] or procs[1]
        if self.groups is not None and sides[0] and sides[1] and len(sides[0]) != len(sides[1]):
            self.in_groups(*sides, self.groups, number, where)
            return
        if (ranks[0] and ranks[1]) or self.wanted_ranks is not None:
            # Processes without a rank beside ranks only prepare data.
            self.both(*ranks, "rank", lambda a, b, _: self.leaf(a, b, number), where)
            return
        everything = [{**ranks[side], **procs[side]} for side in (0, 1)]
        alone = [list((ranks[side] or procs[side]).values()) for side in (0, 1)]
        if len(alone[0]) == len(alone[1]) == 1:
            self.leaf(alone[0][0], alone[1][0], number)
        elif not everything[0] or not everything[1]:
            side = "target" if not everything[0] else "golden dump"
            self.problems.append(f"{where}holds no rank* or proc* directory in the {side}")
        elif ranks[0] or ranks[1]:
            self.problems.append(f"{where}has rank* directories on one side and not on the other; {_name_one(target, golden, everything)}")
        elif procs[0].keys() & procs[1].keys():
            self.both(*procs, "proc", lambda a, b, _: self.leaf(a, b, number), where)
        else:
            self.problems.append(f"{where}cannot be paired: {_name_one(target, golden, everything)}")

    def seconds(self, steps: tuple[Path, Path], number: int | None, where: str, found: _Seconds) -> None:
        """What is called `rank{R}.proc{pid}`: another process recorded as rank R, too. Paired by the whole name, as `proc{pid}` is."""
        keys = [key for key in sorted(found[0].keys() | found[1].keys()) if self.wanted_ranks is None or key[0] in self.wanted_ranks]
        both = [key for key in keys if key in found[0] and key in found[1]]
        for key in both:
            self.leaf(found[0][key], found[1][key], number)
        for rank in dict.fromkeys(key[0] for key in keys):
            ours, theirs = ([side[key] for key in keys if key[0] == rank and key in side and key not in both] for side in found)
            if ours and theirs:
                names = [", ".join(path.name for path in paths) for paths in (ours, theirs)]
                self.problems.append(
                    f"{where}{names[0]} of the target and {names[1]} of the golden dump: other processes recorded as rank {rank}, too, and"
                    f" which belong together cannot be told; name one directory of each side, as in -tp {ours[0]} -gp {theirs[0]}"
                )
                continue
            for paths, side, other in ((ours, "target", steps[1]), (theirs, "golden dump", steps[0])):
                for path in paths:
                    self.one_sided.append(f"{where}{path.name}, where another process recorded as rank {rank}, is in the {side} only")
                    self.left_out.second(path, other / f"rank{rank}")

    def in_groups(self, target: Mapping[int, Path], golden: Mapping[int, Path], groups: Groups, number: int | None, where: str) -> None:
        """Ranks whose values are put together: the first of a group stands for it."""
        found = grouped(target, golden, groups)
        if isinstance(found, str):
            self.problems.append(f"{where}{found}")
            return
        for group in found:
            before = len(self.pairs)
            self.leaf(group.target[0], group.golden[0], number)
            if len(self.pairs) > before:
                pair = self.pairs[-1]
                ours, theirs = ([path / dump.name for path in paths] for paths, dump in zip(group, (pair.target, pair.golden), strict=True))
                self.pairs[-1] = replace(pair, target_group=tuple(ours), golden_group=tuple(theirs))

    def leaf(self, target: Path, golden: Path, number: int | None) -> None:
        held: list[list[str]] = []
        for side, directory in (("target", target), ("golden dump", golden)):
            try:
                names = _dump_files(directory)
            except OSError as error:
                self.problems.append(f"{directory} of the {side} cannot be read: {error.strerror}")
                continue
            if names:
                held.append(names)
            else:
                self.problems.append(f"{directory} of the {side} has no {layout.DUMP} or {layout.DEBUG}")
        if len(held) == 2:
            common = [name for name in held[0] if name in held[1]]
            files = [directory / (common or names)[0] for directory, names in zip((target, golden), held, strict=True)]
            self.pairs.append(DumpPair(files[0], files[1], number, target.name))
