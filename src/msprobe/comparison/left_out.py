"""Directories that hold recordings and are not compared, in words: nothing is left out in silence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msprobe.format import layout

_SHOWN = 3


class LeftOut:
    """What is left out of a comparison, step by step."""

    def __init__(self) -> None:
        self._misnamed: list[Path] = []
        self._beside: list[Path] = []
        self._alone: list[tuple[Path, Path]] = []

    def in_root(self, root: Path) -> None:
        """Looks for directories that are nearly called as steps are."""
        with suppress(OSError):  # who reads the steps tells
            self._misnamed += (path for path in layout.misnamed(root, "step") if any(map(layout.holds_dump, (path, *_in(path)))))

    def in_step(self, step: Path, beside: Iterable[Path]) -> None:
        """The same of ranks and processes.

        Args:
            step: its directory.
            beside: `proc*` directories beside `rank*` in it.
        """
        with suppress(OSError):
            self._misnamed += filter(layout.holds_dump, layout.misnamed(step, "rank", "proc"))
        self._beside += filter(layout.holds_dump, beside)

    def second(self, path: Path, other: Path) -> None:
        """`rank{R}.proc{pid}`, which only one side has. `other`: the rank's directory of the other side, which may not exist."""
        self._alone.append((path, other))

    def notes(self) -> Iterator[str]:
        """One sentence for each kind."""
        if self._alone:
            path, other = self._alone[0]
            example = f", such as {other}" if other.is_dir() else ""
            yield f"{path} was not compared; to compare it, name it and a directory of the other side{example}"
        if self._misnamed:
            one = len(self._misnamed) == 1
            held = "holds a dump and is left out: its name is" if one else "hold dumps and are left out: their names are"
            yield f"{_listed(self._misnamed)} {held} not that of a step, a rank or a process (step0, rank0, proc123); name it to compare it"
        if self._beside:
            held = "lies beside rank* and is" if len(self._beside) == 1 else "lie beside rank* and are"
            yield f"{_listed(self._beside)} {held} left out: such a process prepares data; name one to compare it"


def _in(directory: Path) -> list[Path]:
    try:
        return [path for path in directory.iterdir() if path.is_dir()]
    except OSError:
        return []


def _listed(paths: Sequence[Path]) -> str:
    more = len(paths) - _SHOWN
    return f"{', '.join(map(str, paths[:_SHOWN]))}{f' and {more} more' if more > 0 else ''}"
