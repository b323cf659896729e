"""Which model a decorated function works on: one that is known, one of its arguments, or an attribute of one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch

from msprobe.errors import UsageError


class Found(NamedTuple):
    """What start() is given."""

    model: Any


ModelOf: TypeAlias = "Callable[[tuple[Any, ...], dict[str, Any]], Found | None]"
"""From the arguments of a call to the model; None where the call cannot succeed: the function tells what is wrong with its arguments."""


def is_settled(model: Any) -> bool:
    """Whether nothing of it has to be looked up; what is of a wrong type is left to start()."""
    if isinstance(model, list | tuple):
        return all(map(is_settled, model))
    return not isinstance(model, str) and (isinstance(model, torch.nn.Module) or not callable(model))


def model_of(model: Any, function: Callable[..., Any]) -> ModelOf:
    """How the model of a call of `function` is found.

    Args:
        model: a module, None, a name (`"model"`, `"self.model"`, `"trainer.policy.net"`: an argument of the function with its
            attributes, or else attributes of its first argument), a function that is given the call's arguments, or a list of these.

    Raises:
        UsageError: a name cannot be an argument, and there is no first argument it could be an attribute of.
    """
    if is_settled(model):
        found = Found(model)
        return lambda args, kwargs: found
    if isinstance(model, str):
        return _by_name(model, function)
    if isinstance(model, list | tuple):
        parts = [model_of(part, function) for part in model]

        def several(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found | None:
            made = [part(args, kwargs) for part in parts]
            return Found([one.model for one in made if one is not None]) if None not in made else None

        return several
    return lambda args, kwargs: Found(model(*args, **kwargs))


def _by_name(name: str, function: Callable[..., Any]) -> ModelOf:
    first, *attributes = name.split(".")
    shown = getattr(function, "__qualname__", repr(function))
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise UsageError(f'record("{name}"): what the arguments of {shown} are called is not known; give the model itself') from None
    names = [p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    others = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), None)
    known = first in signature.parameters
    if not known and not names and others is None:
        raise UsageError(f'record("{name}"): {shown} has no argument "{first}", and no first argument with such an attribute')

    def look_up(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Found | None:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return None
        bound.apply_defaults()
        given = bound.arguments
        if not known and others is not None and first in given[others]:
            given = given[others]
        if first in given:
            path, rest = first, attributes
        elif names:
            path, rest = names[0], [first, *attributes]
        else:
            raise UsageError(f'record("{name}"): {shown} was called without an argument "{first}"')
        value = given[path]
        for attribute in rest:
            try:
                value = getattr(value, attribute)
            except AttributeError:
                no_argument = f'no argument is called "{first}", and ' if len(rest) > len(attributes) else ""
                where = f'{no_argument}"{path}" ({type(value).__name__}) has no attribute "{attribute}"'
                raise UsageError(f'record("{name}"): in {shown}, {where}') from None
            path = f"{path}.{attribute}"
        return Found(value)

    return look_up
