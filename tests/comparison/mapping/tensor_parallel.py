"""A block of two linear layers, whole or on several ranks: the first layer split by columns, the second by rows.

Run as a script: tensor_parallel.py RANK WORLD_SIZE STORE DUMP_PATH TASK FAULT
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from msprobe.pytorch import PrecisionDebugger

WIDTH, HIDDEN = 8, 16


class Reduced(torch.autograd.Function):
    """Adds up over the ranks on the way forward; its gradient is that of the sum on every rank."""

    @staticmethod
    def forward(context: Any, x: Any) -> Any:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        return gradient


class Copied(torch.autograd.Function):
    """The same on every rank; its gradient adds up over them."""

    @staticmethod
    def forward(context: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class Mlp(nn.Module):
    def __init__(self, rank: int, world: int) -> None:
        super().__init__()
        torch.manual_seed(3)
        up, down = torch.randn(HIDDEN, WIDTH), torch.randn(WIDTH, HIDDEN)
        share = HIDDEN // world
        mine = slice(rank * share, (rank + 1) * share)
        self.world = world
        self.up, self.down = nn.Linear(WIDTH, share, bias=False), nn.Linear(share, WIDTH, bias=False)
        with torch.no_grad():
            self.up.weight.copy_(up[mine])
            self.down.weight.copy_(down[:, mine])

    def forward(self, x: Any) -> Any:
        if self.world > 1:
            x = Copied.apply(x)
        y = self.down(torch.relu(self.up(x)))
        return Reduced.apply(y) if self.world > 1 else y


class Model(nn.Module):
    def __init__(self, rank: int, world: int) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(WIDTH), Mlp(rank, world)

    def forward(self, x: Any) -> Any:
        return x + self.mlp(self.norm(x))


def main(rank: int, world: int, store: str, dump_path: str, task: str, fault: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    model = Model(rank, world)
    if fault and rank == world - 1:
        with torch.no_grad():
            model.mlp.up.weight[0, 0] += 1.0
    torch.manual_seed(4)
    x = torch.randn(2, 5, WIDTH)
    debugger = PrecisionDebugger(task=task, dump_path=dump_path, level="mix")
    debugger.start(model)
    model(x).square().mean().backward()
    debugger.stop()
    debugger.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
