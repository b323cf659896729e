"""A call of a function that was given to `torch.compile`: which models it will call. Compiled code shows nobody the calls inside of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

_DEEP = 3
"""So many functions, objects and containers are looked into, one inside the other."""
_MANY = 200
"""Of so many things at most."""


def models_of_call(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.nn.Module]:
    """The modules with parameters that a call can reach: by its arguments, its closure, the globals it names, the object it is bound to.

    Nothing of the user's runs: attributes are read from the objects' own dictionaries.
    """
    found: dict[int, torch.nn.Module] = {}
    seen: set[int] = set()
    waiting: list[tuple[Any, int]] = [(function, 0), *((value, 1) for value in (*args, *kwargs.values()))]
    while waiting and len(seen) < _MANY:
        value, depth = waiting.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        if issubclass(type(value), torch.nn.Module):  # isinstance would ask the object's own __class__
            if next(iter(value.parameters()), None) is not None:
                found[id(value)] = value
        elif depth <= _DEEP:
            waiting += [(inner, depth + 1) for inner in _inside(value)]
    return list(found.values())


def _inside(value: Any) -> Iterator[Any]:
    kind = type(value)
    if kind is FunctionType:
        yield from _of_function(value)
    elif kind is MethodType:
        yield value.__self__
        yield value.__func__
    elif kind in (list, tuple):
        yield from value[:_MANY]
    elif kind is dict:
        yield from list(value.values())[:_MANY]
    elif not issubclass(kind, (type, ModuleType, torch.Tensor, torch.optim.Optimizer)):
        try:
            own = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return
        if type(own) is dict:
            yield from list(own.values())[:_MANY]


def _of_function(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not bound yet
            continue
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield function.__globals__[name]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
