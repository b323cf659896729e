"""What MindSpore calls otherwise than PyTorch: equivalents.yaml, read when the first dump of MindSpore is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_SAME_IN = {"same_in_functional": "Functional", "same_in_torch": "Torch"}


@dataclass(frozen=True)
class Equivalents:
    """The table.

    Attributes:
        apis: first part of a name in a dump of MindSpore -> function (of Primitive: class) -> name in a dump of PyTorch.
        classes: class of a cell -> class of a module.
        parameters: parameter of a cell -> parameter of a module.
        buffers: what are parameters in MindSpore and buffers in PyTorch, which no dump of PyTorch holds.
        signatures: class of a primitive, or name of a function in a dump of MindSpore -> its arguments, as PyTorch's function calls them.
            Behind their results, these primitives give more than that function.
        arguments: keyword -> keyword.
    """

    apis: Mapping[str, Mapping[str, str]]
    classes: Mapping[str, str]
    parameters: Mapping[str, str]
    buffers: frozenset[str]
    signatures: Mapping[str, Sequence[str]]
    arguments: Mapping[str, str]


@cache
def equivalents() -> Equivalents:
    """The table, read once."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content = yaml.load(Path(__file__).with_name("equivalents.yaml").read_bytes(), loader)
    apis = {prefix: _flat(names) for prefix, names in content["apis"].items()}
    tables = content["classes"], content["parameters"], frozenset(content["buffers"]), content["signatures"], content["arguments"]
    return Equivalents(apis, *tables)


def primitive_class(own: str) -> str:
    """`BatchNorm` of `Primitive.bn_train.BatchNorm`; "" for what is no primitive."""
    return own.rpartition(".")[2] if own.startswith("Primitive.") else ""


def _flat(names: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, there in names.items():
        if name in _SAME_IN:
            found.update({one: f"{_SAME_IN[name]}.{one}" for one in there})
        else:
            found[name] = there
    return found
