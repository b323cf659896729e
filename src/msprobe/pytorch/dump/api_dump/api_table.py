"""Which functions are recorded, and under which name.

The table is built from support_wrap_ops.yaml: function object -> `Api`. Shared objects (`torch.nn.functional.relu_ is torch.relu_`) get the
name of the first category that lists them.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from importlib import resources
from types import CodeType
from typing import Any

import torch
import yaml

from msprobe.pytorch import torch_internals

PREFIXES = {"functional": "Functional", "tensor": "Tensor", "torch": "Torch", "_VF": "VF", "aten": "Aten", "distributed": "Distributed"}
"""Category of support_wrap_ops.yaml -> prefix of entry names."""


@dataclass(frozen=True, eq=False)
class Api:
    """One recorded function.

    Attributes:
        prefix, name: the two parts of `{prefix}.{name}.{count}.{forward|backward}`.
        full: `{prefix}.{name}`.
        hidden: ids of the code objects of the function's own Python frames; they are no part of the caller's stack.
        parameters: names of its parameters in order, for functions written in Python: torch hands their arguments on in another form than
            they were called with. None for the others.
        defaults: default values of those parameters.
        form: the form the call is recorded in, whatever form it had: (number of positional arguments, names of keyword arguments).
    """

    prefix: str
    name: str
    full: str
    hidden: frozenset[int] = frozenset()
    parameters: tuple[str, ...] | None = None
    form: tuple[int, tuple[str, ...]] | None = None
    defaults: dict[str, Any] = field(default_factory=dict)


# Functions of torch.nn.init run a tensor method inside and are recorded as that: function -> (method, positional and keyword arguments).
_INIT = {
    "normal_": ("normal_", ("tensor", "mean", "std"), ("generator",)),
    "uniform_": ("uniform_", ("tensor", "a", "b"), ("generator",)),
    "constant_": ("fill_", ("tensor", "val"), ()),
}
# Functions that do nothing but call a method of the same name: they are told from the method by the frame that calls it.
_THIN = ("sigmoid", "tanh")


class ApiTable:
    """Function object -> `Api`."""

    def __init__(self, operations: dict[str, list[str]]) -> None:
        self.by_function: dict[Any, Api] = {}
        self.by_operator: dict[str, Api] = {}
        """Spelling of an operator method (`__radd__`) -> its Api."""
        self.thin: dict[tuple[str, int], Api] = {}
        """(method, id of the code that calls it) -> the function that was called."""
        self.dispatched: dict[Any, Api] = {}
        """A variant that a boolean dispatch chose (`max_pool2d_with_indices`) -> the function that was called."""
        self.aten: dict[str, Api] = {}
        self.watch_aten = bool(operations.get("aten"))
        self._aten_names = frozenset(operations.get("aten") or ())
        homes = (("functional", torch.nn.functional), ("_VF", torch_internals.VF), ("torch", torch), ("tensor", torch.Tensor))
        for category, home in homes:
            # `abs` before `__abs__`, which is the same object: an operator is known by its spelling, not by its function.
            for name in sorted(operations.get(category) or (), key=lambda name: name.startswith("__")):
                self._add(PREFIXES[category], name, home)
        for method in _THIN:
            function = getattr(torch.nn.functional, method)
            if method in (operations.get("functional") or ()):
                self.thin[method, id(function.__code__)] = self.by_function[function]
        for name, (method, positional, keyword) in _INIT.items():
            function = getattr(torch.nn.init, name)
            if method in (operations.get("tensor") or ()):
                form = (len(positional), keyword)
                self.by_function[function] = Api(
                    "Tensor", method, f"Tensor.{method}", _own_codes(function), (*positional, *keyword), form, _defaults(function)
                )

    def _add(self, prefix: str, name: str, home: Any) -> None:
        function = home
        for part in name.split("."):
            function = getattr(function, part, None)
        if function is None:
            return  # this version of torch has no such function
        api = Api(prefix, name, f"{prefix}.{name}", _own_codes(function), _parameters(function), None, _defaults(function))
        if prefix == "Tensor" and name.startswith("__"):
            self.by_operator[name] = api
        try:
            self.by_function.setdefault(function, api)
            for variant in _dispatched(function):
                self.dispatched[variant] = api
        except TypeError:
            return

    def operator(self, function: Any) -> Api | None:
        """The Api of a `torch.ops.aten` operator, with or without its overload; None for other objects."""
        kind = type(function)
        if kind is torch_internals.OpOverload:
            packet = function.overloadpacket
        elif kind is torch_internals.OpOverloadPacket:
            packet = function
        else:
            return None
        namespace, _, name = packet._qualified_op_name.partition("::")
        if namespace != "aten" or not self.watch_aten or not ("*" in self._aten_names or name in self._aten_names):
            return None
        api = self.aten.get(name)
        if api is None:
            api = self.aten[name] = Api("Aten", name, f"Aten.{name}")
        return api


def _own_codes(function: Any) -> frozenset[int]:
    codes: set[int] = set()
    for one in (function, *_dispatched(function)):
        while one is not None:
            code = getattr(one, "__code__", None)
            if isinstance(code, CodeType):
                codes.add(id(code))
            one = getattr(one, "__wrapped__", None)
    return frozenset(codes | _DISPATCH_CODES)


def _parameters(function: Any) -> tuple[str, ...] | None:
    """Parameter names of a function written in Python; None where its arguments arrive as they were given."""
    for one in (*_dispatched(function), function):
        code = getattr(one, "__code__", None)
        if isinstance(code, CodeType) and not code.co_flags & 0x0C:  # *args or **kwargs
            return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return None


def _defaults(function: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in (function, *_dispatched(function)):
        code, values = getattr(one, "__code__", None), getattr(one, "__defaults__", None)
        if isinstance(code, CodeType) and values:
            found.update(zip(code.co_varnames[code.co_argcount - len(values) : code.co_argcount], values, strict=True))
        found.update(getattr(one, "__kwdefaults__", None) or {})
    return found


def _dispatched(function: Any) -> list[Any]:
    """The functions that a boolean dispatch (`max_pool2d` with and without indices) chooses from."""
    if getattr(getattr(function, "__code__", None), "co_name", "") != "fn":
        return []
    variables = inspect.getclosurevars(function).nonlocals
    return [variables[name] for name in ("if_false", "if_true") if callable(variables.get(name))]


_DISPATCH_CODES = frozenset(id(f.__code__) for f in (torch.overrides.handle_torch_function,))


def read_operations() -> dict[str, list[str]]:
    """The packaged support_wrap_ops.yaml."""
    text = resources.files(__package__).joinpath("support_wrap_ops.yaml").read_text(encoding="utf-8")
    loaded = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {str(key): [str(item) for item in value or ()] for key, value in (loaded or {}).items()}
