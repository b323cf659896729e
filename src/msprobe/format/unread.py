"""Which nulls of dump.json stand for a value that nobody looked at: `unread` in meta.json. dump.json has no other word for None."""

from __future__ import annotations

from collections.abc import Callable, Collection, ItemsView
from typing import Any, cast

KEY = "unread"
MORE = "unread_more"
"""How many more there were than are listed."""
MOST = 100_000
"""Places that are listed in one step."""
LEFT_OUT = "an argument or result that is left out"
"""What is said of a value that a rule leaves out (builtin_ignore_ops.yaml): it may have been anything, None too."""

Note = tuple[str, str, tuple[str, ...], str]
"""Entry, role in it (`input`, `kwargs`, `output`, `parameters` or ""), place in that, and what stands there, in words."""

_MOST_WORDS = 200


class Notes:
    """The notes of one step.

    `add` may be called from any thread; the others by one at a time, and again where they were cut short.
    """

    def __init__(self) -> None:
        self._waiting: list[Note] = []
        self.add: Callable[[Note], None] = self._waiting.append
        self._groups: dict[str, dict[str, dict[str, None]]] = {}
        self._count = self._more = 0

    @property
    def waiting(self) -> bool:
        """Whether there is something for `put_into`."""
        return bool(self._waiting)

    def put_into(self, meta: dict[str, Any]) -> None:
        """Bring what meta.json says up to date: words -> place in the entry -> entries."""
        count = len(self._waiting)
        if not count:
            return
        for entry, role, path, what in self._waiting[:count]:
            group = self._groups.setdefault(what[:_MOST_WORDS], {}).setdefault(place_of(role, path), {})
            if entry in group:
                continue
            if self._count >= MOST:
                self._more += 1
                continue
            group[entry] = None
            self._count += 1
        del self._waiting[:count]
        self._write(meta)

    def close(self) -> None:
        """Nothing is written any more."""
        self.add = _ignore
        self._waiting.clear()
        self._groups.clear()

    def keep(self, entries: Collection[str], meta: dict[str, Any]) -> None:
        """Forget the notes of all other entries: they were not written."""
        if not self._groups:
            return
        for places in self._groups.values():
            for place, group in places.items():
                places[place] = {entry: None for entry in group if entry in entries}
        self._write(meta)

    def _write(self, meta: dict[str, Any]) -> None:
        groups = {what: {place: list(group) for place, group in places.items() if group} for what, places in self._groups.items()}
        meta[KEY] = {what: places for what, places in groups.items() if places}
        if not meta[KEY]:
            del meta[KEY]
        if self._more:
            meta[MORE] = self._more


def place_of(role: str, path: tuple[str, ...]) -> str:
    """Where in an entry: `input.0`, `input.past_key_values`, `output.0.1`; "" for the entry itself (a value saved by hand)."""
    label = "input" if role == "kwargs" else role
    return ".".join((label, *path) if label else path)


class Unread:
    """The places of one dump.

    Args:
        meta: what its meta.json holds; None where it is there and cannot be read.
    """

    def __init__(self, meta: dict[str, Any] | None) -> None:
        self._what: dict[str, str] = {}
        self.entries: set[str] = set()
        """Those with a place that is listed."""
        self.damaged = meta is None
        """The list cannot be read, or only a part of it."""
        meta = meta or {}
        for what, places in self._object(meta.get(KEY, {})):
            for place, entries in self._object(places):
                self.damaged = self.damaged or not (isinstance(entries, list) and all(map(_is_text, entries)))
                for entry in filter(_is_text, entries) if isinstance(entries, list) else ():
                    self._what[f"{entry}.{place}" if place else entry] = what
                    self.entries.add(entry)
        self.complete = not (self.damaged or meta.get(MORE))
        """Every such null is listed."""

    def __bool__(self) -> bool:
        return bool(self._what) or not self.complete

    def what(self, name: str) -> str | None:
        """What stands where this null is, in words; None where it is None as far as is known.

        Args:
            name: the entry, a dot, and the place in it; the entry alone where that is null.
        """
        found = self._what.get(name)
        if found is not None or self.complete:
            return found
        why = "its meta.json cannot be read" if self.damaged else "there were more such places than are listed"
        return f"what may be a value or None ({why})"

    def _object(self, value: Any) -> ItemsView[str, Any]:
        if not isinstance(value, dict):
            self.damaged = True
            value = {}
        return cast(dict[str, Any], value).items()


def _ignore(note: Note) -> None:
    pass


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
