"""What goes into a step's writer, and what comes out when it is closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any


class Entry:
    """One entry of dump.json. `data` may be changed until `done` is set to True, or `StepWriter.finish` is called."""

    __slots__ = ("data", "done", "name", "ordinary", "text")

    def __init__(self, name: str, data: dict[str, Any], done: bool) -> None:
        self.name = name
        self.data = data
        self.done = done
        self.ordinary = False
        """Whether it is known that `data` holds no NaN and no infinite number."""
        self.text = b""
        """Its members as they will stand in the file, once `finish` has made them."""


if not TYPE_CHECKING:
    EntryInPython = Entry
    try:
        from msprobe.writer._entry import Entry
    except ImportError:  # no compiler when msprobe was installed
        pass


@dataclass(frozen=True)
class CloseReport:
    """What became of a step.

    bytes_written: size of the JSON files. problems: what is missing or was changed, by reason, with how often; their sum is the number of
    things to tell the user of. lost: entries that are in no file (counted in `problems` too).
    """

    bytes_written: int = 0
    problems: Mapping[str, int] = field(default_factory=dict)
    lost: int = 0


class Void(list[Any]):
    """Takes everything, keeps nothing."""

    def append(self, item: Any) -> None:
        pass

    def extend(self, items: Any) -> None:
        pass
