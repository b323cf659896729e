"""A Python function that is watched without being replaced: the object stays, the code that it runs is exchanged and put back.

Whatever names it was bound to, it is watched; `f is g`, its signature and its pickle are as before. The code that is put in holds nothing
but numbers and names, so that torch.compile and torch.export can trace through it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from msprobe.pytorch import torch_internals

Handler = Callable[[tuple[Any, ...], dict[str, Any]], Any]
Concerns = Callable[[tuple[Any, ...]], bool]
"""Whether a call with these arguments is a handler's: a method is called on other objects and classes too."""

# The names must be none that a closure of the user's holds.
_TEMPLATE = """
def outer({names}):
    def {name}(*msprobe_args, **msprobe_kwargs):
        if 0:
            ({names})
        from {module} import entries as msprobe_entries
        return msprobe_entries[{number}].call(msprobe_args, msprobe_kwargs)
    return {name}
"""


class Exchanged:
    """One function, and who watches it. It lives on when nobody does: a call may still be on its way.

    Attributes:
        original: another function, which does what the function does when nobody watches.
    """

    def __init__(self, function: FunctionType, number: int) -> None:
        self.function = function
        self._number = number
        self._handlers: list[tuple[Handler, Concerns | None]] = []
        self._code = function.__code__
        self._ours = _calling(number, self._code)
        self.original = _copy(function)

    def renew(self) -> None:
        """Take in what the user has changed about the function since it was watched last."""
        function = self.function
        if self._handlers or function.__code__ is self._ours:
            return
        if function.__code__ is not self._code:
            self._code = function.__code__
            self._ours = _calling(self._number, self._code)
        if not _is_copy(self.original, function):
            self.original = _copy(function)

    def add(self, handler: Handler, concerns: Concerns | None = None) -> None:
        """From now on a call of the function is `handler(args, kwargs)`; of several the last one that it concerns."""
        function = self.function
        self._handlers.append((handler, concerns))
        if function.__code__ is self._code:
            function.__dict__["__wrapped__"] = self.original  # signature and source are found through it
            function.__code__ = self._ours
            _forget_parameters(function)

    def remove(self, handler: Handler) -> None:
        """Undo `add`. The last to go puts the function's own code back, unless somebody else has exchanged it since."""
        self._handlers = [one for one in self._handlers if one[0] is not handler]
        if self._handlers:
            return
        function, own = self.function, self.function.__dict__
        if function.__code__ is self._ours:
            function.__code__ = self._code
            _forget_parameters(function)
        if own.get("__wrapped__") is self.original:
            if "__wrapped__" in self.original.__dict__:
                own["__wrapped__"] = self.original.__dict__["__wrapped__"]
            else:
                del own["__wrapped__"]

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of the function."""
        handlers, original, function = self._handlers, self.original, self.function
        if torch_internals.is_compiling():
            return handlers[-1][0](args, kwargs) if handlers else original(*args, **kwargs)
        # The user may have given the function other defaults meanwhile.
        if original.__defaults__ is not function.__defaults__ or original.__kwdefaults__ is not function.__kwdefaults__:
            original.__defaults__, original.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        for handler, concerns in reversed(handlers):
            if concerns is None or concerns(args):
                return handler(args, kwargs)
        return original(*args, **kwargs)


entries: list[Exchanged] = []
"""By the number that stands in the exchanged code."""
_by_id: dict[int, Exchanged] = {}


def exchanged(function: FunctionType) -> Exchanged:
    """The one entry of this function."""
    entry = _by_id.get(id(function))
    if entry is None:
        entry = Exchanged(function, len(entries))
        entries.append(entry)
        _by_id[id(function)] = entry
    return entry


_COPIED = (
    *("__code__", "__name__", "__defaults__", "__kwdefaults__", "__closure__"),
    *("__qualname__", "__module__", "__doc__", "__annotations__"),
)


def _copy(function: FunctionType) -> FunctionType:
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = function.__qualname__
    copy.__module__, copy.__doc__ = function.__module__, function.__doc__
    copy.__annotations__ = function.__annotations__
    copy.__dict__.update(function.__dict__)
    return copy


def _is_copy(copy: FunctionType, function: FunctionType) -> bool:
    """Whether `_copy` would give the same again."""
    own, others = copy.__dict__, function.__dict__
    return all(getattr(copy, name) is getattr(function, name) for name in _COPIED) and (
        own.keys() == others.keys() and all(own[name] is others[name] for name in own)
    )


def _forget_parameters(function: FunctionType) -> None:
    """torch.compile keeps what it has read about a function's parameters; they are others now."""
    known = getattr(sys.modules.get("torch._dynamo.variables.functions"), "_spec_cache", None)
    if known is not None:
        known.pop(function, None)


def _calling(number: int, code: CodeType) -> CodeType:
    """Code that hands its arguments to the entry. It names the variables that the function's closure holds, or Python refuses it."""
    name = code.co_name if code.co_name.isidentifier() else "replaced"
    text = _TEMPLATE.format(names=", ".join(code.co_freevars), name=name, module=__name__, number=number)
    made = _inner(_inner(compile(text, __file__, "exec")))
    if made.co_freevars != code.co_freevars:
        raise ValueError(f"the closure of {code.co_name} cannot be rebuilt: {made.co_freevars} for {code.co_freevars}")
    return made


def _inner(code: CodeType) -> CodeType:
    (found,) = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return found
