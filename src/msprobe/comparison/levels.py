"""What a level records: of a call that the other side's level leaves out, nothing says that the other run does not make it."""

from __future__ import annotations

from collections.abc import Sequence

from msprobe.comparison.calls import MeasuredCall
from msprobe.comparison.names import EntryName

Levels = tuple[str | None, str | None]
"""Those of the target and of the golden dump; None where a dump does not say."""


def records(level: str | None, parts: EntryName) -> bool:
    """Whether a dump of this level holds calls of this kind. Of an unknown level, and of a name that follows no known pattern, it may."""
    if level == "L0":
        return not parts.api
    return level != "L1" or not parts.is_module


def on_both(calls: Sequence[MeasuredCall], levels: Levels) -> Sequence[MeasuredCall]:
    """The calls but those without partner that the level of the side without them does not record."""
    if levels[0] == levels[1]:
        return calls
    return [call for call in calls if call.matched or records(levels[0 if call.pair.target is None else 1], call.parts)]
