"""What the documentation calls an argument that was passed by position."""

from __future__ import annotations

import inspect
import re
from typing import Any

import torch

from msprobe.contain import let_through
from msprobe.format import names

_WHERE = {"Functional": torch.nn.functional, "Torch": torch, "Tensor": torch.Tensor}
_FIXED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def argument_name(entry: str, position: int) -> str:
    """`eps` for position 4 of `Functional.layer_norm.0.forward`; the position itself (`4`) where no name is to be had.

    Args:
        entry: the name of the call's entry.
        position: from 0; the tensor of a method is 0.
    """
    try:
        found = _names(entry)
    except Exception as error:
        let_through(error)  # a function that cannot be looked at; the position says enough
        found = []
    return found[position] if position < len(found) else str(position)


def _names(entry: str) -> list[str]:
    parsed = names.parse(entry)
    if not isinstance(parsed, names.ApiName) or parsed.prefix not in _WHERE:
        return []
    function: Any = _WHERE[parsed.prefix]
    for part in parsed.api.split("."):
        function = getattr(function, part)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return _names_in_text(function, parsed.prefix == "Tensor")
    return [name for name, parameter in signature.parameters.items() if parameter.kind in _FIXED]


def _names_in_text(function: Any, method: bool) -> list[str]:
    """A builtin function has its signature in its documentation only; where that gives several, nothing says which one was meant."""
    pattern = rf"^\s*(?:\w+\.)*{re.escape(function.__name__)}\(([^()]*(?:\([^()]*\)[^()]*)*)\)\s*->"
    found = re.findall(pattern, function.__doc__ or "", re.MULTILINE)
    if len(found) != 1:
        return []
    fixed = re.sub(r"\([^()]*\)", "", found[0]).partition("*")[0].split(",")
    return ["self"] * method + [text.partition("=")[0].strip() for text in fixed if text.strip()]
