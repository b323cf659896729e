"""A method of torch that is watched while its object stays: only the code that it runs is exchanged, and put back.

The code that is put in is made from the function's own source: the same statements in the same lines, and around them a word to us when a
call begins and when it ends. So a call has as many frames as before: a traceback shows the lines that it always shows, and a warning with a
`stacklevel` is given where it always is. Where the source is not to be had (or is another one), the function is called from code of ours.

Small and without torch, for it is there before anything is recorded. `pytorch/dump/api_dump/exchanged.py` does the like for the functions
of a window.
"""

from __future__ import annotations
import __future__

import ast
import dis
import inspect
import linecache
import tokenize
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, TypeAlias

Leave: TypeAlias = Callable[[bool], None]
"""Is told when a call ends, and whether it came to its end without an exception."""

Enter: TypeAlias = Callable[..., "Leave | None"]
"""Is given the arguments of a call that begins."""

# The import is traced by torch.compile as what it is; the names must be none that a closure or the function itself holds.
_AROUND = """
from {module} import entries as msprobe_entries
msprobe_leave = msprobe_entries[{number}]({arguments})
if msprobe_leave is None:
    pass
else:
    msprobe_done = True
    try:
        pass
    except BaseException:
        msprobe_done = False
        raise
    finally:
        msprobe_leave(msprobe_done)
"""
_CALLING = """
def outer({free}):
    def {name}({parameters}):
        if 0:
            ({free})
        from {module} import originals as msprobe_originals
        return msprobe_originals[{number}]({arguments})
    return {name}
"""
_OUTER = "outer.<locals>."
_FUTURE = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)

_CALLS = {"LOAD_METHOD", "LOAD_ATTR", "PUSH_NULL", "PRECALL", "CALL", "CALL_METHOD", "CALL_FUNCTION", "EXTENDED_ARG"}

entries: list[Enter] = []
"""By the number that stands in the exchanged code."""
originals: list[Callable[..., Any]] = []
"""The same for functions whose source is not to be had: calls the original, with our words around it."""


class Exchange:
    """One function, and what is told of its calls."""

    def __init__(self, function: FunctionType, enter: Enter, *, exact: bool = True) -> None:
        """`enter` is told of every call; nothing is exchanged before `on`.

        `exact` False saves the milliseconds that reading the source takes.

        Raises:
            ValueError: the code of this function cannot be exchanged.
        """
        self.function = function
        self._code = code = function.__code__
        number = len(entries)
        entries.append(enter)
        self.original = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
        self.original.__kwdefaults__ = function.__kwdefaults__
        originals.append(_around(self.original, enter))
        self._ours = (_from_source(number, code) if exact else None) or _calling(number, code)

    def on(self) -> None:
        """From now on `enter` is told of the function's calls."""
        if self.function.__code__ is self._code:
            self.function.__code__ = self._ours

    def off(self) -> None:
        """Put the function's own code back, unless somebody else has exchanged it since."""
        if self.function.__code__ is self._ours:
            self.function.__code__ = self._code


def _around(original: Callable[..., Any], enter: Enter) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        leave = enter(*args, **kwargs)
        if leave is None:
            return original(*args, **kwargs)
        done = True
        try:
            return original(*args, **kwargs)
        except BaseException:
            done = False
            raise
        finally:
            leave(done)

    return call


def _from_source(number: int, code: CodeType) -> CodeType | None:
    """The function's own statements, and ours around them; None where its source is not that of this code."""
    try:
        own, ours, again = (_read(code) for _ in range(3))
        if own is None or ours is None or again is None or not _same(_compiled(own, code), code):
            return None
        around = ast.parse(_AROUND.format(module=__name__, number=number, arguments=_signature(code)[1])).body
        for statement in around:
            for node in ast.walk(statement):
                if hasattr(node, "lineno"):
                    ast.copy_location(node, ours.body[0])
        choice = around[-1]
        assert isinstance(choice, ast.If) and isinstance(choice.orelse[1], ast.Try)
        choice.body, choice.orelse[1].body, ours.body = ours.body, again.body, around
        made = _compiled(ours, code)
    except (OSError, TypeError, ValueError, SyntaxError, tokenize.TokenError, IndexError, RecursionError):
        return None
    return made if made.co_freevars == code.co_freevars else None


def _read(code: CodeType) -> ast.FunctionDef | None:
    """The definition that `code` was made from, without decorators, annotations and defaults; in its lines and columns."""
    first = code.co_firstlineno
    lines = inspect.getblock(linecache.getlines(code.co_filename)[first - 1 :])  # getsourcelines would ask every module for its file
    indented = lines[0][:1].isspace()
    (statement,) = ast.parse("".join(["if 1:\n", *lines] if indented else lines)).body
    if isinstance(statement, ast.If):
        (statement,) = statement.body
    if not isinstance(statement, ast.FunctionDef) or statement.name != code.co_name:
        return None
    ast.increment_lineno(statement, first - (2 if indented else 1))
    given = statement.args
    statement.decorator_list, statement.returns, given.defaults, given.kw_defaults = [], None, [], [None] * len(given.kwonlyargs)
    for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
        if argument is not None:
            argument.annotation = None
    return statement


