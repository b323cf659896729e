"""Train a tiny Llama with random weights for two steps and record both.

usage: python train.py OUTPUT_DIRECTORY [--broken]
"""

from __future__ import annotations

import argparse
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # everything here is made on the spot; nothing is downloaded

import torch
from broken_layer import break_one_layer
from transformers import LlamaConfig, LlamaForCausalLM

from msprobe.pytorch import PrecisionDebugger, seed_all

STEPS = 2


def make_model() -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=256,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a tiny Llama for two steps and record both.")
    parser.add_argument("output", help="directory of the recording")
    parser.add_argument("--broken", action="store_true", help="train with one faulty layer")
    arguments = parser.parse_args()

    seed_all(1234)
    debugger = PrecisionDebugger(dump_path=arguments.output, level="mix")
    model = make_model()
    if arguments.broken:
        break_one_layer(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        tokens = torch.randint(0, 256, (2, 32))
        debugger.start(model)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        debugger.stop()
        debugger.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
