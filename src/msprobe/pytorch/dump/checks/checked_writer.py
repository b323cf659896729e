"""A step's writer that shows every entry to a check before it becomes final."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msprobe.contain import let_through
from msprobe.pytorch.dump.checks.held_tensors import HeldTensors
from msprobe.pytorch.dump.checks.unread import CheckedEncoder, UnreadPlaces
from msprobe.writer import StepWriter


class Check(Protocol):
    """Looks at the entries of one step. Called in whatever thread the entry was made."""

    held: HeldTensors | None
    """Where the values of tensors wait until it is known whether they are kept."""
    encoder: type[CheckedEncoder]
    """What makes the records of the step."""
    unread_places: UnreadPlaces
    """The nulls that stand for values; the encoder notes them."""

    def saves(self, name: str) -> bool:
        """Whether the values of an entry's tensors are to be held until its end."""

    def called(self, name: str, parent: str | None) -> None:
        """A call has begun, inside `parent`."""

    def begins(self, name: str, data: dict[str, Any]) -> None:
        """An entry is there; what it holds so far may be written at any moment from now on."""

    def ends(self, name: str, data: dict[str, Any]) -> None:
        """An entry has all that it will have; what is changed in `data` now is what gets written."""

    def summary(self) -> str:
        """For the closing line of the step."""

    def facts(self) -> dict[str, Any]:
        """For the step's meta.json."""


class CheckedWriter(StepWriter):
    """Shows entries to a check: when they are added, and once when they are final.

    Args:
        check: looks at them; an error in it is reported and changes nothing else.
        report: `report(entry, reason)`.
        directory, settings: of `StepWriter`.
    """

    def __init__(self, check: Check, report: Callable[[str, str], None], directory: str, **settings: Any) -> None:
        self.check, self._tell = check, report
        if check.held is not None:
            check.held.report = report
        super().__init__(directory, **settings)

    def add(self, name: str, data: dict[str, Any], done: bool = False, ordinary: bool = False) -> Any:
        """See `StepWriter.add`."""
        self._show(self.check.begins, name, data)
        return super().add(name, data, done, ordinary)

    def finish(self, entry: Any) -> None:
        """See `StepWriter.finish`."""
        if not entry.done:
            self._show(self.check.ends, entry.name, entry.data)
        super().finish(entry)

    def add_call(self, name: str, parent: str | None) -> None:
        """See `StepWriter.add_call`."""
        self._show(self.check.called, name, parent)
        super().add_call(name, parent)

    def _show(self, look: Callable[..., None], name: str, what: Any) -> None:
        try:
            look(name, what)
        except Exception as error:
            let_through(error)
            self._tell(name, f"could not be checked: {error!r}")
