"""Modules that share their dictionaries of hooks: a shallow copy of a module has those of the module itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch

from msprobe.pytorch import torch_internals


def own_keys(modules: Iterable[torch.nn.Module], key: str) -> dict[int, str]:
    """id of each module that shares a dictionary of hooks with one before it -> what its hooks stand under instead of `key`."""
    seen: Counter[int] = Counter()
    found: dict[int, str] = {}
    for module in modules:
        dictionaries = [id(getattr(module, name)) for name in torch_internals.MODULE_HOOKS]
        before = max(seen[dictionary] for dictionary in dictionaries)
        if before:
            found[id(module)] = f"{key} {before + 1}"
        seen.update(dictionaries)
    return found
