"""Names of a model's modules in the dump."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from msprobe.errors import UsageError
from msprobe.pytorch import compile_internals


def checked_models(model: object) -> list[tuple[str, torch.nn.Module]]:
    """The root modules with the prefix of their modules' names: "" for a single model, "0.", "1." … for a list or tuple.

    Raises:
        UsageError: `model` is neither a module nor a list or tuple of modules.
    """
    if isinstance(model, torch.nn.Module):
        return [("", model)]
    if isinstance(model, list | tuple):
        for index, item in enumerate(model):
            if not isinstance(item, torch.nn.Module):
                raise UsageError(f"start(model): model[{index}] is {type(item).__name__}, not a torch.nn.Module")
        return [(f"{index}.", item) for index, item in enumerate(model)]
    raise UsageError(f"start(model): model is {type(model).__name__}; allowed: a torch.nn.Module, or a list or tuple of them")


def all_modules(model: object) -> Iterator[torch.nn.Module]:
    """Every module of the given model or models, themselves included."""
    for _, root in checked_models(model):
        yield from root.modules()


def shape_of(model: object) -> list[Any]:
    """Everything that the names of a model's modules follow from, in a form that can be compared; holds nothing alive."""
    return shape_and_modules(model)[0]


def shape_and_modules(model: object) -> tuple[list[Any], list[torch.nn.Module]]:
    """What `shape_of` gives, and every module of the given model or models once, themselves included."""
    waiting = [root for _, root in checked_models(model)]
    found: list[Any] = [type(model)]
    modules: list[torch.nn.Module] = []
    walk(waiting, found, modules)
    return found, modules


def walk_in_python(waiting: list[torch.nn.Module], found: list[Any], modules: list[torch.nn.Module]) -> None:
    """Go through modules and all that is inside them.

    Args:
        waiting: where to begin; empty afterwards.
        found: gets what the names follow from.
        modules: gets each module once.
    """
    seen: set[int] = set()
    while waiting:
        module = waiting.pop()
        found += (id(module), type(module).__name__)
        if id(module) in seen:
            continue
        seen.add(id(module))
        modules.append(module)
        for name, child in module._modules.items():
            if child is not None:
                found.append(name)
                waiting.append(child)


walk: Callable[[list[torch.nn.Module], list[Any], list[torch.nn.Module]], None] = walk_in_python
try:
    from msprobe.pytorch.dump import _hot

    walk = _hot.walk_modules
except ImportError:  # no compiler when msprobe was installed
    pass


def named_modules(model: object) -> Iterator[tuple[str, torch.nn.Module]]:
    """`Module.{path}.{Class}` and the module, for everything inside the given model or models; the models themselves are left out.

    A module that stands in several places has the name of the first one. `torch.compile`'s wrappers are looked through.
    """
    seen: set[int] = set()
    for prefix, root in checked_models(model):
        skipped = {id(root), id(compile_internals.unwrap_compiled(root))}
        for path, module in root.named_modules():
            if id(module) in skipped or id(module) in seen or compile_internals.unwrap_compiled(module) is not module:
                continue
            seen.add(id(module))
            parts = [part for part in path.split(".") if part != "_orig_mod"]
            yield f"Module.{prefix}{'.'.join(parts)}.{type(module).__name__}", module
