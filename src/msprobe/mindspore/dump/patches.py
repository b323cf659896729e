"""Attributes of MindSpore's modules and classes that are exchanged while recording is on, and put back afterwards."""

from __future__ import annotations

from typing import Any, NamedTuple

_MISSING = object()


class _Patch(NamedTuple):
    owner: Any
    name: str
    new: Any
    old: Any
    """What the owner itself had; _MISSING where it inherited the attribute."""


class Patches:
    """Exchanged attributes; in effect between `apply` and `undo`."""

    def __init__(self) -> None:
        self._patches: list[_Patch] = []
        self._on = False

    def add(self, owner: Any, name: str, new: Any) -> None:
        """One more; each attribute of an owner once."""
        self._patches.append(_Patch(owner, name, new, vars(owner).get(name, _MISSING)))

    def apply(self) -> None:
        """Put all in place."""
        if self._on:
            return
        self._on = True
        for owner, name, new, _ in self._patches:
            setattr(owner, name, new)

    def undo(self) -> None:
        """Put all back, in reverse; where somebody else has put something in our place meanwhile, theirs stays."""
        if not self._on:
            return
        for owner, name, new, old in reversed(self._patches):
            if vars(owner).get(name, _MISSING) is not new:
                continue
            if old is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
        self._on = False  # last: where a signal handler of the user's has raised meanwhile, the rest is put back another time
