"""Which functions are recorded, and under which name.

The table is built from support_wrap_ops.yaml: function object -> `Api`. Shared objects (`torch.nn.functional.relu_ is torch.relu_`) get the
name of the first category that lists them. Functions of torch that a function mode does not see are kept apart, for wrapping.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch

from msprobe.config.values import nearest
from msprobe.log import logger
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.api_dump.ignoring import Ignored
from msprobe.pytorch.dump.api_dump.operation_files import IGNORE, OPERATORS, PREFIXES, SUPPORT, OperationFiles, read_operation_files
from msprobe.pytorch.dump.api_dump.written import Written, written

__all__ = ["PREFIXES", "Api", "ApiTable", "Unseen", "read_operations", "seen_by_mode"]


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
        ignored: what of its inputs and outputs is left out; None: nothing.
        written: arguments that are recorded as outputs, since the call writes to them; None: what it returns is all.
    """

    prefix: str
    name: str
    full: str
    hidden: frozenset[int] = frozenset()
    parameters: tuple[str, ...] | None = None
    form: tuple[int, tuple[str, ...]] | None = None
    defaults: dict[str, Any] = field(default_factory=dict)
    ignored: Ignored | None = None
    written: Written | None = None


@dataclass(frozen=True, eq=False)
class Unseen:
    """A function that a function mode does not see: its attribute is replaced while recording is on."""

    owner: Any
    attribute: str
    api: Api


_REMOVED = ("cholesky", "qr")
"""From torch 2.14 on these names are there only to raise: nothing of a call could be recorded."""

# Functions of torch.nn.init run a tensor method inside and are recorded as that: function -> (method, positional and keyword arguments).
_INIT = {
    "normal_": ("normal_", ("tensor", "mean", "std"), ("generator",)),
    "uniform_": ("uniform_", ("tensor", "a", "b"), ("generator",)),
    "constant_": ("fill_", ("tensor", "val"), ()),
}
# Functions that do nothing but call a method of the same name: they are told from the method by the frame that calls it.
_THIN = ("sigmoid", "tanh")


_HOMES = (("functional", torch.nn.functional), ("_VF", torch_internals.VF), ("torch", torch), ("tensor", torch.Tensor))


