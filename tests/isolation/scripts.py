"""Scripts that the tests isolate, and the way they are run."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msprobe.isolation.isolate import Options, Result, isolate

BEGIN = """
import os
import torch
from torch import nn
from torch.nn import functional as F
from msprobe.pytorch import PrecisionDebugger
FAULT = os.environ.get("FAULT", "")
"""

BLOCKS = (
    BEGIN
    + """
class Attention(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.q, self.v, self.o = nn.Linear(size, size), nn.Linear(size, size), nn.Linear(size, size)
        self.scale = 1.0

    def forward(self, x, mask=None):
        q, v = self.q(x), self.v(x)
        weights = torch.softmax(q @ q.transpose(-1, -2) * self.scale, -1)
        return self.o(weights @ v)

class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm, self.attention, self.out = nn.LayerNorm(size), Attention(size), nn.Linear(size, size)
        self.gain, self.tail, self.mask = 1.0, 1.0, 3

    def forward(self, x):
        h = x + self.gain * self.attention(self.norm(x), mask=self.mask)
        return (h + self.out(h)) * self.tail

class Net(nn.Module):
    def __init__(self, size=8, depth=4):
        super().__init__()
        self.embed = nn.Linear(4, size)
        self.blocks = nn.ModuleList(Block(size) for _ in range(depth))
        self.head = nn.Linear(size, 2)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

torch.manual_seed(0)
class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1.5

net = Net()
if "halved" in FAULT:
    net = net.bfloat16()
if "derivative" in FAULT:
    net.blocks[1].attention.o.forward = lambda x: Wrong.apply(F.linear(x, *net.blocks[1].attention.o.parameters()))
if "detached" in FAULT:
    net.blocks[1].attention.o.forward = lambda x: F.linear(x.detach(), *net.blocks[1].attention.o.parameters())
if "between" in FAULT:
    net.blocks[2].attention.q.register_forward_hook(lambda module, args, output: Wrong.apply(output))
if "leaf" in FAULT:
    out = net.blocks[1].out
    out.forward = lambda x: F.linear(x, out.weight, out.bias) * 1.1  # the leaf
if "again" in FAULT:
    net.blocks[0].attention.o.forward = lambda x: torch.full_like(x, float("nan"))
if "scale" in FAULT:
    net.blocks[2].attention.scale = 1.5
if "gain" in FAULT:
    net.blocks[0].gain = 1.2
if "tail" in FAULT:
    net.blocks[3].tail = 1.3
if "mask" in FAULT:
    net.blocks[3].mask = 4
if "weight" in FAULT:
    with torch.no_grad():
        net.blocks[1].attention.v.weight[0, 0] += 1
if "data" in FAULT:
    torch.randn(1)
if "rounding" in FAULT:
    net.blocks[1].out.forward = lambda x: F.linear(x.double(), *[p.double() for p in net.blocks[1].out.parameters()]).float()
debugger = PrecisionDebugger(config_path="config.json")
for step in range(int(os.environ.get("STEPS", "2"))):
    debugger.start(net)
    data = torch.randn(3, 5, 4)
    loss = net(data.bfloat16() if "halved" in FAULT else data).square().mean()
    if "backward" in FAULT:
        loss = loss * 2
    loss.backward()
    debugger.stop()
    if "late" in FAULT and step == 0:
        debugger.step()
        raise ValueError("too late to matter")
    debugger.step()
    print("step", step, "is over")
print("the end")
"""
)

BUFFERS = (
    BEGIN
    + """
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4))
if "momentum" in FAULT:
    net[1].momentum = 0.5
debugger = PrecisionDebugger(config_path="config.json")
for step in range(2):
    debugger.start(net)
    net(torch.randn(8, 4)).square().mean().backward()
    debugger.stop()
    debugger.step()
"""
)

IN_PLACE = (
    BEGIN
    + """
class Double(nn.Module):
    def forward(self, x):
        x.mul_(2)

class Spoil(nn.Module):
    def forward(self, x):
        y = x * 2
        if "spoil" in FAULT:
            x.mul_(1.5)
        return y

