"""A dump that the reference tool made is a source like ours."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import Run
from torch import nn

from msprobe.pytorch import PrecisionDebugger

SAMPLE = Path(__file__).parents[2] / "golden" / "load"
FILES = SAMPLE / "step0" / "proc13791" / "dump_tensor_data"
LOSS = 9.55577564239502
"""What the reference printed, for the source and for the run with these overrides."""


class Att(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, mask: Any = None, n: int = 2, ctx: Any = None) -> torch.Tensor:
        return self.p(x * n) + (mask if mask is not None else 0) + (ctx[0] if ctx else 0)


class M(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l, self.relu, self.att = nn.Linear(8, 4), nn.ReLU(), Att()
        with torch.no_grad():
            for name, layer in (("l", self.l), ("att.p", self.att.p)):
                for parameter in ("weight", "bias"):
                    getattr(layer, parameter).copy_(loaded(f"Module.{name}.Linear.forward.0.parameters.{parameter}"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.l(x))
        return self.att(y, mask=y * 0.5, n=3, ctx=[y])


def loaded(name: str) -> torch.Tensor:
    return torch.load(FILES / f"{name}.pt", weights_only=True)


@pytest.mark.parametrize("with_dump", [True, False])
def test_the_reference_run(tmp_path: Path, with_dump: bool, log: list[str]) -> None:
    """The sample's script and its configuration b.json."""
    source = tmp_path / "src"
    shutil.copytree(SAMPLE, source)
    if not with_dump:
        (source / "step0" / "proc13791" / "dump.json").unlink()
    calls = ["Module.relu.ReLU.forward.0", "Module.att.Att.forward.0", "Module.nope.X.forward.0", "Module.l.Linear.forward.5"]
    load = {"path": str(source), "modules": calls, "dump_after_load": True}
    (tmp_path / "b.json").write_text(json.dumps({"task": "tensor", "dump_path": str(tmp_path / "off"), "level": "L0", "load": load}))
    debugger, model = PrecisionDebugger(config_path=str(tmp_path / "b.json")), M()
    x = torch.arange(24.0).reshape(3, 8) - 11
    debugger.start(model)
    loss = model(x).sum()
    loss.backward()
    debugger.stop()
    debugger.step()
    assert abs(loss.item() - LOSS) < 1e-5
    assert log[0] == "INFO [load] module validation: 3/4 modules valid in model"
    assert any("replaced 4 inputs of 2 calls" in line for line in log)
    # out = p(3 y) + 0.5 y + y, so that what goes back into y is known; the reference cuts it off there, and the weight gets nothing.
    into_y = 3 * model.att.p.weight.detach().sum(0) + 0.5 + 1
    behind = into_y * (loaded("Module.relu.ReLU.forward.0.input.0") > 0)
    torch.testing.assert_close(model.l.weight.grad, behind.t() @ x)
    data = Run(tmp_path / "off").step().data
    assert {"Module.relu.ReLU.backward.0", "Module.l.Linear.backward.0", "Module.l.Linear.parameters_grad.0"} <= set(data)
    golden = json.loads((SAMPLE / "step0" / "proc13791" / "dump.json").read_text())["data"]
    for name in ("Module.relu.ReLU.forward.0", "Module.att.Att.forward.0"):
        ours, theirs = (each[name]["input_args"][0] for each in (data, golden))
        assert all(ours[key] == theirs[key] for key in ("shape", "dtype", "Max", "Min"))
