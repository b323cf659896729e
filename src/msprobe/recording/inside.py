"""What runs inside a module, and what lies between two names: told from the names of entries and of their parents.

A module's forward entry comes by when the module begins, so before everything that runs inside it; its parent is the module around it.
Backward entries come by when their gradients have come, mostly the inner ones first; they mirror the forward ones in name and parent.
"""

from __future__ import annotations

import re

_BACKWARD = re.compile(r"\.backward(?=\.[0-9]+(?:\.pass[0-9]+)?$)")
_PASS = re.compile(r"\.pass[0-9]+$")
_GRADIENTS = ".parameters_grad."


def is_module_forward(name: str) -> bool:
    """Whether an entry is a module's forward: `Module.a.Mlp.forward.0`."""
    return ".forward." in name and name.startswith(("Module.", "Cell."))


def is_gradient(name: str) -> bool:
    """Whether an entry belongs to the backward pass: a call's gradients or those of parameters."""
    return not (name.endswith(".forward") or is_module_forward(name))


def forward_of(name: str) -> str:
    """The forward entry that a module's backward entry mirrors, whatever its pass; other names as they are."""
    return _BACKWARD.sub(".forward", _PASS.sub("", name)) if ".backward." in name else name


def backward_of(name: str) -> str:
    """The backward entry of a module's forward entry."""
    return ".backward.".join(name.rsplit(".forward.", 1))


def _prefix(name: str) -> str:
    return name.rpartition(".forward.")[0]


class Inside:
    """The calls of certain modules and all that runs inside them."""

    def __init__(self) -> None:
        self._calls: set[str] = set()
        self._prefixes: set[str] = set()

    def begins(self, name: str, parent: str | None, is_one: bool) -> bool:
        """A module begins. Gives whether it is one of them (`is_one`) or runs inside one."""
        if not is_one and parent not in self._calls:
            return False
        self._calls.add(name)
        self._prefixes.add(_prefix(name))
        return True

    def holds(self, name: str, parent: str | None) -> bool:
        """Whether an entry, forward or backward, is of such a module or of a call inside one."""
        if _GRADIENTS in name:
            return name.rpartition(_GRADIENTS)[0] in self._prefixes
        return (parent is not None and forward_of(parent) in self._calls) or forward_of(name) in self._calls


class Range:
    """From the first name to the last, both included; what runs inside the module that is the first or the last belongs to it."""

    def __init__(self, first: str, last: str) -> None:
        self.first, self.last = first, last
        self.opened = False
        self.closed = False
        self.last_came_early = False
        self._first_inside = Inside()
        self._last_inside = Inside()
        self._gradients: dict[str, str] = {}
        """Prefix of a module -> its latest parameters_grad entry in the range: a later accumulation lies outside."""

    @property
    def is_open(self) -> bool:
        """Whether the first name has come and the last has not."""
        return self.opened and not self.closed

    def enters(self, name: str, parent: str | None) -> bool:
        """A call begins, or its gradients have come. Gives whether it lies in the range."""
        if is_module_forward(name):
            self._first_inside.begins(name, parent, name == forward_of(self.first))
            self._last_inside.begins(name, parent, name == forward_of(self.last))
        if name == self.first:
            self.opened, self.closed = True, False
        elif not self.opened and _lies_in(self._first_inside, self.first, name, parent):
            self.opened = True  # the module's backward has begun: its inner calls have their gradients before it
        if name == self.last:
            return self.ends(name) or self.closed  # closed already: the call raised, this is the next attempt
        if self.closed:
            return _lies_in(self._last_inside, self.last, name, parent) and self._first_accumulation(name)
        if self.opened and _GRADIENTS in name:
            self._gradients[name.rpartition(_GRADIENTS)[0]] = name
        return self.opened

    def ends(self, name: str) -> bool:
        """A call that was not in the range when it began ends. Gives whether its end is."""
        inside = self.is_open
        if name == self.last:
            if inside:
                self.closed = True
            elif not self.opened:
                self.last_came_early = True
        return inside

    def _first_accumulation(self, name: str) -> bool:
        prefix, separator, _ = name.rpartition(_GRADIENTS)
        return not separator or self._gradients.setdefault(prefix, name) == name


def _lies_in(inside: Inside, end: str, name: str, parent: str | None) -> bool:
    """Whether an entry is inside the module `end`, in the direction and the pass that `end` names."""
    if is_gradient(name) != is_gradient(end) or not inside.holds(name, parent):
        return False
    return _GRADIENTS in name or _PASS.findall(name) == _PASS.findall(end)
