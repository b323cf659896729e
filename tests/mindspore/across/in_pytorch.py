"""Trains the net in PyTorch, once for each level and task, into a directory of its own below the working directory."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from across.weights import ATTENTION, ATTENTION_CASES, CASES, RATE, STEPS, TARGET, TOKENS, WEIGHTS, WORDS
from torch import nn

from msprobe.pytorch import PrecisionDebugger


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.bn = nn.BatchNorm2d(2)
        self.blocks = nn.Sequential(nn.Linear(96, 6), nn.ReLU())
        self.norm = nn.LayerNorm(6)
        self.flat, self.head = nn.Flatten(), nn.Linear(6, 3)

    def forward(self, tokens):
        h = torch.unsqueeze(self.embed(tokens), 1)
        h = self.flat(torch.relu(self.bn(self.conv(h))))
        h = self.norm(self.blocks(h)) * 1.0
        return self.head(torch.tanh(h))


def begun(name, level, task):
    PrecisionDebugger._instance = None
    Path(f"pt_{name}.json").write_text(json.dumps({"task": task, "level": level, "dump_path": f"pt_{name}", task: {}}))
    return PrecisionDebugger(f"pt_{name}.json")


def train(name, level, task):
    debugger = begun(name, level, task)
    net = Net()
    net.load_state_dict({key: torch.from_numpy(value) for key, value in WEIGHTS.items()}, strict=False)
    optimizer = torch.optim.SGD(net.parameters(), RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        debugger.start(net)
        torch.square(net(torch.from_numpy(TOKENS)) - torch.from_numpy(TARGET)).mean().backward()
        debugger.stop()
        debugger.step()
        optimizer.step()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x):
        q, k, v = (layer(x).reshape(4, 5, 2, 8).permute(0, 2, 1, 3) for layer in (self.q, self.k, self.v))
        scores = torch.softmax(torch.matmul(q, k.permute(0, 1, 3, 2)) / 2.0, -1)
        return x + self.o(torch.matmul(scores, v).permute(0, 2, 1, 3).reshape(4, 5, 16))


def attend(name, level, task):
    debugger = begun(name, level, task)
    net = Attention()
    net.load_state_dict({key: torch.from_numpy(value) for key, value in ATTENTION.items()})
    debugger.start(net)
    torch.square(net(torch.from_numpy(WORDS))).sum().backward()
    debugger.stop()
    debugger.step()


for name, (level, task, _) in CASES.items():
    train(name, level, task)
for name, case in ATTENTION_CASES.items():
    attend(name, *case)
