"""Runs a script of this directory as several ranks over gloo on this machine, and reads what each of them found."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from capturing import Step, environment

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def run_ranks(script: str, world: int, directory: Path, timeout: float = 150) -> list[Any]:
    """Run `script` as `world` ranks; each gets `rank world port directory` and its return value comes back."""
    import warm_python  # not where a rank imports this file

    path = {**environment(), "GLOO_SOCKET_IFNAME": "lo"}
    path["PYTHONPATH"] += f"{os.pathsep}{HERE}{os.pathsep}{HERE.parent}"
    command = [*warm_python.command(), str(HERE / script)]
    port = str(free_port())
    ranks = [
        subprocess.Popen([*command, str(rank), str(world), port, str(directory)], env=path, stderr=subprocess.PIPE, text=True)
        for rank in range(world)
    ]
    try:
        errors = [rank.communicate(timeout=timeout)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * world, "\n".join(errors)[-6000:]
    return [json.loads((directory / f"outcome{rank}.json").read_text()) for rank in range(world)]


def as_rank(body: Callable[[int, int, Path], Any], early: Callable[[int, Path], None] | None = None) -> None:
    """What a script does as one rank: join the others, run `body(rank, world, directory)` and write what it gives.

    Args:
        body: runs with a process group.
        early: `early(rank, directory)` runs before there is one.
    """
    import torch
    import torch.distributed as dist

    rank, world, port, directory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    torch.set_num_threads(1)
    if early is not None:
        early(rank, directory)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    outcome = body(rank, world, directory)
    (directory / f"outcome{rank}.json").write_text(json.dumps(outcome))
    dist.barrier()
    dist.destroy_process_group()


def step_of(root: Path, step: int, rank: int) -> Step:
    """The directory of one rank's step."""
    return Step(root / f"step{step}" / f"rank{rank}")
