"""Dropout without effect: every dropout of torch behaves as with p = 0, its input comes out as it went in.

The operators themselves are replaced, below everything that Python sees. So functions, modules and what they are called in a dump stay the
same; modules made before, names imported before, scripted code and the dropout that torch's own C++ code applies are reached too.
Attention and recurrent layers may have kernels that do dropout inside: these are called with a dropout of 0.

Not reached: dropout that is not torch's (stochastic depth, a mask from a `torch.rand` of the user's own, fused kernels of other packages).
"""

from __future__ import annotations

from typing import Any

import torch

from msprobe.pytorch.reproducibility import interception
from msprobe.pytorch.reproducibility.kernels import Kernels
from msprobe.pytorch.reproducibility.random_functions import ATTENTION, RECURRENT, Arguments, recurrent_dropout_position, replaced

_OPERATORS = ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
_kernels: Kernels | None = None


def removed() -> bool:
    """Whether dropout is without effect now."""
    return _kernels is not None


def remove_dropout() -> None:
    """From now on dropout is without effect; nothing happens if it is already."""
    global _kernels
    if _kernels is not None:
        return
    _kernels = Kernels()
    for operator in _OPERATORS:
        _kernels.replace(operator, _same)
        _kernels.replace(f"{operator}_", _same)
    _kernels.replace("native_dropout", _same_and_mask)
    interception.rewrite((ATTENTION,), _attention_without)
    interception.rewrite(RECURRENT, _recurrent_without)


def bring_dropout_back() -> None:
    """Undo `remove_dropout`."""
    global _kernels
    if _kernels is None:
        return
    _kernels.remove()
    _kernels = None
    interception.rewrite((ATTENTION, *RECURRENT), None)


def _check(p: float) -> None:
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")  # as torch's own kernels do


def _same(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    _check(p)
    return input


def _same_and_mask(input: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    _check(p)
    return input.clone(), torch.ones_like(input, dtype=torch.bool)


def _attention_without(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    return replaced(args, kwargs, 4, "dropout_p", 0.0)


def _recurrent_without(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    return replaced(args, kwargs, recurrent_dropout_position(args), "dropout", 0.0)
