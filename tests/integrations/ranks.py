"""Starts the ranks of a distributed script with the environment that torchrun gives them."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
from pathlib import Path

from pytorch.capturing import environment


def as_torchrun(
    directory: Path, module: str, *arguments: str, ranks: int = 2, timeout: float = 100
) -> list[subprocess.CompletedProcess[str]]:
    """Run `python -m module` on each rank; the end of their standard errors comes along."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    path = {**environment(), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    path["PYTHONPATH"] += f":{Path(__file__).parents[1]}"
    command = [sys.executable, "-m", module, *arguments]
    started = []
    for rank in range(ranks):
        own = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "TORCHELASTIC_RUN_ID": "x",
        }
        started.append(subprocess.Popen(command, env={**path, **own}, cwd=directory, stderr=subprocess.PIPE, text=True))
    try:
        errors = [process.communicate(timeout=timeout)[1][-3000:] for process in started]
    finally:
        for process in started:
            process.kill()
    return [subprocess.CompletedProcess(command, process.returncode, "", error) for process, error in zip(started, errors, strict=True)]


def leave_group() -> None:
    """End a rank's process group; called once nothing in the script refers to a DistributedDataParallel any more.

    Where a reducer of torch is the last to hold a group of gloo, it joins gloo's thread without releasing the GIL, which that
    thread may be waiting for (https://github.com/pytorch/pytorch/issues/56297): on a busy machine one such script in five hangs,
    without the tool too.
    """
    import torch.distributed as dist

    gc.collect()
    dist.destroy_process_group()
