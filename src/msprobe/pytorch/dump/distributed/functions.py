"""A Python function that is watched without being replaced.

`torch.distributed.all_reduce` may have been bound to any name long before the window opened, and torch itself asks `op is isend`. So the
function object stays what and where it is; only the code that it runs is exchanged, and put back afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType
from typing import Any

Handler = Callable[[tuple[Any, ...], dict[str, Any]], Any]

_TEMPLATE = """
def outer({names}):
    def {name}(*args, **kwargs):
        if 0:
            ({names})
        handler = {mark!r}
        return handler(args, kwargs)
    return {name}
"""
_MARK = "msprobe: stands for the handler until it is put in"


class WatchedFunction:
    """One function whose calls go to a handler while it is on.

    Attributes:
        function: the function object that everybody holds.
        original: another function that does what `function` does when nobody watches.
    """

    def __init__(self, function: FunctionType) -> None:
        self.function = function
        self._code = function.__code__
        self._ours: CodeType | None = None
        self.original = FunctionType(self._code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
        self.original.__kwdefaults__ = function.__kwdefaults__

    def on(self, handler: Handler) -> None:
        """From now on a call of the function is `handler(args, kwargs)`."""
        self._ours = _calling(handler, self._code.co_name, self._code.co_freevars)
        self.function.__code__ = self._ours

    def off(self) -> None:
        """The function runs its own code again, unless somebody else has exchanged it since."""
        if self._ours is not None and self.function.__code__ is self._ours:
            self.function.__code__ = self._code
        self._ours = None


def _calling(handler: Handler, name: str, free: tuple[str, ...]) -> CodeType:
    """Code that hands its arguments to `handler`."""
    code = _template(name, free)
    return code.replace(co_consts=tuple(handler if constant == _MARK else constant for constant in code.co_consts))


@cache
def _template(name: str, free: tuple[str, ...]) -> CodeType:
    """It must name the variables that the function's closure holds, or Python refuses it."""
    text = _TEMPLATE.format(names=", ".join(free), name=name if name.isidentifier() else "replaced", mark=_MARK)
    outer = compile(text, __file__, "exec")
    code = _inner(_inner(outer))
    if code.co_freevars != free:
        raise ValueError(f"the closure of {name} cannot be rebuilt: {code.co_freevars} for {free}")
    return code


def _inner(code: CodeType) -> CodeType:
    return next(constant for constant in code.co_consts if isinstance(constant, CodeType))
