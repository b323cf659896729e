"""One rank of a DistributedDataParallel training, run by test_neutrality_of_ddp.py; writes what came of it as JSON."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from capturing import configured, forget_debugger
from nets import bits, randomness, seed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from msprobe.pytorch import PrecisionDebugger

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bucket views": {"gradient_as_bucket_view": True},
    "unused": {"find_unused_parameters": True},
}


def digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def training(rank: int, start: Callable[[Any], None], stop: Callable[[], None], **options: Any) -> list[str]:
    seed()
    inner = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(6, 6), nn.Linear(6, 2))
    model = DistributedDataParallel(inner, bucket_cap_mb=0.0001, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    seed(rank)
    found = []
    for _ in range(3):
        optimizer.zero_grad()
        start(model)
        with model.no_sync():
            model(torch.randn(3, 4)).square().mean().backward()
        loss = model(torch.randn(3, 4)).square().mean()
        loss.backward()
        total = loss.detach().clone()
        work = dist.all_reduce(total, async_op=True)
        found.append(f"{work.wait()} {digest(bits(total))}")
        found += [digest(bits(loss)), *(digest(bits(p.grad)) for p in model.parameters())]
        optimizer.step()
        stop()
    return found + [digest(bits(t)) for t in [*model.parameters(), *model.buffers()]] + [digest(randomness())]


def main(rank: int, world: int, port: str, directory: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    outcome: dict[str, list[str]] = {}
    for kind, options in KINDS.items():
        outcome[f"{kind} without"] = training(rank, lambda model: None, lambda: None, **options)
        for level in ("L0", "L1", "mix"):
            dump = directory / f"{kind} {level}"
            (directory / f"config {rank}").mkdir(exist_ok=True)
            debugger = configured(directory / f"config {rank}", level=level, task="tensor", dump_path=str(dump), risk_level="ALL")

            def stop(debugger: PrecisionDebugger = debugger) -> None:
                debugger.stop()
                debugger.step()

            outcome[f"{kind} {level}"] = training(rank, debugger.start, stop, **options)
            forget_debugger()
            dist.barrier()
    (directory / f"outcome{rank}.json").write_text(json.dumps(outcome))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
