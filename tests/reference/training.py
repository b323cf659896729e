"""A small training step that either tool records: run with the interpreter that has it.

usage: python training.py DUMP_PATH TASK LEVEL GAIN
"""

from __future__ import annotations

import json
import sys

import torch
from torch import nn
from torch.nn import functional as F

from msprobe.pytorch import PrecisionDebugger

dump_path, task, level, gain = sys.argv[1:]
config = {"task": task, "dump_path": dump_path, "rank": [], "step": [], "level": level, "risk_level": "ALL", task: {"data_mode": ["all"]}}
with open(f"{dump_path}.json", "w") as file:
    json.dump(config, file)
debugger = PrecisionDebugger(config_path=f"{dump_path}.json")
torch.manual_seed(0)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x)))) * float(gain)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 11)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(torch.tanh(x))


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    ids = torch.randint(0, 11, (2, 5))
    debugger.start(model=model)
    loss = F.cross_entropy(model(ids).view(-1, 11), ids.view(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    debugger.stop()
    debugger.step()
