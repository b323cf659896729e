"""Which arguments of a communication say nothing: buffers that are only written to, before the call; what was sent, after it.

The rules are those that the existing format has for `Distributed`; a buffer is meant whether it came by position or by keyword.
"""

from __future__ import annotations

from typing import Any

RECEIVED = {
    "recv": (0, "tensor"),
    "irecv": (0, "tensor"),
    "all_gather": (0, "tensor_list"),
    "all_gather_into_tensor": (0, "output_tensor"),
    "gather": (1, "gather_list"),
    "scatter": (0, "tensor"),
    "reduce_scatter": (0, "output"),
    "reduce_scatter_tensor": (0, "output"),
    "all_to_all": (0, "output_tensor_list"),
    "all_to_all_single": (0, "output"),
}
"""Function -> position and name of the argument that is null in `input_args` or `input_kwargs`: what it holds before is no input."""
SENT = {"isend": (0, "tensor")}
"""Function -> the argument that is null in `output`."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def before(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """The arguments as the call's input is recorded."""
    return _without(RECEIVED.get(name), args, kwargs)


def after(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments as the call's output is recorded: by position, then by keyword, as they are once the call is done."""
    args, kwargs = _without(SENT.get(name), args, kwargs)
    return (*args, *kwargs.values())


def _without(rule: tuple[int, str] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    if rule is None:
        return args, kwargs
    position, name = rule
    if position < len(args):
        args = (*args[:position], None, *args[position + 1 :])
    elif name in kwargs:
        kwargs = {**kwargs, name: None}
    return args, kwargs
