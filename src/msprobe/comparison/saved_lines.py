"""Where saved values were saved: `saved_at` of the meta.json beside a debug.json, in the shape of a stack.json."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msprobe.comparison.names import gradient_of
from msprobe.errors import DumpFormatError
from msprobe.format import layout, names, reader


class SavedLines(Mapping[str, Sequence[str]]):
    """Key of debug.json -> frames, innermost first. A gradient has those of its value.

    Args:
        groups: `[[keys], [frames]]` each. A key stands for all later ones of its name, up to the next that is listed.
    """

    def __init__(self, groups: Any) -> None:
        self._of: dict[str, list[tuple[int, Sequence[str]]]] = {}
        for group in groups if isinstance(groups, list) else ():
            if not (isinstance(group, list) and len(group) == 2 and all(map(_is_text_list, group))):
                continue  # nobody's loss but of a line of code
            for key in group[0]:
                parts = names.parse(key)
                if isinstance(parts, names.DebugName):
                    self._of.setdefault(parts.name, []).append((parts.count, group[1]))
        for places in self._of.values():
            places.sort(key=lambda place: place[0])

    def __getitem__(self, key: str) -> Sequence[str]:
        for name in (key, gradient_of(key)):
            parts = names.parse(name) if name is not None else None
            if not isinstance(parts, names.DebugName):
                continue
            places = self._of.get(parts.name, ())
            at = bisect_right(places, parts.count, key=lambda place: place[0])
            if at:
                return places[at - 1][1]
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return (str(names.DebugName(name, number)) for name, places in self._of.items() for number, _ in places)

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))


def saved_lines(dump: Path) -> Mapping[str, Sequence[str]]:
    """Those of a debug.json; empty where there are none, and for another file."""
    if dump.name != layout.DEBUG:
        return {}
    try:
        return SavedLines(reader.read_meta(dump.parent / layout.META).get(layout.SAVED_AT))
    except (DumpFormatError, OSError):
        return {}


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
