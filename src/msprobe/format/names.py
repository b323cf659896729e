"""Names of entries, taken apart and put together.

    API          Torch.linalg.norm.0.forward              {prefix}.{api}.{count}.{direction}
    module       Module.blocks.0.fc.Linear.backward.1     {root}.{path}.{class}.{direction}.{count}
    gradients    Module.fc.Linear.parameters_grad.0       the same, direction parameters_grad
    debug        loss.0.debug                             {name}.{count}.debug

A second backward pass over one graph adds `.pass1`, a third `.pass2`, at the very end.
"""

from __future__ import annotations

from dataclasses import dataclass

FORWARD = "forward"
BACKWARD = "backward"
PARAMETERS_GRAD = "parameters_grad"
DEBUG = "debug"
MODULE_ROOTS = ("Module", "Cell")

_DIRECTIONS = (FORWARD, BACKWARD)
_MODULE_DIRECTIONS = (FORWARD, BACKWARD, PARAMETERS_GRAD)


@dataclass(frozen=True, slots=True)
class ApiName:
    """A call of a function. `api` may contain dots; `extra_pass` is 0 for the first backward pass."""

    prefix: str
    api: str
    count: int
    direction: str
    extra_pass: int = 0

    @property
    def operation(self) -> str:
        """What was called, without number and direction: `Torch.linalg.norm`."""
        return f"{self.prefix}.{self.api}"

    def __str__(self) -> str:
        return f"{self.prefix}.{self.api}.{self.count}.{self.direction}" + _pass_suffix(self.extra_pass)


@dataclass(frozen=True, slots=True)
class ModuleName:
    """A call of a module, or the gradients of its parameters. `path` is dotted, and empty for a model recorded itself."""

    path: str
    class_name: str
    direction: str
    count: int
    extra_pass: int = 0
    root: str = "Module"

    @property
    def operation(self) -> str:
        """What was called, without direction and number: `Module.blocks.0.fc.Linear`."""
        return ".".join(filter(None, (self.root, self.path, self.class_name)))

    def __str__(self) -> str:
        return f"{self.operation}.{self.direction}.{self.count}" + _pass_suffix(self.extra_pass)


@dataclass(frozen=True, slots=True)
class DebugName:
    """A value saved by hand, or its gradient (then the name ends in `_grad`). `name` is whatever the user gave, "" too."""

    name: str
    count: int
    extra_pass: int = 0

    @property
    def operation(self) -> str:
        return self.name

    @property
    def direction(self) -> str:
        return DEBUG

    def __str__(self) -> str:
        return f"{self.name}.{self.count}.{DEBUG}" + _pass_suffix(self.extra_pass)


EntryName = ApiName | ModuleName | DebugName


def parse(text: str) -> EntryName | None:
    """The parts of an entry's name, or None for a text that is no such name. `str(parse(text)) == text` otherwise."""
    parts = text.split(".")
    extra = _pass_number(parts[-1])
    if extra:
        parts.pop()
    if len(parts) < 3:
        return None
    last, before = parts[-1], parts[-2]
    if last == DEBUG:
        count = _number(before)
        return DebugName(".".join(parts[:-2]), count, extra) if count is not None else None
    if last in _DIRECTIONS:
        count = _number(before)
        api = ".".join(parts[1:-2])
        return ApiName(parts[0], api, count, last, extra) if count is not None and parts[0] and api else None
    if before in _MODULE_DIRECTIONS and parts[0] in MODULE_ROOTS and len(parts) >= 4:
        count = _number(last)
        path, class_name = ".".join(parts[1:-3]), parts[-3]
        # An empty path written as "Module..Linear" is not what __str__ gives.
        if count is not None and class_name and (path or len(parts) == 4):
            return ModuleName(path, class_name, before, count, extra, parts[0])
    return None


def _number(text: str) -> int | None:
    if text.isascii() and text.isdigit() and (text == "0" or text[0] != "0"):
        return int(text)
    return None


def _pass_number(text: str) -> int:
    return (_number(text[4:]) or 0) if text.startswith("pass") else 0


def _pass_suffix(extra_pass: int) -> str:
    return f".pass{extra_pass}" if extra_pass else ""
