"""How an operator was spelled: `x + y`, `1 + x` and `x.add(y)` all reach a function mode as the same method.

While recording is on, thin methods on `torch.Tensor` note the spelling for the call that follows. Methods that arrive under their own name
(`__eq__`, `__and__`, `__getitem__` …) need none and get none.
"""

from __future__ import annotations

from functools import wraps
from types import MethodType
from typing import Any

import torch

from msprobe.pytorch.dump import common_case
from msprobe.pytorch.torch_internals import TensorBase
from msprobe.recording.calls import ThreadState

_SPELLINGS = (
    "__add__ __radd__ __iadd__ __sub__ __isub__ __mul__ __rmul__ __imul__ __truediv__ __itruediv__ __mod__ __imod__ __pow__ __ipow__"
    " __matmul__ __ifloordiv__ __rand__ __ror__ __rxor__ __ne__ __lt__ __le__ __gt__ __ge__ __neg__ __abs__ __pos__"
)
_METHOD = 1 << 17
"""Py_TPFLAGS_METHOD_DESCRIPTOR: instances of a class with it are called with the object in front, as Python's functions are."""


class OperatorMethod:
    """Notes the spelling where an operator or a tensor's attribute calls it; read from the class it is what stands there without us.

    So `torch.Tensor.__neg__ is func` holds in a `__torch_function__` as it does otherwise. `csrc/operator_methods.h` is the same in C.
    """

    def __init__(self, original: Any, spelling: str, state: ThreadState) -> None:
        @wraps(original)
        def noting(*args: Any, **kwargs: Any) -> Any:
            before = state.spelling
            state.spelling = spelling
            try:
                return original(*args, **kwargs)
            finally:
                state.spelling = before

        self._original = original
        self._noting = noting

    def __get__(self, tensor: Any, kind: Any = None) -> Any:
        return self._original.__get__(None, kind) if tensor is None else MethodType(self._noting, tensor)


class OperatorSpelling:
    """Puts the methods on `torch.Tensor` and takes them off again, leaving `torch.Tensor.__dict__` as it was."""

    def __init__(self, state: ThreadState) -> None:
        self._state = state
        self._before: dict[str, Any] = {}
        self._methods: dict[str, Any] = {}

    def on(self) -> None:
        """Note spellings from now on, around the methods that stand there now: somebody may have put his own there since the last time."""
        own = vars(torch.Tensor)
        make = OperatorMethod if common_case.hot is None else common_case.hot.operator_method
        for name in _SPELLINGS.split():
            original = own[name] if name in own else getattr(TensorBase, name, None)
            if not type(original).__flags__ & _METHOD:
                continue  # an object of the user's that Python calls in another way
            if name in own:
                self._before[name] = original
            self._methods[name] = method = make(original, name, self._state)
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
