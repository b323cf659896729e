"""What the names and expressions of a source text stand for: what is known when MindSpore compiles, and values that are not."""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

from mindspore import nn

from msprobe.contain import let_through

MOST_TURNS = 512
"""Longer loops and lists are not followed."""
SILENT = frozenset(
    ("shape", "rank", "size", "len", "isinstance", "print", "type", "range", "dtype", "stop_gradient", "zeros_like", "ones_like", "Shape",
     "Rank", "DType", "Size", "TensorShape", "DynamicShape", "ndim", "itemsize", "nbytes", "strides", "name")
)  # fmt: skip
"""Functions, primitives and attributes through which no gradient goes."""


class Unreadable(Exception):
    """Source text that is not there, or does what is not followed here."""


class Use(NamedTuple):
    """A value goes into something.

    Attributes:
        cell: None for a function.
        place: position or keyword of the argument.
        terms: how often the gradient is contributed to.
        alone: the cell is given nothing else.
    """

    cell: Any
    place: Any
    terms: int
    alone: bool


class Value:
    """A tensor, or whatever else is not known before the graph runs; `after`: the calls that it comes from."""

    __slots__ = ("after", "uses")

    def __init__(self, after: frozenset[int] = frozenset()) -> None:
        self.uses: list[Use] = []
        self.after = after

    @property
    def terms(self) -> int:
        """How often its gradient is contributed to."""
        return sum(use.terms for use in self.uses)


class Known:
    """What is known when MindSpore compiles: a cell, a primitive, a number."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


_texts: dict[Any, ast.FunctionDef] = {}


def text_of(function: Any) -> ast.FunctionDef:
    """The source text of a function; raises `Unreadable`."""
    code = function.__code__
    if code not in _texts:
        try:
            (text,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        except (OSError, SyntaxError, ValueError, TypeError) as error:
            raise Unreadable(repr(error)) from None
        if not isinstance(text, ast.FunctionDef):
            raise Unreadable("no function")
        _texts[code] = text
    return _texts[code]


def values_in(item: Any) -> list[Value]:
    """The values in an item."""
    if isinstance(item, Value):
        return [item]
    return [value for one in item for value in values_in(one)] if isinstance(item, tuple) else []


def items_of(item: Any) -> list[Any] | None:
    """What is iterated over, where that is known."""
    if isinstance(item, Known):
        value = item.value
        if isinstance(value, list | tuple | range | nn.CellList | nn.SequentialCell) and len(value) <= MOST_TURNS:
            return [one if isinstance(one, Known | Value) else Known(one) for one in value]
        return None
    return list(item) if isinstance(item, tuple) else None


def worked_out_call(function: Any, items: list[Any]) -> Any:
    """What len, range, enumerate and so on give of what is known."""
    if function is len:
        inside = items_of(items[0])
        return Known(len(inside)) if inside is not None else None
    if function in (enumerate, zip, reversed, list, tuple):
        lists = [items_of(item) for item in items]
        if any(one is None for one in lists):
            return None
        if function is enumerate:
            return tuple((Known(number), one) for number, one in enumerate(lists[0] or ()))
        return tuple(zip(*lists, strict=False)) if function is zip else tuple(function(lists[0] or ()))
    if all(isinstance(item, Known) for item in items):
        try:
            return Known(function(*(item.value for item in items)))
        except Exception as error:
            let_through(error)
    return None


def worked_out_test(node: ast.expr, names: dict[str, Any]) -> Known | None:
    """A comparison of attributes of the cell with constants."""
    known = {name: item.value for name, item in names.items() if isinstance(item, Known)}
    if any((isinstance(one, ast.Name) and one.id not in known) or isinstance(one, ast.Call) for one in ast.walk(node)):
        return None
    try:
        value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}}, known)  # names, attributes, constants; no calls
    except Exception as error:
        let_through(error)
        return None
    return Known(value) if isinstance(value, bool | int | None) else None


def open_names(code: types.CodeType) -> list[str]:
    """The names of `*args` and `**kwargs`."""
    at = code.co_argcount + code.co_kwonlyargcount
    both = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return list(code.co_varnames[at : at + both])


def elements(held: Any) -> Iterable[Any]:
    """What lies in a container."""
    return held.values() if isinstance(held, dict | nn.CellDict) else held