class ApiTable:
    """Function object -> `Api`.

    Args:
        operations: category -> names, or all that the operation files say.
    """

    def __init__(self, operations: Mapping[str, list[str]] | OperationFiles) -> None:
        files = operations if isinstance(operations, OperationFiles) else OperationFiles(dict(operations))
        self.files = files
        self.by_function: dict[Any, Api] = {}
        self.by_operator: dict[str, Api] = {}
        """Spelling of an operator method (`__radd__`) -> its Api."""
        self.thin: dict[tuple[str, int], Api] = {}
        """(method, id of the code that calls it) -> the function that was called."""
        self.dispatched: dict[Any, Api] = {}
        """A variant that a boolean dispatch chose (`max_pool2d_with_indices`) -> the function that was called."""
        self.unseen: list[Unseen] = []
        """Functions of torch's namespaces that a function mode does not see."""
        self.told: set[Any] = set()
        """What has been told to the user and need not be told again."""
        self.aten: dict[str, Api] = {}
        watched = files.watched
        self.watch_aten = bool(watched.get("aten"))
        self._aten_names = frozenset(watched.get("aten") or ())
        self._operator_patterns = tuple(watched.get(OPERATORS) or ())
        for category, home in _HOMES:
            # `abs` before `__abs__`, which is the same object: an operator is known by its spelling, not by its function.
            for name in sorted(watched.get(category) or (), key=lambda name: name.startswith("__")):
                self._add(category, name, home)
        for method in _THIN:
            function = getattr(torch.nn.functional, method)
            if method in (watched.get("functional") or ()):
                self.thin[method, id(function.__code__)] = self.by_function[function]
        for name, (method, positional, keyword) in _INIT.items():
            function = getattr(torch.nn.init, name)
            if method in (watched.get("tensor") or ()):
                form = (len(positional), keyword)
                names = (*positional, *keyword)
                self.by_function[function] = self.api("Tensor", method, _own_codes(function), names, form, _defaults(function))
        self._tell_unknown_rules()

    def api(
        self,
        prefix: str,
        name: str,
        hidden: frozenset[int] = frozenset(),
        parameters: tuple[str, ...] | None = None,
        form: tuple[int, tuple[str, ...]] | None = None,
        defaults: dict[str, Any] | None = None,
    ) -> Api:
        """The Api `{prefix}.{name}`, with what is left out of its calls; the other arguments are fields of `Api`."""
        full = f"{prefix}.{name}"
        return Api(prefix, name, full, hidden, parameters, form, defaults or {}, self.files.ignored.get(full))

    @cached_property
    def communications(self) -> list[Api]:
        """The watched functions of torch.distributed."""
        return [self.api("Distributed", name) for name in self.files.watched.get("distributed") or ()]

    def _add(self, category: str, name: str, home: Any) -> None:
        prefix = PREFIXES[category]
        owner, _, last = _owner(home, name)
        function = getattr(owner, last, None)
        function = getattr(function, "msprobe_original", function)  # a random function may have a stand-in (see interception.py)
        if function is None:  # this version of torch has no such function
            if (category, name) in self.files.own:
                self._tell_unknown(category, name, home)
            return
        if type(function) in _IN_C:
            api = self.api(prefix, name, _DISPATCH_CODES)
        else:
            api = self.api(prefix, name, _own_codes(function), _parameters(function), None, _defaults(function))
        if prefix == "Tensor" and name.startswith("__"):
            self.by_operator[name] = api
        try:
            if not seen_by_mode(function):
                if last in _REMOVED and (category, name) not in self.files.own:
                    return
                self.unseen.append(Unseen(owner, last, self.api(prefix, name)))
                return
            self.by_function.setdefault(function, api)
            for variant in _dispatched(function):
                self.dispatched[variant] = api
        except TypeError:
            return

    def _tell_unknown(self, category: str, name: str, home: Any) -> None:
        owner, before, last = _owner(home, name)
        try:
            close = nearest(last, tuple(dir(owner))) if owner is not None else None
        except Exception:  # a namespace that cannot be listed
            close = None
        where = getattr(home, "__name__", category)
        hint = f'; did you mean "{before}{close}"?' if close else ""
        logger.warning(f'{SUPPORT} in {self.files.source}: "{category}": torch {torch.__version__} has no "{name}" in {where}{hint}')

    def _tell_unknown_rules(self) -> None:
        """Rules of the user's for what is not watched: told, as far as it can be known."""
        if not self.files.own_rules:
            return
        known = {api.full for api in (*self.by_function.values(), *self.by_operator.values())}
        known |= {f"{PREFIXES[of]}.{name}" for of, names in self.files.watched.items() if of in PREFIXES for name in names}
        prefixes = {*PREFIXES.values(), *self.files.custom}
        for rule in sorted(self.files.own_rules - known):
            prefix = next((p for p in prefixes if rule.startswith(f"{p}.")), None)
            if prefix is None:
                first = rule.partition(".")[0]
                meant = PREFIXES.get(first) or next((p for p in prefixes if p.lower() == first.lower()), None)
                if meant is not None:
                    of = f'the functions of "{meant}" are not meant; did you mean "{meant}"?'
                    logger.warning(f'{IGNORE} in {self.files.source}: "{first}" is a prefix of your own at most, {of}')
            elif prefix in ("Functional", "Tensor", "Torch", "VF", "Distributed"):
                close = nearest(rule, tuple(name for name in known if name.startswith(f"{prefix}.")))
                hint = f'; did you mean "{close}"?' if close else ""
                logger.warning(f'{IGNORE} in {self.files.source}: no API that is watched is called "{rule}"{hint}')

    def operator(self, function: Any) -> Api | None:
        """The Api of a `torch.ops` operator that is watched, with or without its overload; None for other objects."""
        kind = type(function)
        if kind is torch_internals.OpOverload:
            packet = function.overloadpacket
        elif kind is torch_internals.OpOverloadPacket:
            packet = function
        else:
            return None
        namespace, name = torch_internals.operator_name(packet)
        if namespace != "aten":
            return self._of_extension(function, packet, namespace, name)
        if not self.watch_aten or not ("*" in self._aten_names or name in self._aten_names):
            return None
        api = self.aten.get(name)
        if api is None:
            api = self.aten[name] = self.api("Aten", name)
        return api

    def _of_extension(self, function: Any, packet: Any, namespace: str, name: str) -> Api | None:
        """The Api of an operator that an extension registered; kept, since finding it out takes time."""
        full = f"{namespace}.{name}"
        if not any(fnmatchcase(full, pattern) for pattern in self._operator_patterns):
            return None
        writes, left_out = written(packet)
        ignored = self.files.ignored.get(full, left_out)  # a rule of the user's replaces what the schema says
        api = self.by_function[function] = Api(namespace, name, full, ignored=ignored, written=writes)
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
_IN_C = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)
"""What most of the table is: without frames, names of parameters and defaults that Python knows of."""


def _owner(home: Any, name: str) -> tuple[Any, str, str]:
    """Where a dotted name leads to: the object that holds the last part, the parts before it, and the last part."""
    if "." not in name:
        return home, "", name
    *parts, last = name.split(".")
    owner = home
    for part in parts:
        owner = getattr(owner, part, None)
    return owner, "".join(f"{part}." for part in parts), last


def seen_by_mode(function: Any) -> bool:
    """Whether a function mode sees the calls of this function, whatever name it was bound to."""
    kind = type(function)
    if kind is torch_internals.OpOverload or kind is torch_internals.OpOverloadPacket:
        return True
    if kind is BuiltinFunctionType:
        module = function.__module__ or ""
        return module.startswith("torch._C._") or (module == "torch" and function.__self__ is None)
    if kind is MethodDescriptorType or kind is WrapperDescriptorType:
        return bool(function.__objclass__ is torch_internals.TensorBase)
    if kind is not FunctionType:
        return False
    for one in (function, *_dispatched(function), getattr(function, "__wrapped__", None)):
        code = getattr(one, "__code__", None)
        if isinstance(code, CodeType) and any("torch_function" in name for name in code.co_names):
            return True
    return function in torch.overrides.get_testing_overrides() or function in _THIN_FUNCTIONS


_THIN_FUNCTIONS = tuple(getattr(torch.nn.functional, name) for name in _THIN)


def read_operations() -> dict[str, list[str]]:
    """The names in support_wrap_ops.yaml, the packaged one or with the user's over it, by category."""
    return read_operation_files().watched
