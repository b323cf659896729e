"""Faults as people make them, each planted into the tiny model or into its training step."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .planting import llama, train


def transposed_weight() -> nn.Module:
    """A checkpoint converted without, or with one more, transposition: shapes fit, as the matrix is square."""
    model = llama()
    weight = model.get_submodule("model.layers.1.self_attn.q_proj").weight
    with torch.no_grad():
        weight.copy_(weight.T.clone())
    return model


def dropout_left_on() -> nn.Module:
    """Dropout of the attention weights, which the golden run has turned off."""
    return llama(attention_dropout=0.3)


def wrong_causal_mask() -> nn.Module:
    """Every position also sees the next one."""
    model = llama()
    layers: Any = model.get_submodule("model.layers")
    for layer in layers:
        attention = layer.self_attn
        forward = attention.forward

        def shifted(*args: Any, _forward: Any = forward, **kwargs: Any) -> Any:
            mask = kwargs.get("attention_mask")
            if mask is not None:
                mask = torch.triu(torch.full_like(mask, torch.finfo(mask.dtype).min), diagonal=2)
            return _forward(*args, **{**kwargs, "attention_mask": mask})

        attention.forward = shifted
    return model


def missing_residual() -> nn.Module:
    """The second layer forgets to add what came in."""
    model = llama()
    layer: Any = model.get_submodule("model.layers.1")

    def without(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        states, _ = layer.self_attn(layer.input_layernorm(hidden_states), *args, **kwargs)  # no `hidden_states +`
        return states + layer.mlp(layer.post_attention_layernorm(states))

    layer.forward = without
    return model


def rotary_off_by_one() -> nn.Module:
    """Positions begin at 1 where the table is made."""
    model = llama()
    rotary: Any = model.get_submodule("model.rotary_emb")
    forward = rotary.forward
    rotary.forward = lambda x, position_ids: forward(x, position_ids + 1)
    return model


def untied_weight() -> nn.Module:
    """The output layer should share the embedding's weight and has a copy of it: values agree, gradients do not."""
    model = llama(tie_word_embeddings=True)
    head: Any = model.get_submodule("lm_head")
    head.weight = nn.Parameter(head.weight.detach().clone())
    return model


def one_expert_swapped(model: nn.Module) -> nn.Module:
    """Two experts of the second layer have each other's place."""
    experts = model.get_submodule("model.layers.1.mlp.experts")
    with torch.no_grad():
        for weight in experts.parameters():
            weight[[0, 1]] = weight[[1, 0]].clone()
    return model


def label_shift(model: nn.Module, ids: torch.Tensor) -> None:
    """Labels are shifted once by the user and once more by the loss."""
    labels = torch.cat([ids[:, 1:], torch.full((ids.shape[0], 1), -100)], dim=1)
    model(input_ids=ids, labels=labels).loss.backward()


def accumulate(model: nn.Module, ids: torch.Tensor, *, clip_each: bool = False) -> None:
    """Two micro-batches; the gradient is clipped once at the end, or, the fault, after each."""
    for index in range(2):
        train(model, ids[index : index + 1])
        if clip_each:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    if not clip_each:
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)


def accumulate_and_clip_each(model: nn.Module, ids: torch.Tensor) -> None:
    accumulate(model, ids, clip_each=True)
