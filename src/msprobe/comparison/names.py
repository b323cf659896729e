"""What an entry's name says, in one shape for APIs, modules, gradients and values saved by hand; see msprobe.format.names."""

from __future__ import annotations

from typing import NamedTuple

from msprobe.format import names

_MODULES = frozenset({names.FORWARD, names.BACKWARD, names.PARAMETERS_GRAD})


class EntryName(NamedTuple):
    """Parts of an entry's name.

    Attributes:
        base: what was called, `Functional.linear` or `Module.layers.0.fc.Linear`; the whole name where it follows no known pattern.
        direction: forward, backward, parameters_grad or debug; "" for an unknown pattern.
        is_module: the name is of a module.
        api: `linear` of `Functional.linear`, `linalg.norm` of `Torch.linalg.norm`; "" for all but APIs.
        suffix: "" or, for a second backward pass over one graph, `.pass1`.
    """

    base: str
    direction: str
    is_module: bool
    api: str
    suffix: str


def parse(name: str) -> EntryName:
    """Never fails: an unknown pattern gives direction ""."""
    parts = names.parse(name)
    if isinstance(parts, names.ApiName):
        return EntryName(parts.operation, parts.direction, False, parts.api, f".pass{parts.extra_pass}" if parts.extra_pass else "")
    if isinstance(parts, names.ModuleName):
        return EntryName(parts.operation, parts.direction, True, "", f".pass{parts.extra_pass}" if parts.extra_pass else "")
    if isinstance(parts, names.DebugName):
        return EntryName(parts.operation, parts.direction, False, "", f".pass{parts.extra_pass}" if parts.extra_pass else "")
    return EntryName(name, "", False, "", "")


class Parser:
    """`parse` of the many names of a dump. What it says does not depend on a call's number, so it is kept for the other calls of one API or
    module, which saves time and memory."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, bool], EntryName] = {}

    def __call__(self, name: str) -> EntryName:
        rest, _, last = name.rpartition(".")
        base, _, before = rest.rpartition(".")
        is_module = before in _MODULES  # "Module.fc.Linear.forward.0", else as in "Torch.add.0.forward"
        number, direction = (last, before) if is_module else (before, last)
        if not base or not (number.isdigit() and number.isascii() and (number[0] != "0" or number == "0")):
            return parse(name)
        key = (base, direction, is_module)
        found = self._known.get(key)
        if found is None:
            found = parse(name)
            if found.suffix or not direction or found.direction != direction:
                return found
            self._known[key] = found
        return found


def forward_of(name: str) -> str | None:
    """The forward entry that a backward entry belongs to; None for any other name."""
    parts = names.parse(name)
    if not isinstance(parts, (names.ApiName, names.ModuleName)) or parts.direction != names.BACKWARD:
        return None
    if isinstance(parts, names.ApiName):
        return str(names.ApiName(parts.prefix, parts.api, parts.count, names.FORWARD))
    return str(names.ModuleName(parts.path, parts.class_name, names.FORWARD, parts.count, root=parts.root))


def gradient_of(name: str) -> str | None:
    """The saved value that an entry of debug.json may be the gradient of (`y.0.debug` of `y_grad.0.debug`); None for any other name."""
    parts = names.parse(name)
    if not isinstance(parts, names.DebugName) or not parts.name.endswith("_grad"):
        return None
    return str(names.DebugName(parts.name.removesuffix("_grad"), parts.count))
