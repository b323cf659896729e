"""Records the calls of torch.distributed while a window is open."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from types import FunctionType
from typing import Any

import torch

from msprobe.contain import let_through
from msprobe.log import logger
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.api_dump.api_table import Api
from msprobe.pytorch.dump.api_dump.exchanged import Exchanged, Handler, exchanged
from msprobe.pytorch.dump.distributed import c10d
from msprobe.pytorch.dump.distributed.deferred import Deferred
from msprobe.pytorch.dump.distributed.pending import PendingCalls
from msprobe.recording.calls import ThreadState

Record = Callable[[Api, Any, tuple[Any, ...], dict[str, Any]], Any]
COALESCED = "coalesced: it runs when torch's coalescing manager ends, and its output is not recorded"
_NOTHING = object()
_NEWER_NAMES = {"all_gather_into_tensor": "all_gather_single", "reduce_scatter_tensor": "reduce_scatter_single"}
"""What later versions of torch call the same function; torch's own code (fully_shard) calls it so. It is recorded under the one name."""


class CommunicationWindow:
    """Between start and stop, a call of a watched function of torch.distributed is recorded as `Distributed.{name}.{n}.forward`.

    Input and output are the arguments before and after the call, whatever it returns; there is no backward entry. What a call does
    inside (other calls of torch.distributed, tensor operations) is not recorded.

    Args:
        state: what runs in each thread.
        record: `Recorder.api`.
        apis: the watched functions; they also say which arguments are left out, such as buffers that are only written to.
    """

    def __init__(self, state: ThreadState, record: Record, apis: Iterable[Api]) -> None:
        self._state = state
        self._record = record
        self._apis = tuple(apis)
        self._pid = os.getpid()
        self._active = False
        self._watched: list[tuple[Exchanged, Handler]] = []
        self.pending = PendingCalls()

    def on(self) -> None:
        """Watch the functions; nothing happens in a torch without torch.distributed."""
        homes = c10d.homes()
        if not homes:
            return
        self._active = True
        self.pending.on()
        seen: set[int] = set()
        for api in self._apis:
            names = [name for name in (api.name, _NEWER_NAMES.get(api.name)) if name is not None]
            for function in [getattr(home, name, None) for home in homes for name in names]:
                if function is not None and id(function) not in seen:
                    seen.add(id(function))
                    self._watch(api, function)

    def _watch(self, api: Api, function: Any) -> None:
        if not isinstance(function, FunctionType):
            logger.warning(f"torch.distributed.{api.name} has been replaced by a {type(function).__name__}: its calls are not recorded")
            return
        try:
            watched = exchanged(function)
            watched.renew()
            handler = partial(self._call, api, watched.original)
            self._watched.append((watched, handler))
            watched.add(handler)
        except Exception as error:
            let_through(error)
            logger.warning(f"the calls of torch.distributed.{api.name} cannot be watched and are not recorded: {error!r}")

    def off(self) -> None:
        """Undo `on`. Calls that nobody has waited for end without an output."""
        self._active = False
        while self._watched:
            watched, handler = self._watched[-1]
            watched.remove(handler)
            self._watched.pop()
        if os.getpid() == self._pid:
            self.pending.sweep()
        else:
            self.pending.forget()  # a forked child: the entries are its parent's
        self.pending.off()

    def _call(self, api: Api, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._active or self._state.inside or torch_internals.is_compiling():
            return function(*args, **kwargs)
        return _Call(self, api, function, args, kwargs).run(self._record)


class _Call:
    """One call while it runs."""

    def __init__(self, window: CommunicationWindow, api: Api, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._window, self._api, self._function = window, api, function
        self._args, self._kwargs = args, kwargs
        self._grad = torch.is_grad_enabled()
        self._result: Any = _NOTHING

    def run(self, record: Record) -> Any:
        """Record the call; gives what the function gives."""
        self._window.pending.sweep()
        # A buffer that requires grad is the same tensor before and after: it would look like a call with gradients of its own.
        self._set_grad(False)
        try:
            record(self._api, self._in_the_middle, self._args, self._kwargs)
        finally:
            self._set_grad(self._grad)
        return self._result

    def _set_grad(self, enabled: bool) -> None:
        if self._grad:
            with torch_internals.NoTorchFunction():
                c10d.set_grad_enabled(enabled)

    def _in_the_middle(self, *_: Any, **__: Any) -> Any:
        """The user's call, as it was made; gives the recorder what it is to take for the output."""
        self._set_grad(self._grad)
        try:
            self._result = self._function(*self._args, **self._kwargs)
        finally:
            self._set_grad(False)
        return self._output()

    def _output(self) -> Any:
        result = self._result
        output = (*self._args, *self._kwargs.values())
        works = [work for work in (result if isinstance(result, list) else [result]) if c10d.is_work(work)]
        if works and self._api.name != "isend":  # what was sent stays what it is
            pending = self._window.pending
            deferred = Deferred(output, lambda: pending.add(works, deferred))
            return deferred
        if not works and c10d.is_coalesced(result):
            return _never(COALESCED)
        return output


def _never(reason: str) -> Deferred:
    deferred = Deferred((), lambda: deferred.give_up(reason))
    return deferred
