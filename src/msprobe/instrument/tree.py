"""The concrete syntax tree of a script, with what the rest of this room asks of it: positions, parents, blocks, logical lines."""

from __future__ import annotations

import ast
import dataclasses
import io
import re
import tokenize
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from msprobe.errors import UsageError
from msprobe.instrument.source import split_lines

Function = cst.FunctionDef
Loop = cst.For | cst.While
Statement = cst.BaseStatement | cst.BaseSmallStatement
_SKIP = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


class Tree:
    """A parsed script. Lines count from 1 and columns from 0, as in messages of Python.

    Raises UsageError where libcst does not know the grammar (Python itself has parsed it before).
    """

    def __init__(self, text: str, shown: str) -> None:
        # Positions are all that is used of the tree, and they do not depend on how lines end.
        text = re.sub(r"\r\n?", "\n", text)
        try:
            wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
        except (cst.ParserSyntaxError, RecursionError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UsageError(f"{shown}: libcst cannot parse this file ({reason}); put the lines in by hand") from None
        self.module = wrapper.module
        self.lines = [line.rstrip("\n") for line in split_lines(text)]
        self._positions = wrapper.resolve(PositionProvider)
        self.nodes = list(walk(self.module))
        """All of them, in the order of the text."""
        self._parents = {child: node for node in self.nodes for child in children(node)}
        self._logical = _logical_lines(text)

    def start(self, node: cst.CSTNode, decorators: bool = True) -> tuple[int, int]:
        """Line and column of the first character; decorators belong to what they decorate, unless told otherwise."""
        if decorators and isinstance(node, cst.FunctionDef | cst.ClassDef) and node.decorators:
            node = node.decorators[0]
        place = self._positions[node].start
        return place.line, place.column

    def end(self, node: cst.CSTNode) -> tuple[int, int]:
        """Line and column behind the last character."""
        place = self._positions[node].end
        return place.line, place.column

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node that holds this one; None for the module."""
        return self._parents.get(node)

    def above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around a node, the nearest first."""
        here = self._parents.get(node)
        while here is not None:
            yield here
            here = self._parents.get(here)

    def code(self, node: cst.CSTNode) -> str:
        """The text of a node, in one line."""
        return " ".join(self.module.code_for_node(node).split())

    def first_line(self, node: cst.CSTNode) -> str:
        """The line that a node begins in, without indentation."""
        return self.lines[self.start(node)[0] - 1].strip()

    def logical(self, line: int) -> tuple[int, int]:
        """First and last line of the logical line (a simple statement, or the head of a compound one) that `line` belongs to."""
        return self._logical.get(line, (line, line))

    def indent(self, line: int) -> str:
        """The white space in front of a line."""
        text = self.lines[line - 1]
        return text[: len(text) - len(text.lstrip(" \t\f"))]

    def function_of(self, node: cst.CSTNode) -> Function | None:
        """The function that a node stands in."""
        return next((one for one in self.above(node) if isinstance(one, cst.FunctionDef)), None)

    def class_of(self, node: cst.CSTNode) -> cst.ClassDef | None:
        """The class that a node stands in."""
        return next((one for one in self.above(node) if isinstance(one, cst.ClassDef)), None)


def walk(node: cst.CSTNode, into: Callable[[cst.CSTNode], bool] = lambda node: True) -> Iterator[cst.CSTNode]:
    """A node and all that is in it, in the order of the text; not what is in nodes that `into` refuses."""
    waiting = [node]
    while waiting:
        here = waiting.pop()
        yield here
        if into(here):
            waiting += reversed(children(here))


_PUNCTUATION = (
    cst.BaseParenthesizableWhitespace,
    cst.TrailingWhitespace,
    cst.EmptyLine,
    cst.Newline,
    cst.Comment,
    cst.Comma,
    cst.Semicolon,
    cst.Colon,
    cst.Dot,
    cst.AssignEqual,
    cst.LeftParen,
    cst.RightParen,
    cst.LeftSquareBracket,
    cst.RightSquareBracket,
)
_FIRST: dict[type[cst.CSTNode], tuple[str, ...]] = {
    cst.FunctionDef: ("decorators", "name", "params", "returns"),
    cst.ClassDef: ("decorators", "name", "bases", "keywords"),
    cst.IfExp: ("body", "test"),
}
"""Fields that stand before the others in the text, where that is not their order in libcst."""


@lru_cache(maxsize=1 << 20)
def children(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """The nodes right inside a node, without white space and punctuation. libcst itself finds them by visiting all, which takes long."""
    found: list[cst.CSTNode] = []
    for name in _fields(type(node)):
        value = getattr(node, name)
        for one in value if isinstance(value, tuple | list) else (value,):
            if isinstance(one, cst.CSTNode) and not isinstance(one, _PUNCTUATION):
                found.append(one)
    return tuple(found)


@cache
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    first = _FIRST.get(kind, ())
    names = [field.name for field in dataclasses.fields(kind) if "whitespace" not in field.name and field.name not in ("lpar", "rpar")]
    return (*first, *(name for name in names if name not in first))


def is_no_definition(node: cst.CSTNode) -> bool:
    """For `walk`: what is in a function or class inside is run at another time."""
    return not isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Lambda)


def statements(block: cst.BaseSuite | cst.Module) -> Sequence[Statement]:
    """The statements of a block, in order; several on one line are several."""
    found: list[Statement] = []
    for one in block.body:
        if isinstance(one, cst.SimpleStatementLine):
            found += one.body
        else:
            found.append(one)
    return found


def dotted(node: cst.CSTNode | None) -> str | None:
    """`a`, `a.b.c`, `self.nets[0]`, `nets["a"]` as text; None for anything that is computed."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = dotted(node.value)
        return None if base is None else f"{base}.{node.attr.value}"
    if isinstance(node, cst.Subscript) and len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
        base, index = dotted(node.value), node.slice[0].slice.value
        if base is not None and isinstance(index, cst.Integer | cst.SimpleString):
            return f"{base}[{index.value}]"
    return None


def names_in(expression: str) -> list[str]:
    """The names that must have a value for an expression to have one; none for what binds names itself (a comprehension, a lambda)."""
    nodes = list(ast.walk(ast.parse(expression, mode="eval")))
    if any(isinstance(node, ast.Lambda | ast.comprehension | ast.NamedExpr) for node in nodes):
        return []
    return [node.id for node in nodes if isinstance(node, ast.Name)]


def root_of(expression: str) -> str:
    """The name that an expression begins with: `self` of `self.nets[0]`."""
    found = re.match(r"\w+", expression)
    return found.group() if found else expression


def assigned(node: cst.CSTNode) -> Iterator[str]:
    """Names, and dotted names, that a node binds, functions and classes inside it left out."""
    for one in walk(node, is_no_definition):
        targets: list[cst.BaseExpression] = []
        if isinstance(one, cst.Assign):
            targets = [target.target for target in one.targets]
        elif isinstance(one, cst.AnnAssign | cst.AugAssign | cst.NamedExpr | cst.For):
            targets = [one.target]
        elif isinstance(one, cst.WithItem) and one.asname is not None:
            targets = [one.asname.name]
        elif isinstance(one, cst.FunctionDef | cst.ClassDef):
            yield one.name.value
        elif isinstance(one, cst.Import | cst.ImportFrom):
            yield from _imported(one)
        for target in targets:
            yield from names_in_target(target)


def names_in_target(target: cst.BaseExpression) -> Iterator[str]:
    """The names in the left side of an assignment."""
    if isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            yield from names_in_target(element.value)
    else:
        name = dotted(target)
        if name is not None:
            yield name


def _imported(node: cst.Import | cst.ImportFrom) -> Iterator[str]:
    if isinstance(node.names, cst.ImportStar):
        return
    for alias in node.names:
        name = dotted(alias.asname.name) if alias.asname is not None else dotted(alias.name)
        if name is not None:
            yield name.partition(".")[0]


def _logical_lines(text: str) -> dict[int, tuple[int, int]]:
    lines: dict[int, tuple[int, int]] = {}
    first = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type in _SKIP:
                continue
            first = first or token.start[0]
            if token.type == tokenize.NEWLINE:
                for line in range(first, token.start[0] + 1):
                    lines[line] = (first, token.start[0])
                first = 0
    except (tokenize.TokenError, SyntaxError):
        pass
    return lines
