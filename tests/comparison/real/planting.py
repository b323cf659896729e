"""Records one training step of a tiny language model with random weights, with a fault planted into it or not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
from torch import nn

from msprobe.pytorch import PrecisionDebugger
from pytorch.capturing import forget_debugger

WORDS, LENGTH, BATCH = 48, 12, 2
SIZES: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

Step = Callable[[nn.Module, torch.Tensor], None]
"""What a training step does with the model and the token ids."""


def llama(seed: int = 7, **changes: Any) -> nn.Module:
    """Llama with three layers; the same weights for the same sizes."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    settings = {"attn_implementation": "eager", "initializer_range": 0.2, **SIZES, **changes}
    return LlamaForCausalLM(LlamaConfig(**settings)).train()


def mixture(**changes: Any) -> nn.Module:
    """Mixtral: two layers with four experts each."""
    from transformers import MixtralConfig, MixtralForCausalLM

    torch.manual_seed(7)
    settings = {
        "attn_implementation": "eager",
        "initializer_range": 0.2,
        **SIZES,
        "num_hidden_layers": 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        **changes,
    }
    return MixtralForCausalLM(MixtralConfig(**settings)).train()


def tokens(count: int = BATCH) -> torch.Tensor:
    return torch.randint(3, WORDS, (count, LENGTH), generator=torch.Generator().manual_seed(11))


def train(model: nn.Module, ids: torch.Tensor) -> None:
    """Forward, loss, backward."""
    model(input_ids=ids, labels=ids).loss.backward()


def record(directory: Path, model: nn.Module, step: Step = train, *, level: str = "mix", task: str = "statistics", **section: str) -> Path:
    """Records one step; returns the dump root."""
    forget_debugger()
    config = directory.with_suffix(".json")
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps({"task": task, "level": level, "dump_path": str(directory), task: section}))
    debugger = PrecisionDebugger(config_path=str(config))
    torch.manual_seed(3)
    debugger.start(model)
    step(model, tokens())
    debugger.stop()
    debugger.step()
    forget_debugger()
    return directory
