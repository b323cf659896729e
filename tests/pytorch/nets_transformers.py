"""Tiny models with random weights from the `transformers` library; nothing is downloaded."""

from __future__ import annotations

import os
from typing import Any

import torch
from nets import Training, adam, net
from torch import nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
_SIZES = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 16,
}


def _training(model: nn.Module, **kwargs: Any) -> Training:
    model.train()

    def forward_backward(_: int) -> torch.Tensor:
        words = torch.randint(1, 32, (2, 6))
        mask = torch.ones(2, 6, dtype=torch.long)
        mask[1, 4:] = 0
        loss = model(input_ids=words, attention_mask=mask, labels=words, **kwargs).loss
        loss.backward()
        return loss

    return Training(model, adam(model), forward_backward)


@net
def llama(dropout: float) -> Training:
    from transformers import LlamaConfig, LlamaForCausalLM

    return _training(LlamaForCausalLM(LlamaConfig(**_SIZES, num_key_value_heads=1, attention_dropout=dropout, use_cache=False)))


@net
def llama_with_cache_and_eager_attention(dropout: float) -> Training:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(**_SIZES, num_key_value_heads=2, attention_dropout=dropout, tie_word_embeddings=True, attn_implementation="eager")
    return _training(LlamaForCausalLM(config), output_hidden_states=True, output_attentions=True)


@net
def bert(dropout: float) -> Training:
    from transformers import BertConfig, BertForMaskedLM

    return _training(BertForMaskedLM(BertConfig(**_SIZES, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)))


@net
def mixtral(dropout: float) -> Training:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        **_SIZES,
        num_key_value_heads=1,
        num_local_experts=3,
        num_experts_per_tok=2,
        attention_dropout=dropout,
        output_router_logits=True,
        use_cache=False,
    )
    return _training(MixtralForCausalLM(config))
