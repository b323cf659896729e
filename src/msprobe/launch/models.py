"""Which modules of a process are its models: found by what stands inside what, and by what the optimizers train."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from msprobe.pytorch.compile_internals import unwrap_compiled


def _live_modules() -> list[torch.nn.Module]:
    """Every module that is alive. Looks at types alone: an object's own code (of a proxy, a lazy import) does not run."""
    kinds: dict[int, bool] = {}
    found = []
    for thing in gc.get_objects():
        kind = type(thing)
        known = kinds.get(id(kind))
        if known is None:
            known = kinds[id(kind)] = issubclass(kind, torch.nn.Module)
        if known:
            found.append(thing)
    return found


def _dictionary(module: torch.nn.Module, name: str) -> dict[str, Any]:
    """`_modules` or `_parameters`; empty in a module that is only half made."""
    found = object.__getattribute__(module, "__dict__").get(name)
    return found if isinstance(found, dict) else {}


class Family:
    """The modules that are alive at one moment, and what stands inside what.

    A model is often called by parts of it: a Lightning module calls its network, a method `encode` its encoder. The outermost module that a
    part stands in is the model. Where it stands in several (a traced graph shares the layers of its original), the largest one is.
    """

    def __init__(self) -> None:
        self._parents: dict[int, list[torch.nn.Module]] = {}
        self._owners: dict[int, list[torch.nn.Module]] = {}
        for module in _live_modules():
            for child in _dictionary(module, "_modules").values():
                if child is not None and child is not module:
                    self._parents.setdefault(id(child), []).append(module)
            for parameter in _dictionary(module, "_parameters").values():
                if parameter is not None:
                    self._owners.setdefault(id(parameter), []).append(module)

    def root_of(self, module: torch.nn.Module) -> torch.nn.Module:
        """The outermost module that this one stands in; the module itself where there is none."""
        return max(self._roots(module), key=lambda root: (sum(1 for _ in root.modules()), type(root).__name__), default=module)

    def _roots(self, module: torch.nn.Module) -> list[torch.nn.Module]:
        found, seen, waiting = [], {id(module)}, [module]
        while waiting:
            one = waiting.pop()
            parents = self._parents.get(id(one), [])
            if not parents:
                found.append(one)
            for parent in parents:
                if id(parent) not in seen:
                    seen.add(id(parent))
                    waiting.append(parent)
        return found

    def trained(self, optimizers: Iterable[torch.optim.Optimizer], called: torch.nn.Module) -> list[torch.nn.Module]:
        """The roots that own what the optimizers train, in the order of the optimizers.

        Args:
            optimizers: in the order in which they were made.
            called: a root that was called; what it owns is not looked for elsewhere.
        """
        wanted = {id(parameter): parameter for optimizer in optimizers for parameter in parameters_of(optimizer)}
        owned = set(map(id, called.parameters()))
        order: dict[int, torch.nn.Module] = {}
        covered: set[int] = set()
        for number in wanted:
            if number in covered:
                continue
            root = called if number in owned else self._root_of_parameter(number)
            if root is not None:
                order.setdefault(id(root), root)
                covered.update(map(id, root.parameters()))
        return list(order.values())

    def _root_of_parameter(self, number: int) -> torch.nn.Module | None:
        owners = self._owners.get(number)
        if not owners:
            return None  # a latent, or a flat copy of many parameters
        roots = {id(root): root for owner in owners for root in self._roots(owner)}
        return max(roots.values(), key=lambda root: (sum(1 for _ in root.modules()), type(root).__name__), default=owners[0])


def name_of(root: torch.nn.Module) -> str:
    """What a model is called in the report: its class, and that of what a wrapper holds."""
    inner = unwrap_compiled(root)
    modules = _dictionary(inner, "_modules")
    if set(modules) == {"module"} and modules["module"] is not None:  # DistributedDataParallel and the like
        return f"{type(inner).__name__}({name_of(modules['module'])})"
    return type(inner).__name__


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Everything that an optimizer trains."""
    for group in optimizer.param_groups:
        yield from (parameter for parameter in group["params"] if isinstance(parameter, torch.Tensor))


class Roots:
    """Roots that were found before: most calls are of one that is known. Holds nothing alive."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[torch.nn.Module], weakref.ref[torch.nn.Module]]] = {}

    def get(self, module: torch.nn.Module) -> torch.nn.Module | None:
        """The root of a module, None where it has to be looked for."""
        known = self._known.get(id(module))
        if known is None or known[0]() is not module:
            return None
        return known[1]()

    def keep(self, module: torch.nn.Module, root: torch.nn.Module) -> None:
        """`root` is the outermost module that `module` stands in."""
        self._known[id(module)] = weakref.ref(module), weakref.ref(root)
