"""The tensors that rules name as masks: a row's full name, or a module's path and a key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msprobe.comparison.mapping.composed import Part
from msprobe.comparison.mapping.nearest import hint
from msprobe.comparison.mapping.places import Modules
from msprobe.comparison.rows import Call, Row


class Masks:
    """Finds them.

    Args:
        modules, calls, directories: of both dumps; the last is where their tensor files lie.
    """

    def __init__(
        self, modules: tuple[Modules, Modules], calls: tuple[Sequence[Call], Sequence[Call]], directories: tuple[Path, Path]
    ) -> None:
        self._modules, self._calls, self._directories = modules, calls, directories
        self._rows: list[dict[str, Row]] | None = None
        self._missing: dict[str, str] = {}

    def of(self, name: str, forward: str) -> tuple[Part, Part] | None:
        """The masks of target and golden side; where one side has none, it is the other's. None where neither has one.

        Args:
            name: as the rule has it.
            forward: the forward call whose values it is for.
        """
        ours, theirs = (self._one(side, name, forward) for side in (0, 1))
        if ours is not None:
            return ours, theirs or ours
        return (theirs, theirs) if theirs is not None else None

    def missing(self, name: str) -> str:
        """That there is no such tensor, with what may have been meant."""
        if name not in self._missing:
            known = [row.name for rows in self._by_name() for row in rows.values()]
            known += [
                f"{path}.{row.key.removeprefix('parameters.')}"
                for modules in self._modules
                for path, calls in modules.forward.items()
                for row in calls[0].rows
                if row.kind == "tensor"
            ]
            self._missing[name] = f"neither dump has a tensor {name} that could be the mask{hint(name, known, stars=False)}"
        return self._missing[name]

    def _one(self, side: int, name: str, forward: str) -> Part | None:
        place = self._modules[side].place(name)
        calls = self._modules[side].forward.get(place.path, ()) if place is not None else ()
        number = forward.rpartition(".")[2]
        of_number = [call for call in calls if call.name.rpartition(".")[2] == number] or list(calls)
        if place is not None and of_number:
            row = next((row for row in of_number[0].rows if row.key == place.key and row.kind == "tensor"), None)
        else:
            row = self._by_name()[side].get(name)
        return Part(self._directories[side], row) if row is not None else None

    def _by_name(self) -> list[dict[str, Row]]:
        if self._rows is None:
            self._rows = [{row.name: row for call in calls for row in call.rows if row.kind == "tensor"} for calls in self._calls]
        return self._rows


__all__ = ["Masks"]
