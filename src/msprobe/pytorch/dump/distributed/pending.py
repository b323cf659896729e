"""Communications that still run: their outputs are read when the user has waited for them.

From the first such call of a window on, the methods of `torch.distributed.Work` by which a user learns that a communication is done tell us
too, after they have done what they do: `wait`, `synchronize`, `is_completed`, and what happens to a future that was asked for. The handle
stays the object that torch made; nothing keeps it alive, and nothing waits that would not have waited.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from functools import wraps
from typing import Any

from msprobe.contain import let_through
from msprobe.pytorch.dump.distributed import c10d
from msprobe.pytorch.dump.distributed.deferred import Deferred

NOT_WAITED = "nobody waited for this communication before its handle was gone or stop() came: its output is not recorded"
_WORK_METHODS = ("wait", "synchronize", "is_completed")
_FUTURE_METHODS = ("wait", "value", "done")


class PendingCalls:
    """The calls whose communication is not known to be done."""

    def __init__(self) -> None:
        self._by_work: dict[int, list[_Waiting]] = {}
        self._by_future: dict[int, tuple[Any, list[_Waiting]]] = {}
        self._gone: deque[int] = deque()
        """ids of handles that died: noted where garbage is collected, which may be in the middle of anything, and dealt with later."""
        self._undo: list[Callable[[], None]] = []
        self._watches_handles = self._watches_futures = False
        self._is_on = False

    # --- what the calls say ---------------------------------------------------------------------------------------------------------
    def add(self, works: list[Any], deferred: Deferred) -> None:
        """Complete `deferred` when all of `works` are done."""
        if self._is_on and not self._watches_handles:
            self._watch_handles()
        self.sweep()  # one of them may have got the id of a handle that has died
        waiting = _Waiting(deferred)
        gone = self._gone
        for work in works:
            key = id(work)
            if key in waiting.works:
                continue
            waiting.works[key] = weakref.ref(work, lambda _, key=key: gone.append(key))  # type: ignore[misc]
            self._by_work.setdefault(key, []).append(waiting)

    def sweep(self) -> None:
        """Give up the calls whose handle has died."""
        while self._gone:
            for waiting in self._by_work.pop(self._gone.popleft(), ()):
                if not waiting.has_future:
                    waiting.deferred.give_up(NOT_WAITED)

    def _finished(self, work: Any) -> None:
        key = id(work)
        for waiting in self._by_work.pop(key, ()):
            if waiting.works.pop(key, None) is not None and not waiting.works:
                waiting.deferred.complete()

    # --- the methods of handles -----------------------------------------------------------------------------------------------------
    def on(self) -> None:
        """Learn from the methods of `Work`, once there is a call to wait for."""
        self._is_on = True

    def _watch_handles(self) -> None:
        self._watches_handles = True
        work_class = c10d.work_class()
        for name in _WORK_METHODS:
            self._replace(work_class, name, self._telling(getattr(work_class, name), name == "is_completed", self._finished))
        get_future = work_class.get_future  # type: ignore[attr-defined]

        @wraps(get_future)
        def with_future(work: Any, *args: Any, **kwargs: Any) -> Any:
            future = get_future(work, *args, **kwargs)
            self._contained(self._future_taken, work, future)
            return future

        self._replace(work_class, "get_future", with_future)

    def off(self) -> None:
        """The methods are torch's again; calls that still wait end without an output."""
        self._is_on = False
        while self._undo:
            self._undo.pop()()
        self._watches_handles = self._watches_futures = False
        left = [waiting for some in self._by_work.values() for waiting in some]
        left += [waiting for _, some in self._by_future.values() for waiting in some]
        self._by_work.clear()
        self._by_future.clear()
        for waiting in left:
            waiting.deferred.give_up(NOT_WAITED)

    def forget(self) -> None:
        """The waiting calls are somebody else's."""
        self._by_work.clear()
        self._by_future.clear()

    def _replace(self, home: Any, name: str, function: Any) -> None:
        before = home.__dict__[name]

        def undo() -> None:
            if home.__dict__.get(name) is function:  # else somebody else's stays
                setattr(home, name, before)

        self._undo.append(undo)
        setattr(home, name, function)

    def _telling(self, method: Any, only_if_true: bool, tell: Callable[[Any], None]) -> Any:
        by_work, by_future = self._by_work, self._by_future

        @wraps(method)
        def telling(handle: Any, *args: Any, **kwargs: Any) -> Any:
            result = method(handle, *args, **kwargs)
            if (by_work or by_future) and (result is True or not only_if_true):
                self._contained(tell, handle)
            return result

        return telling

    def _contained(self, action: Callable[..., None], *args: Any) -> None:
        try:
            action(*args)
        except Exception as error:
            let_through(error)  # the entry stays open, and stop() ends it

    # --- futures --------------------------------------------------------------------------------------------------------------------
    def _future_taken(self, work: Any, future: Any) -> None:
        """Somebody may learn from a future what he does not ask the handle: a callback of ours comes before all of his."""
        waiting = [one for one in self._by_work.get(id(work), ()) if not one.has_future and len(one.works) == 1]
        if not waiting:
            return
        self._watch_futures()
        for one in waiting:
            one.has_future = True
        self._by_future[id(future)] = (future, waiting)
        future.add_done_callback(lambda done: self._contained(self._future_finished, future))

    def _watch_futures(self) -> None:
        """A thread that waits for a future may go on before the future's callbacks have run."""
        if self._watches_futures:
            return
        self._watches_futures = True
        future_class = c10d.future_class()
        for name in _FUTURE_METHODS:
            self._replace(future_class, name, self._telling(getattr(future_class, name), name == "done", self._future_finished))

    def _future_finished(self, future: Any) -> None:
        _, waiting = self._by_future.pop(id(future), (None, ()))
        for one in waiting:
            one.deferred.complete()


class _Waiting:
    """One call, and the handles that have to be done first."""

    __slots__ = ("deferred", "has_future", "works")

    def __init__(self, deferred: Deferred) -> None:
        self.deferred = deferred
        self.works: dict[int, Any] = {}
        self.has_future = False