class Know(nn.Module):
    seen = None

    def forward(self, x):
        if "crash" in FAULT and x.data_ptr() != self.seen:
            raise RuntimeError("not the tensor that I know")
        return x + 1

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.twice, self.b = nn.Linear(4, 4), Double(), nn.Linear(4, 4)
        self.spoil, self.c, self.d = Spoil(), nn.Linear(4, 4), nn.Linear(4, 4)
        self.know, self.e = Know(), nn.Linear(4, 4)

    def forward(self, x):
        x = self.a(x)
        self.twice(x)
        if "after" in FAULT:
            x = x * 1.1
        x = self.b(x)
        z = self.d(self.c(self.spoil(x)) + x)
        self.know.seen = z.data_ptr()
        return self.e(self.know(z))

torch.manual_seed(0)
net = Net()
debugger = PrecisionDebugger(config_path="config.json")
if "fail" in FAULT:
    net.e.forward = lambda x: 1 / 0
with torch.no_grad():
    debugger.start(net)
    net(torch.randn(2, 4))
    debugger.stop()
    debugger.step()
"""
)

LLAMA = (
    BEGIN
    + """
import transformers
from transformers.models.llama import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=24, num_attention_heads=2, num_key_value_heads=2,
    attn_implementation="eager",
)
net = LlamaForCausalLM(config)
layers = net.model.layers
if "leaf" in FAULT:
    projection = layers[17].mlp.down_proj
    projection.forward = lambda x: F.linear(x, projection.weight) * 1.05
if "norm" in FAULT:
    layers[9].post_attention_layernorm.variance_epsilon = 1e-2
if "attention" in FAULT:
    layers[5].self_attn.scaling *= 2
debugger = PrecisionDebugger(config_path="config.json")
ids = torch.arange(12).reshape(2, 6)
debugger.start(net)
net(ids, labels=ids).loss.backward()
debugger.stop()
debugger.step()
"""
)

RANKS = (
    BEGIN
    + """
import sys
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=sys.argv[2], rank=rank, world_size=2)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
if "rank" in FAULT and rank == 1:
    relu = net[1]
    relu.forward = lambda x: x.clamp(min=0.1)
model = DistributedDataParallel(net)
debugger = PrecisionDebugger(config_path="config.json")
torch.manual_seed(rank)
for _ in range(2):
    debugger.start(model)
    model(torch.randn(2, 4)).sum().backward()
    debugger.stop()
    debugger.step()
del model  # a reducer must not be the last to hold the group: see leave_group in tests/integrations/ranks.py
dist.destroy_process_group()
"""
)

LAUNCHER = """
import subprocess, sys
*client, script = sys.argv[1:]
import tempfile
rendezvous = "file://" + tempfile.mktemp()
ranks = [subprocess.Popen([*client, script, str(rank), rendezvous]) for rank in range(2)]
sys.exit(max(rank.wait() for rank in ranks))
"""


@dataclass
class Scripts:
    """Runs scripts as processes.

    Attributes:
        client: the beginning of a command.
        directory: where all of it happens.
        lines: what the latest `isolate` said, line by line.
    """

    client: list[str]
    directory: Path
    lines: list[str] = field(default_factory=list)

    def write(self, source: str, name: str = "train.py") -> list[str]:
        """The command that runs this script."""
        (self.directory / name).write_text(source)
        return [*self.client, name]

    def record(self, command: list[str], level: str = "L0", task: str = "tensor", **environment: str) -> Path:
        """The dump that the script makes by itself."""
        dump = self.directory / "golden"
        (self.directory / "config.json").write_text(json.dumps({"dump_path": str(dump), "task": task, "level": level}))
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return dump

    def isolate(self, command: list[str], fault: str = "", **options: Any) -> Result:
        """Searches in a directory `isolate`."""
        self.lines = []
        os.environ["FAULT"] = fault
        try:
            chosen = Options(**{"golden": self.directory / "golden", "output": self.directory / "isolate", **options}, command=command)
            return isolate(chosen, lambda line: self.lines.append(line.text))
        finally:
            del os.environ["FAULT"]

    @property
    def runs(self) -> int:
        """How many runs the latest search made, or took over."""
        return len(json.loads((self.directory / "isolate" / "isolate.json").read_text())["runs"])
