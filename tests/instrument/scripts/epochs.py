#!/usr/bin/env python
# -*- coding: utf-8 -*-
'''Nested epochs, validation after each.'''
from __future__ import annotations

import sys
sys.path.append(".")
import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


def validate(net: nn.Module, loader: list) -> float:
    net.eval()
    with torch.no_grad():
        return sum(F.mse_loss(net(x), y).item() for x, y in loader)


def main() -> None:
    net = Net()
    criterion = nn.MSELoss()
    opt = torch.optim.AdamW(net.parameters())
    loader = [(torch.randn(2, 4), torch.randn(2, 4)) for _ in range(2)]
    for epoch in range(2):
        net.train()
        for step, (x, y) in enumerate(loader):
            opt.zero_grad()
            loss = criterion(net(x), y)
            loss.backward()
            opt.step()
            if step % 10 == 0:
                print(f"{epoch} {step}")
        validate(net, loader)


if __name__ == "__main__":
    main()
# recorded: for step, (x, y) in enumerate(loader): | net | 4
