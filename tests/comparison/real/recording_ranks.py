"""Two ranks train and record themselves: `recording_ranks.py DUMP_PATH FACTOR`; rank 1 multiplies by FACTOR in step 1."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank: int, out: str, factor: float, store: str) -> None:
    from msprobe.pytorch import PrecisionDebugger

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    debugger = PrecisionDebugger(config_path=f"{out}.json")
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        debugger.start(model)
        result = torch.mul(model(torch.randn(4, 8)).tanh(), factor if rank == step == 1 else 1.0)
        result.pow(2).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        debugger.stop()
        debugger.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    path, factor = sys.argv[1], float(sys.argv[2])
    Path(f"{path}.json").write_text(json.dumps({"task": "statistics", "dump_path": path, "level": "mix", "rank": [], "step": []}))
    mp.start_processes(train, args=(path, factor, f"{path}.store"), nprocs=2, start_method="fork")
