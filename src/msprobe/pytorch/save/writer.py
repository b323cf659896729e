"""debug.json, its entries in the order of the calls."""

from __future__ import annotations

from typing import Any

from msprobe.config import Config
from msprobe.format import layout
from msprobe.pytorch.dump.staging import HoldingWriter
from msprobe.writer import StepWriter, json_text
from msprobe.writer.entry import Entry


class _InOrder(StepWriter):
    """While gradients are outstanding, entries that are final may overtake them in the file; when the step ends they are put back."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._added: list[str] = []
        self._written: list[str] = []
        super().__init__(*args, document=layout.DEBUG, extra_info=False, **kwargs)

    def add(self, name: str, data: Any, done: bool = False, ordinary: bool = False) -> Entry:
        """An entry of debug.json; no name comes twice."""
        self._added.append(name)
        return super().add(name, data, done, ordinary)

    def _commit(self, done: list[Entry]) -> None:
        super()._commit(done)
        self._written.extend(entry.name for entry in done)

    def _finish(self) -> None:
        for entry in [*self._pending, *self._entries]:
            entry.done = True
        self._collect()
        self._rearrange()
        super()._finish()

    def _rearrange(self) -> None:
        """Put what was overtaken in the file back into the order of the calls."""
        written = set(self._written)
        if self._written == [name for name in self._added if name in written]:
            return
        try:
            data = json_text.parse(self._dump.text())["data"]
        except (OSError, ValueError):
            return  # somebody took the file away or changed it: what there is stays as it is
        ordered = {name: data[name] for name in self._added if name in data}
        self._dump.replace(json_text.members(ordered, 2, self._problem), len(ordered))
        self._written = self._added


class SavedWriter(_InOrder):
    """Writes at once."""


class HoldingSavedWriter(_InOrder, HoldingWriter):
    """Waits with what is staged (async_dump)."""


def writer_class(config: Config) -> type[StepWriter]:
    """What writes the JSON of a step."""
    return HoldingSavedWriter if config.async_dump else SavedWriter