def _compiled(function: ast.FunctionDef, code: CodeType) -> CodeType:
    """The code of a function that stands in a closure with the variables of `code`."""
    (outer,) = ast.parse(f"def outer({', '.join(code.co_freevars)}): pass").body
    assert isinstance(outer, ast.FunctionDef)
    outer.body = [function]
    tree = ast.fix_missing_locations(ast.Module(body=[outer], type_ignores=[]))
    made = _inner(_inner(compile(tree, code.co_filename, "exec", flags=code.co_flags & _FUTURE, dont_inherit=True)))
    return _with_names_of(made, f"{_OUTER}{code.co_name}", code)


def _with_names_of(made: CodeType, prefix: str, code: CodeType) -> CodeType:
    """Functions have the qualified names that they have in `code`, not those that they have inside of `outer`."""
    strings = _strings(code) if not hasattr(code, "co_qualname") else []

    def renamed(one: CodeType) -> CodeType:
        more: Any = {"co_consts": tuple(renamed(c) if isinstance(c, CodeType) else named(c) for c in one.co_consts)}
        if hasattr(one, "co_qualname"):  # Python 3.11 and newer
            more["co_qualname"] = f"{code.co_qualname}{one.co_qualname.removeprefix(prefix)}"  # type: ignore[attr-defined]
        return one.replace(**more)

    def named(constant: Any) -> Any:
        """In Python 3.10 the names of inner functions are constants beside them, and a function does not know its own."""
        if isinstance(constant, str) and constant.startswith(_OUTER):
            return next((text for text in strings if f".{text}".endswith(f".{constant[len(_OUTER) :]}")), constant)
        return constant

    return renamed(made)


def _strings(code: CodeType) -> list[str]:
    inner = [text for constant in code.co_consts if isinstance(constant, CodeType) for text in _strings(constant)]
    return [constant for constant in code.co_consts if isinstance(constant, str)] + inner


def _same(made: CodeType, code: CodeType) -> bool:
    """Whether the source on the disk is the one that `code` was made from."""
    names = ("co_names", "co_varnames", "co_freevars", "co_cellvars", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount")
    return all(getattr(made, name) == getattr(code, name) for name in names) and _instructions(made) == _instructions(code)


def _instructions(code: CodeType) -> list[tuple[str, Any]]:
    """What the code does, but for how it calls methods and so how many bytes it jumps: that hangs on what else the source file imports.

    A jump is named by the instruction that it leads to, and functions inside of the code by what they do.
    """
    jumps = {*dis.hasjrel, *dis.hasjabs}
    steps = list(dis.get_instructions(code))
    places: dict[int, int] = {}  # offset -> number of the first kept instruction there or behind
    kept = 0
    for step in steps:
        places[step.offset] = kept
        kept += step.opname not in _CALLS
    found: list[tuple[str, Any]] = []
    for step in steps:
        if step.opname in _CALLS:
            continue
        if step.opcode in jumps:
            found.append((step.opname, places.get(step.argval, kept)))
        elif isinstance(step.argval, CodeType):
            found.append((step.opname, _instructions(step.argval)))
        else:
            found.append((step.opname, repr(step.argval)))
    return found


def _calling(number: int, code: CodeType) -> CodeType:
    parameters, arguments = _signature(code)
    text = _CALLING.format(
        free=", ".join(code.co_freevars),
        name=code.co_name if code.co_name.isidentifier() else "exchanged",
        parameters=parameters,
        arguments=arguments,
        module=__name__,
        number=number,
    )
    made = _inner(_inner(compile(text, __file__, "exec")))
    if made.co_freevars != code.co_freevars:
        raise ValueError(f"the closure of {code.co_name} cannot be rebuilt: {made.co_freevars} for {code.co_freevars}")
    return made


def _signature(code: CodeType) -> tuple[str, str]:
    """The parameters of a function, and how it hands them on, as they stand between brackets."""
    names = list(code.co_varnames)
    plain, only = code.co_argcount, code.co_kwonlyargcount
    parameters, arguments = names[:plain], names[:plain]
    if code.co_posonlyargcount:
        parameters = [*parameters[: code.co_posonlyargcount], "/", *parameters[code.co_posonlyargcount :]]
    rest = plain + only
    if code.co_flags & inspect.CO_VARARGS:
        parameters, arguments = [*parameters, f"*{names[rest]}"], [*arguments, f"*{names[rest]}"]
        rest += 1
    elif only:
        parameters = [*parameters, "*"]
    parameters = [*parameters, *names[plain : plain + only]]
    arguments = [*arguments, *(f"{name}={name}" for name in names[plain : plain + only])]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        parameters, arguments = [*parameters, f"**{names[rest]}"], [*arguments, f"**{names[rest]}"]
    return ", ".join(parameters), ", ".join(arguments)


def _inner(code: CodeType) -> CodeType:
    (found,) = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found
