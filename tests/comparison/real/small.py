"""A small net of our own, without transformers: two blocks of a layer norm and a perceptron between an embedding and a head."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .planting import WORDS

WIDTH = 32


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mlp = Mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(self.norm(x))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def small(seed: int = 5) -> Any:
    torch.manual_seed(seed)
    return Small()


def train(model: nn.Module, ids: torch.Tensor) -> None:
    nn.functional.cross_entropy(model(ids).float().flatten(0, 1), ids.flatten()).backward()


def train_in_autocast(model: nn.Module, ids: torch.Tensor) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(model(ids).float().flatten(0, 1), ids.flatten())
    loss.backward()
