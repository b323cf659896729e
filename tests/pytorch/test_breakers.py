"""What somebody who tried to break it found: each stays mended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import Run, configured

import warm_python
from msprobe.errors import DumpFormatError, UsageError
from msprobe.format import reader
from msprobe.pytorch.reproducibility.random_save import random_save

SHRUNK = """
import sys, torch
from msprobe.pytorch import PrecisionDebugger

class Pass(torch.nn.Module):
    def forward(self, x):
        return x

tensors = [torch.ones(20_000_000), torch.ones(5000, 4000).t(), torch.ones(1, 20_000_000).expand(3, -1)]
for tensor in tensors:
    tensor.untyped_storage().resize_(16)
debugger = PrecisionDebugger(sys.argv[1], dump_path=sys.argv[2])
model = torch.nn.Sequential(Pass())
debugger.start(model)
for tensor in tensors:
    model(tensor)
debugger.stop()
debugger.step()
print("survived")
"""


@pytest.mark.parametrize("config", [{}, {"summary_mode": "md5"}, {"summary_mode": "xor"}, {"task": "tensor"}], ids=str)
def test_a_storage_that_was_shrunk_is_not_read(config: dict[str, Any], tmp_path: Path) -> None:
    task = config.get("task", "statistics")
    section = {key: value for key, value in config.items() if key != "task"}
    (tmp_path / "c.json").write_text(json.dumps({"task": task, "dump_path": "d", "level": "L0", task: section}))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*warm_python.command(), "-c", SHRUNK, str(tmp_path / "c.json"), str(tmp_path / "dump")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "survived\n", (done.returncode, done.stderr)
    step = Run(tmp_path / "dump").step(0)
    assert "its storage is smaller than its shape says" in (step.directory / "dump_error_info.log").read_text()
    assert step.data["Module.0.Pass.forward.0"]["output"][0]["shape"] == [20_000_000]


def test_defaults_that_change_in_the_window(tmp_path: Path) -> None:
    module: Any = types.ModuleType("mine")

    def scale(x: torch.Tensor, k: float = 2.0, *, plus: float = 0.0) -> torch.Tensor:
        return x * k + plus

    module.scale = scale
    debugger = configured(tmp_path, level="L1", risk_level="ALL")
    debugger.register_custom_api(module, "scale")
    debugger.start()
    scale.__defaults__, scale.__kwdefaults__ = (5.0,), {"plus": 1.0}
    assert module.scale(torch.ones(1)).item() == 6.0
    debugger.stop()
    assert module.scale(torch.ones(1)).item() == 6.0
    debugger.restore_custom_api(module, "scale")


def test_only_the_calls_whose_view_was_changed_are_blamed(tmp_path: Path) -> None:
    """Nodes of an earlier backward pass are gone, and their addresses are used again."""
    debugger = configured(tmp_path, level="L1", risk_level="ALL")
    debugger.start()
    for _ in range(6):
        x = torch.ones(3, 2, requires_grad=True)
        z = torch.exp(x) * 1
        z[0].add_(1)
        z.sum().backward()
    debugger.stop()
    debugger.step()
    told = (Run(tmp_path / "dump").step(0).directory / "dump_error_info.log").read_text().splitlines()
    for line in told:
        name, _, rest = line.partition(": ")
        assert name.split(".")[1] in ("add_", "__getitem__"), line
        assert f".{name.split('.')[2]}." in rest or "(by" not in rest, line


def test_a_pipe_in_the_place_of_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "dump.json")
    with pytest.raises(DumpFormatError, match="is not a file"):
        reader.read_dump(tmp_path / "dump.json")


def test_a_live_configuration_that_becomes_a_pipe(tmp_path: Path) -> None:
    debugger = configured(tmp_path, level="L1", dump_enable=True)
    path = next(tmp_path.glob("*.json"))
    path.unlink()
    os.mkfifo(path)
    debugger.start()
    torch.ones(2).relu()
    debugger.stop()
    debugger.step()
    assert Run(tmp_path / "dump").step(0).data


class Odd:
    @property
    def raising(self) -> Any:
        raise ValueError("up")


def test_what_cannot_be_registered_is_an_error_and_recording_goes_on(tmp_path: Path) -> None:
    import builtins

    debugger = configured(tmp_path, level="L1", risk_level="ALL")
    debugger.start()
    for owner, name in ((Odd(), "raising"), (builtins, "len")):
        with pytest.raises(UsageError, match="register_custom_api"):
            debugger.register_custom_api(owner, name)
    torch.relu(torch.ones(2))
    debugger.stop()
    debugger.step()
    assert "Torch.relu.0.forward" in Run(tmp_path / "dump").step(0).data


@pytest.mark.parametrize("path", ["\0", "\ud800"])
def test_random_save_where_no_path_can_be(path: str) -> None:
    with pytest.raises(UsageError, match="random_save"):
        random_save(path)
