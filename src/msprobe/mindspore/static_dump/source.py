"""Follows the source text of one `construct`: how often it calls which cells, and how often each of its values is used.

Every path through the text is followed by itself; a test that the cell's attributes answer has one outcome. What cannot be followed raises
`Unreadable`, or is taken for the worse: more calls, more uses.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import ast
import inspect
import operator
import types
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from mindspore import Parameter, Tensor, nn
from mindspore.ops.primitive import Primitive

from msprobe.mindspore.static_dump.source_items import (
    MOST_TURNS,
    SILENT,
    Known,
    Unreadable,
    Use,
    Value,
    elements,
    items_of,
    open_names,
    text_of,
    values_in,
    worked_out_call,
    worked_out_test,
)

MANY = 3
"""As many terms make a sum whose bits depend on its order."""
_MOST_PATHS = 128
_DEEPEST = 6
_STAR = "*"
"""The place of arguments of which it is not known how many they are."""
_SAVING = "msprobe.mindspore.static_save.calls"
_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


class Path(NamedTuple):
    """One path through the text.

    Attributes:
        arguments: the values of the arguments, by position (and those with a name by it, too).
        values: all of them.
        calls: cell, number of the call, calls that its one argument comes from (None: it has several).
        uncertain: ids of the cells in loops of unknown length.
        result: what is returned.
    """

    arguments: dict[Any, Value]
    values: list[Value]
    calls: list[tuple[Any, int, frozenset[int] | None]]
    uncertain: set[int]
    result: Any


def paths(cell: Any, terms: Callable[[Any, Any], int]) -> list[Path]:
    """All paths through a cell's construct.

    Args:
        cell: whose attributes are looked at.
        terms: of a cell and an argument's place: how often its gradient is contributed to from inside.

    Raises:
        Unreadable: it cannot be said.
    """
    found: list[Path] = []
    choices: list[int] = []
    while True:
        reader = _Reader(cell, terms, choices)
        found.append(reader.read())
        while choices and choices[-1] == 1:
            choices.pop()
        if not choices:
            return found
        if len(found) > _MOST_PATHS:
            raise Unreadable("too many paths")
        choices[-1] = 1


class _Return(Exception):
    pass


class _Reader:
    """Walks along one path."""

    def __init__(self, cell: Any, terms: Callable[[Any, Any], int], choices: list[int]) -> None:
        self._cell = cell
        self._terms = terms
        self._choices = choices
        self._at = self._turns = self._depth = 0
        self._values: list[Value] = []
        self._calls: list[tuple[Any, int, frozenset[int] | None]] = []
        self._uncertain: set[int] = set()
        self._function: Any = None
        self._names: dict[str, Any] = {}

    def read(self) -> Path:
        function = getattr(type(self._cell).construct, "__wrapped__", type(self._cell).construct)
        given: dict[Any, Value] = {}
        code = function.__code__
        names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        items: dict[str, Any] = {name: self._value() for name in open_names(code)}
        for position, name in enumerate(names):
            items[name] = given[name] = self._value()
            if position < code.co_argcount - 1:
                given[position] = given[name]
        result = self._run(function, {code.co_varnames[0]: Known(self._cell), **items})
        return Path(given, self._values, self._calls, self._uncertain, result)

    def _value(self, *sources: Any) -> Value:
        value = Value(frozenset().union(*(one.after for source in sources for one in values_in(source))))
        self._values.append(value)
        return value

    def _choose(self) -> bool:
        if self._at == len(self._choices):
            self._choices.append(0)
        self._at += 1
        return self._choices[self._at - 1] == 0

    def _run(self, function: Any, names: dict[str, Any]) -> Any:
        if self._depth == _DEEPEST:
            raise Unreadable("too deep")
        self._depth += 1
        outer = self._function, self._names
        self._function, self._names = function, names
        arguments = text_of(function).args
        if arguments.vararg is not None:
            names.setdefault(arguments.vararg.arg, ())
        if arguments.kwarg is not None and arguments.kwarg.arg not in names:
            raise Unreadable("**")
        try:
            self._block(text_of(function).body)
            result: Any = Known(None)
        except _Return as done:
            result = done.args[0]
        self._function, self._names = outer
        self._depth -= 1
        return result

    def _block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self._turns += 1
            if self._turns > MOST_TURNS:
                raise Unreadable("too long")
            match statement:
                case ast.Return():
                    raise _Return(self._item(statement.value) if statement.value is not None else Known(None))
                case ast.Assign():
                    item = self._item(statement.value)
                    for target in statement.targets:
                        self._bind(target, item)
                case ast.AnnAssign():
                    if statement.value is not None:
                        self._bind(statement.target, self._item(statement.value))
                case ast.AugAssign():
                    self._bind(statement.target, self._arithmetic(statement.op, self._item(statement.target), self._item(statement.value)))
                case ast.Expr():
                    self._item(statement.value)
                case ast.If():
                    self._block(statement.body if self._test(statement.test) else statement.orelse)
                case ast.For():
                    self._for(statement)
                case ast.While():
                    self._while(statement)
                case ast.Pass() | ast.Assert() | ast.Break() | ast.Continue():
                    pass
                case ast.Raise():
                    raise _Return(Known(None))
                case _:
                    raise Unreadable(type(statement).__name__)

    def _while(self, statement: ast.While) -> None:
        for _ in range(MOST_TURNS):
            test = self._item(statement.test)
            if not isinstance(test, Known):
                self._twice(statement.body)
                return
            if not test.value:
                return
            self._block(statement.body)
        raise Unreadable("too long")

    def _for(self, statement: ast.For) -> None:
        over = self._item(statement.iter)
        items = items_of(over)
        if items is None:
            self._bind(statement.target, self._used(over))
            self._twice(statement.body)
            return
        for item in items:
            self._bind(statement.target, item)
            self._block(statement.body)

    def _twice(self, body: list[ast.stmt]) -> None:
        """A loop of unknown length: two turns show what is used by the next one."""
        first = len(self._calls)
        self._block(body)
        self._block(body)
        self._uncertain |= {id(cell) for cell, _, _ in self._calls[first:]}

    def _bind(self, target: ast.expr, item: Any) -> None:
        match target:
            case ast.Name():
                self._names[target.id] = item
            case ast.Tuple() | ast.List():
                items = items_of(item)
                if items is None or len(items) != len(target.elts):
                    items = [self._value(item) for _ in target.elts]
                    self._consume(item, None, None, 1, True)
                for one, part in zip(target.elts, items, strict=True):
                    self._bind(one, part)
            case ast.Subscript():
                self._consume(item, None, None, MANY, False)
                self._consume(self._item(target.value), None, None, MANY, False)
            case _:
                raise Unreadable("an attribute is set")

    def _test(self, test: ast.expr) -> bool:
        item = self._item(test)
        return bool(item.value) if isinstance(item, Known) and isinstance(item.value, bool | int | str | None) else self._choose()

    def _consume(self, item: Any, cell: Any, place: Any, terms: int, alone: bool) -> None:
        for value in values_in(item):
            value.uses.append(Use(cell, place, terms, alone))

    def _used(self, *items: Any) -> Value:
        """A new value, made of others by something that contributes once to the gradient of each."""
        for item in items:
            self._consume(item, None, None, 1, False)
        return self._value(*items)

    def _arithmetic(self, kind: ast.operator, left: Any, right: Any) -> Any:
        sign = _ARITHMETIC.get(type(kind))
        if sign is not None and isinstance(left, Known) and isinstance(right, Known) and type(left.value) is type(right.value) is int:
            return Known(sign(left.value, right.value))
        return self._used(left, right)

    def _item(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                return Known(node.value)
            case ast.Name():
                return self._name(node.id)
            case ast.Attribute():
                return self._attribute(self._item(node.value), node.attr)
            case ast.Tuple() | ast.List():
                if any(isinstance(one, ast.Starred) for one in node.elts):
                    raise Unreadable("*")
                return tuple(self._item(one) for one in node.elts)
            case ast.Dict():
                return tuple(self._item(one) for one in node.values)
            case ast.Call():
                return self._call(node)
            case ast.Subscript():
                return self._subscript(self._item(node.value), self._item(node.slice))
            case ast.Slice():
                return Known(None)
            case ast.BoolOp() | ast.Compare():
                for one in ast.iter_child_nodes(node):
                    if isinstance(one, ast.expr):
                        self._item(one)
                return worked_out_test(node, self._names) or self._value()
            case ast.UnaryOp():
                item = self._item(node.operand)
                if isinstance(node.op, ast.Not):
                    return Known(not item.value) if isinstance(item, Known) else self._value()
                if isinstance(node.op, ast.USub) and isinstance(item, Known) and type(item.value) is int:
                    return Known(-item.value)
                return self._used(item)
            case ast.BinOp():
                return self._arithmetic(node.op, self._item(node.left), self._item(node.right))
            case ast.IfExp():
                return self._item(node.body if self._test(node.test) else node.orelse)
            case ast.JoinedStr():
                return Known("")
        raise Unreadable(type(node).__name__)

    def _name(self, name: str) -> Any:
        if name in self._names:
            return self._names[name]
        function = self._function
        for free, held in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if free == name:
                return Known(held.cell_contents)
        if name in function.__globals__:
            return Known(function.__globals__[name])
        builtins = function.__builtins__
        if name in builtins:
            return Known(builtins[name])
        raise Unreadable(name)

    def _attribute(self, item: Any, name: str) -> Any:
        if not isinstance(item, Known):
            return Known(None) if name in SILENT else self._used(item)
        return self._attribute_of(getattr(item.value, name))

    def _attribute_of(self, value: Any) -> Any:
        return self._value() if isinstance(value, Tensor | Parameter) else Known(value)

    def _subscript(self, item: Any, index: Any) -> Any:
        items = items_of(item)
        if items is not None and isinstance(index, Known) and type(index.value) is int:
            return items[index.value]
        held = item.value if isinstance(item, Known) else None
        if isinstance(held, dict | nn.CellDict) and isinstance(index, Known) and index.value in held:
            return self._attribute_of(held[index.value])
        if isinstance(held, dict | nn.CellDict | nn.CellList | list | tuple) and any(isinstance(one, nn.Cell) for one in elements(held)):
            raise Unreadable("which cell?")
        if items is not None and any(isinstance(one, Known) and isinstance(one.value, nn.Cell) for one in items):
            raise Unreadable("which cell?")
        return self._used(item) if not isinstance(item, Known) else self._value()

    def _call(self, node: ast.Call) -> Any:
        function = self._item(node.func)
        given: list[tuple[Any, Any]] = [
            (_STAR if isinstance(one, ast.Starred) else place, self._given(one)) for place, one in enumerate(node.args)
        ]
        given += [(one.arg or _STAR, self._given(one)) for one in node.keywords]
        if isinstance(function, Known):
            return self._call_known(function.value, given)
        if isinstance(function, tuple):
            raise Unreadable("a call of several")
        if not isinstance(node.func, ast.Attribute):
            raise Unreadable("a call of what is not known")
        return self._of_function(given, MANY)  # a method of a tensor, after the use that _attribute has noted

    def _given(self, node: ast.expr | ast.keyword) -> Any:
        item = self._item(node.value if isinstance(node, ast.Starred | ast.keyword) else node)
        if (isinstance(node, ast.Starred) or (isinstance(node, ast.keyword) and node.arg is None)) and not isinstance(item, Value):
            raise Unreadable("*")
        return item

    def _call_known(self, function: Any, given: list[tuple[Any, Any]]) -> Any:
        if isinstance(function, nn.Cell):
            return self._of_cell(function, given)
        if getattr(function, "__name__", type(function).__name__) in SILENT:
            found = worked_out_call(function, [item for _, item in given])
            return found if found is not None else self._value()
        if isinstance(function, Primitive):
            return Known(None) if type(function).__name__ in SILENT else self._of_function(given, 1)
        inner = getattr(function, "__func__", function)
        owner = getattr(function, "__self__", None)
        if isinstance(owner, dict | nn.CellDict) and not given and function.__name__ in ("keys", "values", "items"):
            return tuple(tuple(map(self._attribute_of, one)) if isinstance(one, tuple) else self._attribute_of(one) for one in function())
        if getattr(inner, "__module__", "") == _SAVING:
            return self._of_function([one for one in given if one[0] in (2, "data")], 1) if inner.__name__ == "save_grad" else Known(None)
        if isinstance(inner, types.FunctionType) and (owner is self._cell or not inner.__module__.startswith("mindspore")):
            if any(place == _STAR for place, _ in given):
                raise Unreadable("*")
            code = inner.__code__
            names: dict[str, Any] = {} if owner is None else {code.co_varnames[0]: Known(owner)}
            after = code.co_varnames[len(names) : code.co_argcount]
            names.update((place if isinstance(place, str) else after[place], item) for place, item in given)
            for name, parameter in inspect.signature(inner).parameters.items():
                if name not in names and parameter.default is not parameter.empty:
                    names[name] = Known(parameter.default)
            return self._run(inner, names)
        if function in (enumerate, zip, list, tuple, reversed):
            found = worked_out_call(function, [item for _, item in given])
            if found is not None:
                return found
        return self._of_function(given, MANY)

    def _of_function(self, given: list[tuple[Any, Any]], terms: int) -> Value:
        for place, item in given:
            if any(isinstance(one, Known) and isinstance(one.value, nn.Cell) for one in (item if isinstance(item, tuple) else (item,))):
                raise Unreadable("a cell is handed on")
            self._consume(item, None, place, terms, False)
        return self._value(*(item for _, item in given))

    def _of_cell(self, cell: Any, given: list[tuple[Any, Any]]) -> Value:
        tensors = [(place, item) for place, item in given if values_in(item)]
        alone = len(tensors) == 1 and isinstance(tensors[0][1], Value) and tensors[0][0] != _STAR
        for place, item in tensors:
            terms = self._terms(cell, place) if isinstance(item, Value) else MANY
            self._consume(item, cell, place, terms, alone)
        number = len(self._calls)
        self._calls.append((cell, number, tensors[0][1].after if alone else None))
        result = self._value(*(item for _, item in given))
        result.after |= {number}
        return result


def counted(path: Path) -> Counter[int]:
    """How often each cell is called."""
    return Counter(id(cell) for cell, _, _ in path.calls)
