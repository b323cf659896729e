"""Methods of a framework's class tell what they are called for, as long as somebody lives who wants to know."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msprobe.pytorch.dump.api_dump.exchanged import Exchanged, Handler

Around = Callable[[Any, Callable[[], Any]], Any]
"""From the object whose method is called and what the method does, to what the call gives."""


class WatchedMethods:
    """The methods stay the objects that they are, only their code is exchanged; it is put back when the last who listens is gone.

    Args:
        owner: the class.
        around: method -> what is called in its place.
    """

    def __init__(self, owner: type, around: dict[str, Around]) -> None:
        self._owner, self._around = owner, around
        self._listeners = 0
        self._watched: list[tuple[Exchanged, Handler]] = []
        self._lock = threading.RLock()

    def tell(self, listener: object) -> None:
        """From now on calls are told, until `listener` is gone. Methods that were replaced since are watched too."""
        from msprobe.pytorch.dump.api_dump.exchanged import exchanged

        with self._lock:
            self._listeners += 1
            weakref.finalize(listener, self._gone).atexit = False
            for name, around in self._around.items():
                function = vars(self._owner).get(name)
                if not isinstance(function, FunctionType):
                    continue
                entry = exchanged(function)
                if all(entry is not known for known, _ in self._watched):
                    entry.renew()
                    handler = _handler(entry, around)
                    entry.add(handler)
                    self._watched.append((entry, handler))

    def _gone(self) -> None:
        with self._lock:
            self._listeners -= 1
            if not self._listeners:
                for entry, handler in self._watched:
                    entry.remove(handler)
                self._watched.clear()


def _handler(entry: Exchanged, around: Around) -> Handler:
    """It runs what this very function did: another one that has taken its place may call it."""

    def handler(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return around(args[0] if args else kwargs.get("self"), lambda: entry.original(*args, **kwargs))

    return handler
