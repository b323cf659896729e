"""Functions that a function mode does not see: those of users, of packages for accelerators, and what was added to support_wrap_ops.yaml.

A function written in Python stays what and where it is, whatever names it is bound to: for the window, the code that it runs is exchanged.
Only a callable of another kind (one of C, an object with `__call__`) has its attribute replaced, and put back at stop.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from types import ClassMethodDescriptorType, FunctionType
from typing import Any

from msprobe.contain import let_through
from msprobe.errors import UsageError
from msprobe.log import logger
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.api_dump.api_table import Api
from msprobe.pytorch.dump.api_dump.exchanged import Concerns, Exchanged, Handler, exchanged
from msprobe.pytorch.dump.recorder import Recorder

_is_compiling = torch_internals.is_compiling


def recording(recorder: Recorder) -> bool:
    """Whether a call that begins now in this thread is recorded: a window for APIs is open, and no recorded API is running."""
    mode = recorder.mode
    return recorder.step is not None and mode is not None and mode.active and not recorder.state.inside


class Watch:
    """One function that is watched from `on` to `off`.

    Args:
        owner, attribute: where it is found: a module, a class, or an object.
        handler: `handler(args, kwargs)` is called instead; given `original`, which does what the function does unwatched.
        concerns: of a call's arguments, whether it is one of those that are meant; None: all are.
    """

    def __init__(self, owner: Any, attribute: str, handler: Callable[[Any], Handler], concerns: Concerns | None = None) -> None:
        self._owner, self._attribute = owner, attribute
        self._raw, self._is_own = raw_attribute(owner, attribute)
        self._handler, self._concerns = handler, concerns
        self._exchanged: tuple[Exchanged, Handler] | None = None
        self._wrapper: Any = None

    def on(self) -> None:
        """Watch from now on."""
        function = python_function(self._raw)
        if function is not None:
            entry = exchanged(function)
            entry.renew()
            handler = self._handler(entry.original)
            self._exchanged = entry, handler  # first: an interruption of the user's may come between any two lines
            entry.add(handler, self._concerns)
            return
        original = self._raw.__func__ if isinstance(self._raw, staticmethod | classmethod) else self._raw
        wrapper = _wrapper(original, self._handler(original))
        if isinstance(self._raw, classmethod | ClassMethodDescriptorType):
            wrapper = classmethod(wrapper)
        elif isinstance(self._owner, type) and not _binds(self._raw):
            wrapper = staticmethod(wrapper)
        self._wrapper = wrapper
        setattr(self._owner, self._attribute, wrapper)

    def off(self) -> None:
        """Undo `on`, unless somebody else has changed it since."""
        pair, self._exchanged = self._exchanged, None
        if pair is not None:
            pair[0].remove(pair[1])
        wrapper, self._wrapper = self._wrapper, None
        if wrapper is None or raw_attribute(self._owner, self._attribute)[0] is not wrapper:
            return
        if self._is_own:
            setattr(self._owner, self._attribute, self._raw)
        else:
            delattr(self._owner, self._attribute)


def watch(owner: Any, attribute: str, api: Api, recorder: Recorder) -> Watch:
    """A watch that records the calls as `api`."""
    concerns = _concerns(owner, attribute)

    def handler(original: Any) -> Handler:
        def handle(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if _is_compiling() or not recording(recorder) or (concerns is not None and not concerns(args)):
                return original(*args, **kwargs)
            return recorder.api(api, original, args, kwargs)

        return handle

    return Watch(owner, attribute, handler, concerns)


def _concerns(owner: Any, attribute: str) -> Concerns | None:
    """Which calls are meant where a method belongs to more than `owner`: a method of one object, or one that a class has inherited."""
    raw, own = raw_attribute(owner, attribute)
    if inspect.ismethod(raw):
        one = raw.__self__
        return lambda args: bool(args) and args[0] is one
    if own or not isinstance(owner, type) or not _binds(raw):
        return None

    def of_the_class(args: tuple[Any, ...]) -> bool:
        first = args[0] if args else None
        return any(one is owner for one in (*(type.mro(first) if isinstance(first, type) else ()), *type(first).__mro__))

    return of_the_class


def switched_on(one: Watch, what: str) -> bool:
    """Switch a watch on; False, with a warning, where that cannot be done."""
    try:
        one.on()
    except Exception as error:
        let_through(error)
        logger.warning(f"{what} cannot be watched, its calls are not recorded: {error!r}")
        with contextlib.suppress(Exception):
            one.off()
        return False
    return True


def raw_attribute(owner: Any, attribute: str) -> tuple[Any, bool]:
    """What stands there, without binding it, and whether it is the owner's own rather than a base class's or a type's.

    Raises:
        AttributeError: there is nothing.
    """
    getattr(owner, attribute)  # some namespaces make it only now
    own = getattr(owner, "__dict__", {})
    if attribute in own:
        return own[attribute], True
    try:
        found = inspect.getattr_static(owner, attribute)
    except AttributeError:
        return getattr(owner, attribute), False  # a module's __getattr__ gave it
    return (found if isinstance(owner, type) else getattr(owner, attribute)), False


def python_function(raw: Any) -> FunctionType | None:
    """The function written in Python that is called; None for other callables."""
    raw = getattr(raw, "__func__", raw) if isinstance(raw, staticmethod | classmethod) or inspect.ismethod(raw) else raw
    return raw if type(raw) is FunctionType else None


def why_not_watched(raw: Any, attribute: str) -> str:
    """Why calls of this cannot be recorded; "" where they can."""
    if isinstance(raw, type):
        return f"{attribute} is a class: name one of its methods instead, register_custom_api({attribute}, ...)"
    if isinstance(raw, property) or not (callable(raw) or isinstance(raw, staticmethod | classmethod)):
        return f"{attribute} is {type(raw).__name__}, not a function"
    function = python_function(raw)
    if function is not None and (inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function)):
        return f"{attribute} is a coroutine or generator function: its call returns before it has run"
    if inspect.isasyncgenfunction(function):
        return f"{attribute} is an asynchronous generator function: its call returns before it has run"
    return ""


def checked_attribute(owner: Any, attribute: str, call: str) -> Any:
    """What stands at an attribute that a user wants to be watched.

    Args:
        call: the call that asks for it, for the message.

    Raises:
        UsageError: there is nothing, or nothing that can be watched.
    """
    try:
        raw, _ = raw_attribute(owner, attribute)
    except AttributeError:
        raise UsageError(f"{call}: {_named(owner)} has no attribute {attribute!r}") from None
    reason = why_not_watched(raw, attribute)
    if reason:
        raise UsageError(f"{call}: {reason}")
    return raw


def _named(owner: Any) -> str:
    name = getattr(owner, "__name__", None)
    if isinstance(owner, str):
        return f"the text {owner!r}"
    return f"{type(owner).__name__} {name}" if isinstance(name, str) else f"an object of class {type(owner).__name__}"


def _binds(raw: Any) -> bool:
    """Whether the attribute of a class becomes a method of its instances."""
    return not isinstance(raw, staticmethod) and hasattr(type(raw), "__get__")


def _wrapper(original: Any, handle: Handler) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return handle(args, kwargs)

    try:
        return functools.wraps(original)(wrapper)
    except Exception as error:  # an object whose __name__ is no text, or that raises when looked at
        let_through(error)
        return wrapper
