"""What an entry's name says, in one shape for APIs, modules, gradients and values saved by hand; see msprobe.format.names."""

from __future__ import annotations

from typing import NamedTuple

from msprobe.comparison.frameworks.naming import MINDSPORE, api_base, module_base
from msprobe.format import names

_MODULES = frozenset({names.FORWARD, names.BACKWARD, names.PARAMETERS_GRAD})


class EntryName(NamedTuple):
    """Parts of an entry's name.

    Attributes:
        base: what was called, `Functional.linear` or `Module.layers.0.fc.Linear`; the whole name where it follows no known pattern. What
            MindSpore has recorded has the name of PyTorch's counterpart here, by which it is paired and judged.
        direction: forward, backward, parameters_grad or debug; "" for an unknown pattern.
        is_module: the name is of a module.
        api: `linear` of `Functional.linear`, `linalg.norm` of `Torch.linalg.norm`; "" for all but APIs.
        suffix: "" or, for a second backward pass over one graph, `.pass1`.
        own: `base` as recorded, `Cell.layers.0.fc.Dense`; "" where that is the same.
    """

    base: str
    direction: str
    is_module: bool
    api: str
    suffix: str
    own: str = ""

    @property
    def recorded(self) -> str:
        """`base` as the dump has it."""
        return self.own or self.base


def parse(name: str, framework: str | None = None) -> EntryName:
    """Never fails: an unknown pattern gives direction "". `framework`: what the dump says of itself; cells are known without it."""
    parts = names.parse(name)
    if parts is not None and (framework == MINDSPORE or (isinstance(parts, names.ModuleName) and parts.root == "Cell")):
        return _of_mindspore(parts)
    if isinstance(parts, names.ApiName):
        return EntryName(parts.operation, parts.direction, False, parts.api, f".pass{parts.extra_pass}" if parts.extra_pass else "")
    if isinstance(parts, names.ModuleName):
        return EntryName(parts.operation, parts.direction, True, "", f".pass{parts.extra_pass}" if parts.extra_pass else "")
    if isinstance(parts, names.DebugName):
        return EntryName(parts.operation, parts.direction, False, "", f".pass{parts.extra_pass}" if parts.extra_pass else "")
    return EntryName(name, "", False, "", "")


def _of_mindspore(parts: names.EntryName) -> EntryName:
    suffix = f".pass{parts.extra_pass}" if parts.extra_pass else ""
    own = parts.operation
    if isinstance(parts, names.ApiName):
        base, api = api_base(parts.prefix, parts.api)
        return EntryName(base, parts.direction, False, api, suffix, own)
    if isinstance(parts, names.ModuleName):
        return EntryName(module_base(own), parts.direction, True, "", suffix, own)
    return EntryName(own, parts.direction, False, "", suffix)


class Parser:
    """`parse` of the many names of a dump. What it says does not depend on a call's number, so it is kept for the other calls of one API or
    module, which saves time and memory."""

    def __init__(self, framework: str | None = None) -> None:
        self._framework = framework
        self._known: dict[tuple[str, str, bool], EntryName] = {}

    def __call__(self, name: str) -> EntryName:
        rest, _, last = name.rpartition(".")
        base, _, before = rest.rpartition(".")
        is_module = before in _MODULES  # "Module.fc.Linear.forward.0", else as in "Torch.add.0.forward"
        number, direction = (last, before) if is_module else (before, last)
        if not base or not (number.isdigit() and number.isascii() and (number[0] != "0" or number == "0")):
            return parse(name, self._framework)
        key = (base, direction, is_module)
        found = self._known.get(key)
        if found is None:
            found = parse(name, self._framework)
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
