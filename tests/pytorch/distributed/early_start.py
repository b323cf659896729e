"""One rank whose first step starts before init_process_group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from capturing import configured
from ranks import as_rank

from msprobe.pytorch import PrecisionDebugger


def early(rank: int, directory: Path) -> None:
    (directory / f"config{rank}").mkdir()
    debugger = configured(directory / f"config{rank}", level="L1", task="tensor", dump_path=str(directory / "dump"), risk_level="ALL")
    debugger.start()
    torch.relu(torch.full((2,), float(rank)))


def body(rank: int, world: int, directory: Path) -> Any:
    for _ in range(3):
        PrecisionDebugger.start()
        dist.all_reduce(torch.ones(2) * (rank + 1))
        PrecisionDebugger.stop()
        PrecisionDebugger.step()
    return None


if __name__ == "__main__":
    as_rank(body, early)
