"""Which calls are an optimizer's own: not those of its closure, and none after a step that raised (it tells nobody that it ended)."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

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


class Closure:
    """Callable, as Lightning's are."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __call__(self) -> Any:
        loss = torch.relu(self.model(torch.ones(2, 2))).sum()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        return loss

    def method(self, more: int) -> Any:
        return self()


@pytest.mark.parametrize(
    "made",
    [Closure, lambda model: lambda: Closure(model)(), lambda model: functools.partial(functools.partial(Closure(model).method), 1)],
)
@pytest.mark.parametrize("by_name", [False, True])
def test_calls_of_a_closure_are_not_the_optimizer_s(tmp_path: Path, made: Any, by_name: bool) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    debugger = configured(tmp_path, level="mix", risk_level="ALL")
    for _ in range(2):
        with debugger.record(model):
            closure = made(model)
            optimizer.step(closure=closure) if by_name else optimizer.step(closure)
    (path,) = tmp_path.glob("**/step1/*/construct.json")
    construct = json.loads(path.read_text())
    assert construct["Torch.relu.0.forward"] is None and construct["Module.0.Linear.forward.0"] is None
    assert construct["Torch.relu.0.backward"] is None
    assert "clip_grad" in construct.values()
    assert "optimizer" in [parent for name, parent in construct.items() if name.startswith("Tensor.")]  # momentum, in the step itself
