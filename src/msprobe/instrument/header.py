"""The lines at the top of a script: where they go and what they are called there."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import libcst as cst

from msprobe.instrument.edits import Insert
from msprobe.instrument.roles import Roles
from msprobe.instrument.tree import Tree, dotted, walk

_HARMLESS = frozenset(["sys", "os", "warnings", "logging", "matplotlib", "pathlib"])
"""Calls of these between imports do not end the imports: `sys.path.append(...)`, `warnings.filterwarnings(...)`."""

EXPLAINED = '# The lines marked "+msprobe" were put in by `msprobe enable`; `msprobe disable` takes them out.'


@dataclass(frozen=True)
class Names:
    """Names that the new lines use, none of which the script has."""

    debugger: str
    seed_all: str
    precision_debugger: str
    callback: str
    result: str


def names_for(tree: Tree) -> Names:
    """The usual names, or ones with `msprobe_` in front where the script has the usual one for something else."""
    taken = {node.value for node in tree.nodes if isinstance(node, cst.Name)}

    def free(name: str, *others: str) -> str:
        names = itertools.chain((name, *others), (f"{others[-1] if others else name}_{number}" for number in itertools.count(2)))
        return next(one for one in names if one not in taken)

    return Names(
        debugger=free("debugger", "msprobe_debugger"),
        seed_all=free("seed_all", "msprobe_seed_all"),
        precision_debugger=free("PrecisionDebugger", "MsprobeDebugger"),
        callback=free("MsprobeCallback", "MsprobeRecording"),
        result=free("msprobe_result"),
    )


def header(
    tree: Tree, roles: Roles, names: Names, config_path: str, *, seed: bool, integration: str | None, encoding: str = "ascii"
) -> Insert:
    """The import, `seed_all()` and the debugger, behind the imports. Where `encoding`, the file's, cannot hold the path, it is escaped."""
    imported = [_as("PrecisionDebugger", names.precision_debugger), *([_as("seed_all", names.seed_all)] if seed else [])]
    lines = [EXPLAINED, f"from msprobe.pytorch import {', '.join(imported)}"]
    if integration is not None:
        lines.append(f"from msprobe.integrations.{integration} import {_as('MsprobeCallback', names.callback)}")
    if seed:
        lines.append(f"{names.seed_all}()")
    quoted = _quoted(config_path, encoding)
    if '"' not in quoted:
        quoted = f'"{quoted[1:-1]}"'
    lines.append(f"{names.debugger} = {names.precision_debugger}(config_path={quoted})")
    return Insert(_behind_imports(tree, roles), "", tuple(lines))


def _quoted(path: str, encoding: str) -> str:
    """The path as a literal of Python, in its own characters where the file can hold them."""
    quoted = repr(path)  # escapes what cannot be seen, such as marks that turn the direction of writing
    try:
        quoted.encode(encoding)
    except UnicodeError:
        return ascii(path)
    return quoted


def _as(name: str, here: str) -> str:
    return name if name == here else f"{name} as {here}"


def _behind_imports(tree: Tree, roles: Roles) -> int:
    """The line behind which the lines go."""
    body = tree.module.body
    found: int | None = None
    for number, one in enumerate(body):
        imports = any(isinstance(node, cst.Import | cst.ImportFrom) for node in walk(one))
        if (imports and isinstance(one, cst.SimpleStatementLine | cst.If | cst.Try) and not _runs_a_program(one)) or (
            number == 0 and _is_docstring(one)
        ):
            found = tree.logical(tree.end(one)[0])[1]
        elif not isinstance(one, cst.SimpleStatementLine) or not _is_harmless(one, roles):
            break
    if found is not None:
        return found
    return tree.start(body[0])[0] - 1 if body else 0


def _is_docstring(node: cst.CSTNode) -> bool:
    return (
        isinstance(node, cst.SimpleStatementLine)
        and isinstance(node.body[0], cst.Expr)
        and isinstance(node.body[0].value, cst.SimpleString | cst.ConcatenatedString)
    )


def _is_harmless(node: cst.SimpleStatementLine, roles: Roles) -> bool:
    calls = [one for one in walk(node) if isinstance(one, cst.Call)]
    return all(roles.full(dotted(call.func)).partition(".")[0] in _HARMLESS for call in calls)


def _runs_a_program(node: cst.CSTNode) -> bool:
    """`if __name__ == "__main__":` with imports in it, or a block that does more than import."""
    if isinstance(node, cst.If) and any(isinstance(one, cst.Name) and one.value == "__name__" for one in walk(node.test)):
        return True
    kinds = cst.For | cst.While if isinstance(node, cst.Try) else cst.For | cst.While | cst.FunctionDef | cst.ClassDef
    return isinstance(node, cst.If | cst.Try) and any(isinstance(one, kinds) for one in walk(node))
