"""The function mode that sees every call of a torch function in its thread, whatever name it was bound to."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.api_dump.api_table import Api, ApiTable
from msprobe.pytorch.dump.common_case import DECLINED
from msprobe.recording.calls import ThreadState

_is_compiling = torch_internals.is_compiling
Record = Callable[[Api, Any, tuple[Any, ...], dict[str, Any]], Any]
# Written in Python on top of other torch functions, and known by those: `2 / x` is a reciprocal and a product.
_TRANSPARENT = frozenset(f for f in (getattr(torch.Tensor, "__rdiv__", None),) if hasattr(f, "__wrapped__"))

_THROUGH = Api("", "", "")
"""Stands for a transparent function."""
# Names under which more than one spelling arrives: thin functions around a method, and variants that a boolean dispatch chooses.
AMBIGUOUS = frozenset(
    ["sigmoid", "tanh", *(f"{kind}_max_pool{n}d_with_indices" for kind in ("adaptive", "fractional") for n in (1, 2, 3))]
    + [f"max_pool{n}d_with_indices" for n in (1, 2, 3)]
)


class ApiMode(TorchFunctionMode):
    """Hands each call of a watched function to `record`, everything else straight on.

    torch takes the mode off while it handles a call, so functions inside a watched one are not seen: only the outermost is recorded.

    Args:
        table: the watched functions.
        state: what runs in each thread.
        record: `record(api, function, args, kwargs)` calls the function and gives its result.
        failed: `failed(function, error)` when it could not be found out what function this is.
    """

    def __init__(self, table: ApiTable, state: ThreadState, record: Record, failed: Callable[[Any, Exception], None]) -> None:
        super().__init__()
        self.active = True
        """False: the mode lets everything pass and its thread takes it off at its next call."""
        self._lookup = table.by_function.get
        self._operators = table.by_operator
        self._thin = table.thin
        self._dispatched = table.dispatched
        self._aten = table.operator
        self._state = state
        self._record = record
        self._failed = failed
        self.in_c: Callable[..., Any] | None = None
        """`in_c(function, args, kwargs)` does what follows for most calls; what it gives DECLINED for, it has not touched."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        if _is_compiling() or not self.active:
            return func(*args, **(kwargs or {}))
        if self.in_c is not None:
            result = self.in_c(func, args, kwargs)
            if result is not DECLINED:
                return result
        try:
            api = self._lookup(func)
            if api is None or self._state.spelling is not None or api.name in AMBIGUOUS:
                api = self._named_otherwise(func, api)
        except Exception as error:  # an object that cannot be hashed, or whose comparison raises
            let_through(error)
            api = None
            self._failed(func, error)
        if api is None or self._state.inside:
            return func(*args, **(kwargs or {}))
        if api is _THROUGH:
            return self._through(func, args)
        return self._record(api, func, args, kwargs or {})

    def _named_otherwise(self, func: Any, api: Api | None) -> Api | None:
        """The function's Api where it does not follow from the function alone."""
        state = self._state
        spelling = state.spelling
        if api is None:
            if func in _TRANSPARENT:
                return _THROUGH
            api = self._aten(func)
            if api is not None:
                return api
            if spelling is None:
                return None
        if spelling is not None:
            state.spelling = None
            return self._operators.get(spelling, api)
        if api is None:
            return None
        if api.prefix == "Tensor":
            return self._thin.get((api.name, id(sys._getframe(2).f_code)), api)
        if func in self._dispatched and _called_by_dispatch():
            return self._dispatched[func]
        return api

    def _through(self, func: Any, args: tuple[Any, ...]) -> Any:
        """Run a transparent function with the mode on."""
        torch_internals.push_mode(self)
        try:
            return func.__wrapped__(*args)
        finally:
            torch_internals.remove_mode(self)


def _called_by_dispatch() -> bool:
    """Whether the watched function's own frame (two above the mode's) was called by torch's boolean dispatch."""
    frame = sys._getframe(5)
    return frame.f_code.co_name == "fn" and frame.f_code.co_filename.endswith("_jit_internal.py")
