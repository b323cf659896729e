"""One rank of a training with DistributedDataParallel whose inputs are overridden by those of an earlier one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from capturing import forget_debugger
from ranks import as_rank
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from msprobe.pytorch import PrecisionDebugger

CALL = "Module.module.1.Tanh.forward.0"


def train(directory: Path, name: str, rank: int, shift: float, load: dict[str, Any] | None) -> list[Any]:
    """Two steps; gives what each step's Tanh saw first and the gradient of the layer before it."""
    config: dict[str, Any] = {"task": "tensor", "level": "L0", "dump_path": str(directory / name)}
    if load is not None:
        config["load"] = {"path": str(directory / "golden"), "modules": [CALL], **load}
    path = directory / f"{name}{rank}.json"
    path.write_text(json.dumps(config))
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    model = DistributedDataParallel(inner)
    debugger = PrecisionDebugger(config_path=str(path))
    seen: list[Any] = []
    inner[1].register_forward_hook(lambda module, args, output: seen.append(args[0].detach().tolist()))
    outcome = []
    for step in range(2):
        model.zero_grad()
        debugger.start(model)
        x = torch.full((1, 3), 10.0 * step + rank + shift)
        model(x).sum().backward()
        debugger.stop()
        debugger.step()
        outcome.append({"seen": seen.pop(), "gradient": inner[0].weight.grad.tolist(), "x": x.tolist()})
    forget_debugger()
    return outcome


def body(rank: int, world: int, directory: Path) -> Any:
    found = {"golden": train(directory, "golden", rank, 0, None)}
    torch.distributed.barrier()
    for name, load in (
        ("aligned", {"dump_after_load": True}),
        ("one rank", {"rank": [1]}),
        ("from rank 1", {"source_rank": 1}),
        ("from step 1", {"source_step": 1}),
        ("one step", {"step": [1]}),
    ):
        found[name] = train(directory, name, rank, 0.25, load)
    return found


if __name__ == "__main__":
    as_rank(body)
