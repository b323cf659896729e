"""Views whose base was changed in place, and that torch has not looked at since: they have no place in the graph before it does.

To read their `grad_fn` would change the order in which gradients are added up; see `torch_internals.is_stale_view`.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from msprobe.pytorch import torch_internals

UNKNOWN = "the base of a view was changed in place, and torch has not used the view since: following its gradient would change bits of it"
UNREAD = "a gradient that is not followed (the base of a view was changed in place)"


class StaleView:
    """Stands for the edge of such a view. It keeps nothing alive."""

    __slots__ = ("_tensor", "_version")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = weakref.ref(tensor)
        self._version = tensor._version

    def settle(self) -> tuple[Any, bool]:
        """After the call that took the view in.

        Returns:
            Its edge, where the call has used the view, so that torch has made its node; else None, and whether there may be a gradient all
            the same: the call has changed the memory once more, or let go of the view.
        """
        tensor = self._tensor()
        if tensor is None or tensor._version != self._version:
            return None, True
        if torch_internals.is_stale_view(tensor):
            return None, False
        return (tensor.grad_fn, tensor.output_nr), False
