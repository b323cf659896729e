"""A small network whose projections are fused on one side, and the mapping file between the two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from msprobe.comparison.mapping.files import read_mapping
from msprobe.comparison.options import Options

from ..alignment.runs import record

MAPPING = """
tensors:
  - {target: blocks.*.qkv.output.0, golden: [blocks.*.q.output.0, blocks.*.k.output.0, blocks.*.v.output.0], how: {concat: -1}}
  - {target: blocks.*.gate_up.output.0, golden: [blocks.*.gate.output.0, blocks.*.up.output.0], how: {concat: -1}}
"""
WIDTH = 16
Step = Callable[[nn.Module, torch.optim.Optimizer], None]


class Block(nn.Module):
    def __init__(self, fused: bool, bias: bool) -> None:
        super().__init__()
        self.fused = fused
        self.norm = nn.LayerNorm(WIDTH)
        if fused:
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias)
            self.gate_up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        else:
            self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH, bias) for _ in range(3))
            self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        h = self.norm(x)
        query, key, value = torch.split(self.qkv(h), WIDTH, -1) if self.fused else (self.q(h), self.k(h), self.v(h))
        x = x + F.scaled_dot_product_attention(query, key, value)
        gate, up = torch.chunk(self.gate_up(x), 2, -1) if self.fused else (self.gate(x), self.up(x))
        return x + self.down(F.silu(gate) * up)


class Net(nn.Module):
    def __init__(self, fused: bool, bias: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, WIDTH)
        self.blocks = nn.ModuleList(Block(fused, bias) for _ in range(2))
        self.head = nn.Linear(WIDTH, 32, bias=False)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def build(fused: bool, bias: bool = False) -> Net:
    """One network, the same numbers in either shape."""
    torch.manual_seed(0)
    plain = Net(False, bias)
    if not fused:
        return plain
    state, joined = plain.state_dict(), {}
    for block in range(2):
        for name, parts in (("qkv", "q k v"), ("gate_up", "gate up")):
            for kind in ("weight", "bias"):
                values = [state.pop(f"blocks.{block}.{part}.{kind}", None) for part in parts.split()]
                if values[0] is not None:
                    joined[f"blocks.{block}.{name}.{kind}"] = torch.cat(values)
    net = Net(True, bias)
    net.load_state_dict({**state, **joined})
    return net


def ids() -> torch.Tensor:
    return torch.randint(0, 32, (2, 5), generator=torch.Generator().manual_seed(1))


def train(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """One step of training."""
    optimizer.zero_grad()
    F.cross_entropy(net(ids()).flatten(0, 1), ids().flatten()).backward()
    optimizer.step()


def train_clipped(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    F.cross_entropy(net(ids()).flatten(0, 1), ids().flatten()).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    optimizer.step()


def recorded(
    directory: Path,
    net: nn.Module,
    make: Callable[[Any], torch.optim.Optimizer] | None,
    step: Step = train,
    *,
    task: str = "statistics",
    level: str = "mix",
    before: int = 0,
    **settings: Any,
) -> Path:
    """The dump of one step.

    Args:
        make: the optimizer of these parameters; without one, a forward pass is recorded.
        settings: other keys of config.json.
        before: steps that run unrecorded before it, so that the optimizer has a state.
    """
    if make is None:
        return record(directory, net, lambda: net(ids()), task=task, level=level, **settings)
    optimizer = make(net.parameters())
    for _ in range(before):
        step(net, optimizer)
    return record(directory, net, lambda: step(net, optimizer), task=task, level=level, **settings)


def mapped(directory: Path, text: str = MAPPING) -> Options:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "mapping.yaml"
    path.write_text(text, encoding="utf-8")
    names, tensors = read_mapping(path)
    return Options(names=names, tensors=tensors)
