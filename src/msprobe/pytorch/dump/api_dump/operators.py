"""How an operator was spelled: `x + y`, `1 + x` and `x.add(y)` all reach a function mode as the same method.

While recording is on, thin methods on `torch.Tensor` note the spelling for the call that follows. Methods that arrive under their own name
(`__eq__`, `__and__`, `__getitem__` …) need none and get none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from msprobe.pytorch.torch_internals import TensorBase
from msprobe.recording.calls import ThreadState

_SPELLINGS = (
    "__add__ __radd__ __iadd__ __sub__ __isub__ __mul__ __rmul__ __imul__ __truediv__ __itruediv__ __mod__ __imod__ __pow__ __ipow__"
    " __matmul__ __ifloordiv__ __rand__ __ror__ __rxor__ __ne__ __lt__ __le__ __gt__ __ge__ __neg__ __abs__ __pos__"
)
_UNARY = ("__neg__", "__abs__", "__pos__")


def _binary(original: Callable[[Any, Any], Any], spelling: str, state: ThreadState) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        before = state.spelling
        state.spelling = spelling
        try:
            return original(self, other)
        finally:
            state.spelling = before

    return method


def _unary(original: Callable[[Any], Any], spelling: str, state: ThreadState) -> Callable[[Any], Any]:
    def method(self: Any) -> Any:
        before = state.spelling
        state.spelling = spelling
        try:
            return original(self)
        finally:
            state.spelling = before

    return method


class OperatorSpelling:
    """Puts the methods on `torch.Tensor` and takes them off again, leaving `torch.Tensor.__dict__` as it was."""

    def __init__(self, state: ThreadState) -> None:
        self._state = state
        self._before: dict[str, Any] = {}
        self._methods: dict[str, Any] = {}

    def on(self) -> None:
        """Note spellings from now on, around the methods that stand there now: somebody may have put his own there since the last time."""
        own = vars(torch.Tensor)
        for name in _SPELLINGS.split():
            original = own[name] if name in own else getattr(TensorBase, name, None)
            if original is None:
                continue
            if name in own:
                self._before[name] = original
            self._methods[name] = method = (_unary if name in _UNARY else _binary)(original, name, self._state)
            setattr(torch.Tensor, name, method)

    def off(self) -> None:
        """Restore the class."""
        while self._methods:
            name, method = next(reversed(self._methods.items()))
            if vars(torch.Tensor).get(name) is method:  # otherwise somebody else has put a method there since: leave it
                if name in self._before:
                    setattr(torch.Tensor, name, self._before[name])
                else:
                    delattr(torch.Tensor, name)
            self._before.pop(name, None)
            del self._methods[name]
