"""The same numbers for both frameworks, by the names that PyTorch has for them."""

from __future__ import annotations

import numpy as np

_random = np.random.RandomState(5)


def _draw(*shape: int) -> np.ndarray:
    return (_random.randn(*shape) * 0.5).astype(np.float32)


WEIGHTS = {
    "embed.weight": _draw(11, 8),
    "conv.weight": _draw(2, 1, 3, 3),
    "conv.bias": _draw(2),
    "bn.weight": _draw(2),
    "bn.bias": _draw(2),
    "blocks.0.weight": _draw(6, 96),
    "blocks.0.bias": _draw(6),
    "norm.weight": _draw(6),
    "norm.bias": _draw(6),
    "head.weight": _draw(3, 6),
    "head.bias": _draw(3),
}
TOKENS = _random.randint(0, 11, (4, 6)).astype(np.int32)
TARGET = _draw(4, 3)
ATTENTION = {
    f"{name}.{kind}": _draw(*((16, 16) if kind == "weight" else (16,))) for name in ("q", "k", "v", "o") for kind in ("weight", "bias")
}
"""Square weights."""
WORDS = _draw(4, 5, 16)
STEPS = 3
RATE = 0.05

CASES = {
    "statistics": ("L0", "statistics", 1.0),
    "tensor": ("L0", "tensor", 1.0),
    "mix": ("mix", "statistics", 1.0),
    "planted": ("L0", "statistics", 1.001),
    "planted_tensor": ("mix", "tensor", 1.001),
    "calls": ("L1", "tensor", 1.0),
    "planted_calls": ("L1", "statistics", 1.001),
    "structure": ("mix", "structure", 1.0),
}
"""Name -> level, task, and a factor by which one line of the net is off."""
ATTENTION_CASES = {"attention": ("L1", "tensor"), "attention_mix": ("mix", "statistics")}
"""Another net: name -> level and task."""
