"""A method of torch that is watched while its object stays: only the code that it runs is exchanged, and put back.

Small and without torch, for it is there before anything is recorded. `pytorch/dump/api_dump/exchanged.py` does the like for the functions
of a window; here one handler is enough, and the signature is kept in the code itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

# The import is traced by torch.compile as what it is; the names must be none that a closure of the user's holds.
_TEMPLATE = """
def outer({free}):
    def {name}({parameters}):
        if 0:
            ({free})
        from {module} import handlers as msprobe_handlers
        return msprobe_handlers[{number}]({arguments})
    return {name}
"""

handlers: list[Callable[..., Any]] = []
"""By the number that stands in the exchanged code."""


class Exchange:
    """One function, and what is called in its place.

    Attributes:
        original: another function object that does what the function does.
    """

    def __init__(self, function: FunctionType, handler: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """`handler(original)` gives what is called; nothing is exchanged before `on`.

        Raises:
            ValueError: the code of this function cannot be exchanged.
        """
        self.function = function
        self._code = code = function.__code__
        self.original = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
        self.original.__kwdefaults__ = function.__kwdefaults__
        self._ours = _calling(len(handlers), code)
        handlers.append(handler(self.original))

    def on(self) -> None:
        """From now on a call of the function is one of the handler."""
        if self.function.__code__ is self._code:
            self.function.__code__ = self._ours

    def off(self) -> None:
        """Put the function's own code back, unless somebody else has exchanged it since."""
        if self.function.__code__ is self._ours:
            self.function.__code__ = self._code


def _calling(number: int, code: CodeType) -> CodeType:
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
    text = _TEMPLATE.format(
        free=", ".join(code.co_freevars),
        name=code.co_name if code.co_name.isidentifier() else "exchanged",
        parameters=", ".join(parameters),
        arguments=", ".join(arguments),
        module=__name__,
        number=number,
    )
    made = _inner(_inner(compile(text, __file__, "exec")))
    if made.co_freevars != code.co_freevars:
        raise ValueError(f"the closure of {code.co_name} cannot be rebuilt: {made.co_freevars} for {code.co_freevars}")
    return made


def _inner(code: CodeType) -> CodeType:
    (found,) = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found
