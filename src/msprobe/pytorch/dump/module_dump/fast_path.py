"""Modules with an inference fast path keep it while they are watched.

`nn.TransformerEncoder` and its parts leave it when a function mode is on or a module inside carries hooks; under a padding mask the
result then differs by more than rounding. While such a module may take it, the mode is off; what runs inside is a fused kernel anyway.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from msprobe.log import logger
from msprobe.pytorch import torch_internals

FAST_PATH_CLASSES = (torch.nn.TransformerEncoder, torch.nn.TransformerEncoderLayer, torch.nn.MultiheadAttention)


def takes_fast_path(module: torch.nn.Module) -> bool:
    """Whether this module may leave torch's Python code for a fused kernel now."""
    return not module.training and (not torch.is_grad_enabled() or not any(p.requires_grad for p in module.parameters()))


class FastPathGuard:
    """Wraps `forward` of the three classes for the duration of a window.

    Args:
        mode: the function mode to take off.
    """

    def __init__(self, mode: Any) -> None:
        self._mode = mode
        self._before: list[tuple[type, Any, Any]] = []
        self._told: set[str] = set()

    def on(self) -> None:
        """Guard from now on."""
        for kind in FAST_PATH_CLASSES:
            original = kind.__dict__["forward"]
            wrapper = self._wrap(original)
            self._before.append((kind, original, wrapper))
            kind.forward = wrapper

    def off(self) -> None:
        """Restore the classes, unless somebody else has changed them since."""
        for kind, original, wrapper in self._before:
            if kind.__dict__.get("forward") is wrapper:
                kind.forward = original  # type: ignore[attr-defined]
        self._before.clear()

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        mode, told = self._mode, self._told

        @functools.wraps(original)
        def forward(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if not mode.active or not takes_fast_path(module) or not torch_internals.remove_mode(mode):
                return original(module, *args, **kwargs)
            kind = type(module).__name__
            if kind not in told:
                told.add(kind)
                logger.info(f"{kind} may run on torch's inference fast path: recorded as a whole, its inside is not")
            try:
                return original(module, *args, **kwargs)
            finally:
                if mode.active:
                    torch_internals.insert_mode_at_bottom(mode)

        return forward
