"""A rewritten MLP with a mistake in it, as it happens when a layer is ported by hand."""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.llama import modeling_llama


class LlamaMLP(modeling_llama.LlamaMLP):
    """Has the name, the weights and the shapes of the real one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.gate_proj(x)
        up = self.up_proj(x)
        return self.down_proj(self.act_fn(up) * gate)  # the fault: the activation belongs to the gate


def break_one_layer(model: Any) -> None:
    """Put the faulty MLP into the third layer of a Llama model."""
    model.model.layers[2].mlp.__class__ = LlamaMLP
