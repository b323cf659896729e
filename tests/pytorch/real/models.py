"""Real architectures in training: small, with random weights, nothing is downloaded.

Each is a function `dropout probability -> Training`, entered into MODELS.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from nets import Training, adam
from torch import nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

MODELS: dict[str, Callable[[float], Training]] = {}

WORDS = 32
TEXT = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ROPE = {**TEXT, "num_key_value_heads": 1, "use_cache": False}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 16,
    "patch_size": 8,
}


def model(make: Callable[[float], Training]) -> Callable[[float], Training]:
    """Enter an architecture into MODELS under its function's name."""
    MODELS[make.__name__] = make
    return make


def training(network: nn.Module, loss_of: Callable[[nn.Module], torch.Tensor]) -> Training:
    """A network in training with AdamW; `loss_of` draws a batch and gives the loss."""
    network.train()

    def forward_backward(_: int) -> torch.Tensor:
        loss = loss_of(network)
        loss.backward()
        return loss

    return Training(network, adam(network), forward_backward)


def padded() -> dict[str, torch.Tensor]:
    """Two sentences, the second shorter."""
    words = torch.randint(3, WORDS, (2, 6))
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[1, 4:] = 0
    return {"input_ids": words, "attention_mask": mask}


def language(network: nn.Module, **kwargs: Any) -> Training:
    """Predicts words: `labels` are the words themselves."""

    def loss_of(net: nn.Module) -> torch.Tensor:
        batch = padded()
        return net(**batch, labels=batch["input_ids"], **kwargs).loss  # type: ignore[no-any-return]

    return training(network, loss_of)


def images(number: int = 2, size: int = 16) -> torch.Tensor:
    return torch.randn(number, 3, size, size)


# The architectures stand in files by kind; importing them enters them into MODELS.
import models_of_images_and_speech  # noqa: E402, F401
import models_of_text  # noqa: E402, F401
import models_written_out  # noqa: E402, F401
