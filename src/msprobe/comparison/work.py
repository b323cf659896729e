"""The unit of work as it travels: to another process, to a cluster, or nowhere."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from msprobe.comparison.inputs import DumpPair
from msprobe.comparison.kinds import KindsDiffer
from msprobe.comparison.one_pair import compare_pair
from msprobe.comparison.options import Options
from msprobe.comparison.outcome import Failure, PairReport
from msprobe.comparison.temporary import temporary_directory
from msprobe.errors import DumpFormatError, UsageError


@dataclass(frozen=True)
class Unit:
    """One pair of dumps to compare.

    Attributes:
        pair: the two files; where they lie elsewhere, what they are called in messages.
        output: directory for the results of this pair.
        stamp: what the names of files end in.
        options: how to compare.
        urls: the directories of target, golden dump and, where there is one, reference, as fsspec knows them; None for local files.
    """

    pair: DumpPair
    output: Path
    stamp: str
    options: Options
    urls: tuple[str, ...] | None = None


def do(unit: Unit, *, last: bool = False) -> PairReport:
    """Compares one pair. Raises what compare_pair raises. `last`: see there."""
    with without_collector():
        if unit.urls is None:
            return compare_pair(unit.pair, unit.output, unit.stamp, unit.options, last=last)
        return _do_fetched(unit, unit.urls)


def attempt(unit: Unit) -> PairReport | Failure:
    """The same; a dump that cannot be compared is a value, not an error. Raises OSError: the results cannot be written."""
    try:
        return do(unit)
    except (DumpFormatError, UsageError) as error:
        return Failure(unit.pair, str(error), "kinds" if isinstance(error, KindsDiffer) else "")


def _do_fetched(unit: Unit, urls: tuple[str, ...]) -> PairReport:
    from msprobe.comparison import remote

    with temporary_directory() as temporary:
        folders = [Path(temporary, side) for side in ("target", "golden", "reference")[: len(urls)]]
        paths = [path for path in (unit.pair.target, unit.pair.golden, unit.pair.reference) if path is not None]
        files: list[Path] = []
        for url, folder, path in zip(urls, folders, paths, strict=True):
            remote.fetch(url, folder)
            files.append(folder / path.name)
        pair = replace(unit.pair, target=files[0], golden=files[1], reference=files[2] if len(files) > 2 else None)
        names = [(str(folder), url) for folder, url in zip(folders, urls, strict=True)]
        try:
            report = compare_pair(pair, unit.output, unit.stamp, unit.options)
        except (DumpFormatError, UsageError) as error:
            raise type(error)(_renamed(str(error), names)) from None
    notes = tuple(type(note)(_renamed(note, names)) for note in report.notes)  # an Advice stays one
    lost = _renamed(report.lost_example, names)
    return replace(report, pair=unit.pair, notes=notes, lost_example=lost, nothing_measured=_renamed(report.nothing_measured, names))


def _renamed(text: str, names: list[tuple[str, str]]) -> str:
    for local, url in names:
        text = text.replace(local, url)
    return text


@contextmanager
def without_collector() -> Iterator[None]:
    """Hundreds of thousands of rows are built and none is garbage: the cycle collector would walk them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
