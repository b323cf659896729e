"""Sums of gradients: taken in float64, then as the dtype is."""

from __future__ import annotations

from typing import Any

import numpy as np

from msprobe.mindspore.dump.values import Array


class Sum:
    """A gradient made of others, as an array.

    Args:
        parts: tensors of one dtype and shape, at least one.
        minus: tensors that are taken away.
    """

    def __init__(self, parts: list[Any], minus: list[Any] | None = None) -> None:
        first: Array = parts[0].asnumpy()
        wide = "complex128" if first.dtype.kind == "c" else "float64"
        total = _added(parts, wide)
        own = _added(minus, wide) if minus else None
        self.array: Array = (total if own is None else total - own).astype(first.dtype)
        self.is_nothing = own is not None and np.array_equal(own.astype(first.dtype), first)
        """What is taken away is all there was."""
        self._dtype = str(parts[0].dtype)

    def head(self) -> dict[str, Any]:
        """The record so far."""
        return {"type": "mindspore.Tensor", "dtype": self._dtype, "shape": list(self.array.shape)}


def _added(parts: list[Any], wide: str) -> Array:
    total: Array = parts[0].asnumpy().astype(wide)
    for part in parts[1:]:
        total = total + part.asnumpy().astype(wide)
    return total
