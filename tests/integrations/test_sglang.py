"""SGLang has msprobe built in (`--msprobe-dump-config`). Stand-ins for its workers: with data parallelism each is alone in a process group
of its own, so that torch says rank 0 to all of them; start(rank_id=self.gpu_id) tells them apart.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import warm_python
from pytorch.capturing import environment

WORKER = """
import sys, time
from pathlib import Path
import torch
from msprobe.pytorch import PrecisionDebugger, seed_all

class ModelRunner:
    def __init__(self, gpu_id, dp_size, config):
        self.gpu_id, self.dp_size = gpu_id, dp_size
        seed_all(mode=True)
        self.msprobe_debugger = PrecisionDebugger(config_path=config)
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
        self.forward_pass_id = 0

    def forward(self, batch):
        self.forward_pass_id += 1
        if self.msprobe_debugger is not None:
            rank_id = self.gpu_id if self.dp_size is not None and self.dp_size > 1 else None
            self.msprobe_debugger.start(model=self.model, rank_id=rank_id)
        with torch.inference_mode():
            output = self.model(batch)
        if self.msprobe_debugger is not None:
            self.msprobe_debugger.stop()
            self.msprobe_debugger.step()
        return output

gpu_id, config, directory = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
torch.distributed.init_process_group("gloo", init_method=f"file://{directory}/store{gpu_id}", rank=0, world_size=1)
assert torch.distributed.get_rank() == 0
runner = ModelRunner(gpu_id, 2, config)
(directory / f"ready{gpu_id}").touch()
while not (directory / f"ready{1 - gpu_id}").exists():
    time.sleep(0.01)
for number in range(2):
    runner.forward(torch.full((2, 3), float(10 * gpu_id + number)))
torch.distributed.destroy_process_group()
"""


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """What two workers at a time have recorded."""
    config = {"task": "statistics", "dump_path": str(tmp_path / "dump"), "rank": [], "step": [], "level": "mix"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = [*warm_python.command(), "-c", WORKER]
    workers = [
        subprocess.Popen(
            [*command, str(gpu), str(tmp_path / "config.json"), str(tmp_path)], env=environment(), stderr=subprocess.PIPE, text=True
        )
        for gpu in (0, 1)
    ]
    for worker in workers:
        _, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors
    return tmp_path / "dump"


def test_workers_with_equal_ranks_have_directories_of_their_own(recorded: Path) -> None:
    for number in (0, 1):
        step = recorded / f"step{number}"
        assert sorted(path.name for path in step.iterdir()) == ["rank0", "rank1"]
        for gpu in (0, 1):
            data = json.loads((step / f"rank{gpu}" / "dump.json").read_text())["data"]
            taken_in = data["Module.0.Linear.forward.0"]["input_args"][0]
            assert taken_in["Max"] == 10 * gpu + number
            assert json.loads((step / f"rank{gpu}" / "meta.json").read_text())["rank"] == gpu
