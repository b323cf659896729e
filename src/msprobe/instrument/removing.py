"""Takes our statements out of a script where somebody has edited them, or has taken the marks off."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from msprobe.instrument import marks, reflowed
from msprobe.instrument.source import split_lines
from msprobe.instrument.undo import inside_strings, undo

RESULT = r"msprobe_result\w*"
"""The name that keeps the value of a `return` until the step is ended, as a pattern."""

_MARK = re.compile(r"[ \t]*# \+msprobe [0-9a-f]{4}[ \t]*(?=[\r\n]*\Z)")
_HEAD = re.compile(r"from msprobe\.|\w+ = \w+\(config_path=")


@dataclass(frozen=True)
class Names:
    """What the lines at the top of an enabled script are called there; None: there is no such line.

    Attributes:
        debugger: the debugger.
        imported: name in msprobe -> name in the script.
    """

    debugger: str | None
    imported: dict[str, str]

    def __iter__(self) -> Iterator[str]:
        yield from self.imported.values()
        if self.debugger is not None:
            yield self.debugger


def heads(text: str) -> list[reflowed.Piece]:
    """The lines at the top: the imports and the debugger, marked or not."""
    return [piece for piece in _pieces(text) if not piece.indent and _HEAD.match(piece.code)]


def _pieces(text: str) -> list[reflowed.Piece]:
    """The logical lines; where the text is no Python at the moment, its lines."""
    found = reflowed.pieces(text)
    for number, line in enumerate(split_lines(text) if not found else (), 1):
        code = line.strip()
        found.append(reflowed.Piece(number, number, line[: len(line) - len(line.lstrip())], code.partition("#")[0].strip(), ""))
    return found


def names_of(text: str) -> Names:
    """The names that the lines at the top bind."""
    imported: dict[str, str] = {}
    debugger = None
    for piece in heads(text):
        try:
            node = ast.parse(piece.code).body[0]
        except SyntaxError:
            continue
        if isinstance(node, ast.ImportFrom):
            imported |= {alias.name: alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call):
            made = ast.unparse(node.value.func)
            debugger = node.targets[0].id if made in imported.values() else debugger
    return Names(debugger, imported)


def uses(text: str, names: Names) -> list[int]:
    """Lines that use one of the names and would not find it: nothing in the text binds it."""
    found: list[int] = []
    every = _pieces(text)
    for name in names:
        bound = re.compile(rf"(?:from\s.*\simport|import)\s.*\b{name}\b|{name}\s*(?::[^=]+)?=(?!=)|(?:class|def)\s+{name}\b")
        word = re.compile(rf"(?<![\w.]){name}\b(?!\s*=(?!=))")
        if not any(bound.match(piece.code) for piece in every):
            found += [piece.first for piece in every if word.search(_without_strings(piece.code))]
    return sorted(set(found))


def _without_strings(code: str) -> str:
    return re.sub(r"""(['"])(?:\\.|(?!\1).)*\1""", "''", code)


def without_ours(text: str, names: Names) -> str:
    """The text without our statements, edited or not, marked or not; lines of the user's that need them stay.

    A block of the user's that holds nothing else gets a `pass`.
    """
    inside = inside_strings(text)
    whole = {number for number, line in enumerate(split_lines(text), 1) if number not in inside and _is_statement(line)}
    done = undo(text, keep=frozenset(whole))
    lines = split_lines(done.text)
    tell = {index for index, number in enumerate(done.origin) if number in done.edited and marks.told(lines[index]) is not None}
    numbers = {index: place for place, index in enumerate(index for index in range(len(lines)) if index not in tell)}
    bare = "".join(lines[index] for index in numbers)
    marked = {place for index, place in numbers.items() if done.origin[index] in {*whole, *done.edited}}
    try:
        tree = ast.parse(bare)
    except (SyntaxError, ValueError, RecursionError):
        return "".join(line for index, line in enumerate(split_lines(bare)) if index not in marked)
    return _Removal(bare, marked, names).without(tree)


def _is_statement(line: str) -> bool:
    return marks.ours(line) and not line.lstrip().startswith("#")


class _Removal:
    """Lines are counted from 0 here."""

    def __init__(self, text: str, marked: set[int], names: Names) -> None:
        self._lines = split_lines(text)
        self._marked = marked
        self._names = names
        self._cuts: list[tuple[tuple[int, int], tuple[int, int], str]] = []

    def without(self, tree: ast.Module) -> str:
        self._block(tree.body, needed=False)
        lines: list[str] = list(self._lines)
        for (line, column), (last, end), new in sorted(self._cuts, reverse=True):
            rest = lines[last][end:]
            lines[line : last + 1] = [lines[line][:column] + new + rest, *[""] * (last - line)]
        for index in self._marked:
            lines[index] = _MARK.sub("", lines[index])
        return "".join(lines)

    def _block(self, block: list[ast.stmt], needed: bool) -> None:
        """Cuts what is ours out of a block; `needed`: something has to stay in it."""
        run: list[ast.stmt] = []
        before: ast.stmt | None = None
        whole = all(self._is_ours(one) for one in block)
        for one in block:
            if self._is_ours(one):
                run.append(one)
                continue
            self._cut(run, before, one)
            run, before = [], one
            self._inside(one)
        if run and whole and needed:
            self._cut(run[:-1], None, run[-1])
            self._cuts.append((self._start(run[-1]), self._end(run[-1]), "pass"))
        else:
            self._cut(run, before, None)

    def _inside(self, one: ast.stmt) -> None:
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) and re.fullmatch(RESULT, one.targets[0].id):
            line, column = self._start(one)
            found = re.compile(r"\w+\s*=").match(self._lines[line], column)
            if found is not None:
                self._cuts.append(((line, column), (line, found.end()), "return"))
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(one, name, [])
            if isinstance(inner, list) and inner:
                self._block(inner, needed=True)
        for part in (*getattr(one, "handlers", []), *getattr(one, "cases", [])):
            self._block(part.body, needed=True)

    def _cut(self, run: list[ast.stmt], before: ast.stmt | None, behind: ast.stmt | None) -> None:
        """Statements that follow each other: the lines that are theirs alone, else what parts them from their neighbour on the line."""
        while run:
            here = [run[0]]
            while len(here) < len(run) and self._start(run[len(here)])[0] == self._end(here[-1])[0]:
                here.append(run[len(here)])
            run = run[len(here) :]
            start, end = self._start(here[0]), self._end(here[-1])
            after = run[0] if run else behind
            if after is not None and self._start(after)[0] == end[0]:
                self._cuts.append((start, self._start(after), ""))
            elif self._lines[start[0]][: start[1]].strip(" \t\f"):
                alone = before is None or self._end(before)[0] != start[0]
                self._cuts.append((start if alone or before is None else self._end(before), end, ""))
            else:
                self._cuts.append(((start[0], 0), (end[0], len(self._lines[end[0]])), ""))

    def _is_ours(self, one: ast.stmt) -> bool:
        if self._has_shape(one):
            return True
        if isinstance(one, ast.If) and not one.orelse and ast.unparse(one.test).endswith(".sync_gradients"):
            return len(one.body) == 1 and self._has_shape(one.body[0]) and (one.end_lineno or one.lineno) - 1 in self._marked
        return False

    def _has_shape(self, one: ast.stmt) -> bool:
        """Whether a statement is one of those that `enable` puts in."""
        debugger, imported = self._names.debugger, self._names.imported
        if isinstance(one, ast.ImportFrom):
            return (one.module or "").startswith("msprobe.") and (one.end_lineno or one.lineno) - 1 in self._marked
        if isinstance(one, ast.Return):
            return isinstance(one.value, ast.Name) and re.fullmatch(RESULT, one.value.id) is not None
        if not isinstance(one, ast.Expr | ast.Assign) or not isinstance(one.value, ast.Call):
            return False
        call = one.value
        if isinstance(one, ast.Assign):
            return ast.unparse(one.targets[0]) == debugger and ast.unparse(call.func) == imported.get("PrecisionDebugger")
        if isinstance(call.func, ast.Name):
            return call.func.id == imported.get("seed_all")
        if not isinstance(call.func, ast.Attribute):
            return False
        if isinstance(call.func.value, ast.Name) and call.func.value.id == debugger:
            return call.func.attr in ("start", "stop", "step")
        given = call.args[0] if call.args else None
        return isinstance(given, ast.Call) and "MsprobeCallback" in imported and ast.unparse(given.func) == imported["MsprobeCallback"]

    def _start(self, one: ast.stmt) -> tuple[int, int]:
        return self._place(one.lineno, one.col_offset)

    def _end(self, one: ast.stmt) -> tuple[int, int]:
        return self._place(one.end_lineno or one.lineno, one.end_col_offset or 0)

    def _place(self, line: int, column: int) -> tuple[int, int]:
        """`ast` counts bytes of UTF-8."""
        return line - 1, len(self._lines[line - 1].encode("utf-8", "surrogatepass")[:column].decode("utf-8", "surrogatepass"))
