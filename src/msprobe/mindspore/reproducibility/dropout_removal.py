"""Dropout without effect: functions and cells of MindSpore give back what they are given."""

from __future__ import annotations

from typing import Any

import mindspore.mint.nn as mint_nn
from mindspore import mint, nn, ops

from msprobe.mindspore.dump.patches import Patches

_CELLS = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d")
_FUNCTIONS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
_patches: Patches | None = None


def switch(off: bool) -> None:
    """Take dropout's effect away, or give it back; nothing happens where it is so already."""
    global _patches
    if off and _patches is None:
        _patches = Patches()
        for namespace in (nn, mint_nn):
            for cell in {getattr(namespace, name) for name in _CELLS if hasattr(namespace, name)}:
                if "construct" in vars(cell):
                    _patches.add(cell, "construct", _construct)
        for namespace in (ops, mint.nn.functional):
            for name in _FUNCTIONS:
                if hasattr(namespace, name):
                    _patches.add(namespace, name, _nothing)
        _patches.apply()
    elif not off and _patches is not None:
        _patches.undo()
        _patches = None


def _nothing(input: Any, *args: Any, **kwargs: Any) -> Any:
    return input


def _construct(self: Any, x: Any) -> Any:
    return x
