"""MSAdapter: a package `torch` whose tensors are MindSpore's. Models written for PyTorch run on it; their calls have PyTorch's names.

It is looked for among what the user has imported, and never imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import mindspore

_NAMESPACES = {
    "": ("Torch", ("mint", "ops")),
    "nn.functional": ("Functional", ("mint.nn.functional", "ops")),
    "Tensor": ("Tensor", ("Tensor",)),
    "distributed": ("Distributed", ("mint.distributed", "communication.comm_func")),
}
"""Part of the package -> first part of the entries' names, and the namespaces of MindSpore whose functions are looked for in it."""


def adapter() -> ModuleType | None:
    """The package, where the user's `torch` is one; None for PyTorch and where there is none."""
    found = sys.modules.get("torch")
    kind = getattr(found, "Tensor", None)
    return found if isinstance(kind, type) and issubclass(kind, mindspore.Tensor) else None


def module_class() -> type | None:
    """`torch.nn.Module` of MSAdapter; None without it, and where it is a Cell of MindSpore itself."""
    kind = getattr(getattr(adapter(), "nn", None), "Module", None)
    return kind if isinstance(kind, type) and not issubclass(kind, mindspore.nn.Cell) else None


def watched(names: dict[str, list[str]]) -> Iterator[tuple[Any, str, str, Any]]:
    """Owner, attribute, `Torch.add` and function, for what MSAdapter has of the functions that are watched in MindSpore.

    Args:
        names: namespace of MindSpore -> names of functions.
    """
    package = adapter()
    if package is None:
        return
    for path, (prefix, namespaces) in _NAMESPACES.items():
        owner: Any = package
        for part in filter(None, path.split(".")):
            owner = getattr(owner, part, None)
        if owner is None or owner is mindspore.Tensor:  # its methods are watched anyway
            continue
        for name in dict.fromkeys(name for namespace in namespaces for name in names.get(namespace, ())):
            function = None if "." in name else getattr(owner, name, None)
            if callable(function):
                yield owner, name, f"{prefix}.{name}", function


def named_modules(root: Any) -> Iterator[tuple[str, Any]]:
    """Path and module, for a module and everything inside it."""
    yield from root.named_modules()
