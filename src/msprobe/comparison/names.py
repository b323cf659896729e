"""What an entry's name says, in one shape for APIs, modules, gradients and values saved by hand; see msprobe.format.names."""

from __future__ import annotations

from typing import NamedTuple

from msprobe.format import names


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
