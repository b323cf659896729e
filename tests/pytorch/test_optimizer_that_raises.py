"""An optimizer's step that raises tells nobody that it ended: later calls are not its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from capturing import configured
from torch import nn


def test_calls_of_the_next_window_are_not_the_optimizer_s(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    optimizer = torch.optim.LBFGS(model.parameters())

    def closure() -> float:
        raise ArithmeticError

    debugger = configured(tmp_path, level="mix")
    debugger.start(model)
    with pytest.raises(ArithmeticError):
        optimizer.step(closure)
    debugger.stop()
    debugger.step()
    debugger.start(model)
    torch.relu(torch.ones(2))
    debugger.stop()
    debugger.step()
    (construct,) = tmp_path.glob("**/step1/*/construct.json")
    assert json.loads(construct.read_text())["Torch.relu.0.forward"] is None
