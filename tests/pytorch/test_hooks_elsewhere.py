"""Hooks where others put them, too: dictionaries that modules share, and modules that others move them to."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import configured, record
from torch import nn
from torch.ao.quantization import fuse_modules

from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.module_dump import hooks

both = pytest.mark.parametrize("path", [{}, {"list": ["Module"]}], ids=["c", "python"])


def hooks_on(*modules: nn.Module) -> list[Any]:
    names = {*torch_internals.MODULE_HOOKS, "_forward_hooks_with_kwargs"}
    return [hook for module in modules for name in names for hook in getattr(module, name).items()]


@both
@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_shallow_copy_in_the_model_is_recorded_beside_the_original(path: dict[str, Any], level: str, tmp_path: Path) -> None:
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    model = nn.ModuleList([one, copy.copy(one), other, copy.copy(one)])
    x = torch.ones(3, 2, requires_grad=True)

    def body() -> None:
        y = x
        for module in model:
            y = module(y)
        y.sum().backward()

    step = record(tmp_path, body, model=model, level=level, **path)
    names = [name for name in step.names if name.startswith("Module") and "grad" not in name]
    assert names == [f"Module.{k}.Linear.forward.0" for k in range(4)] + [f"Module.{k}.Linear.backward.0" for k in (3, 2, 1, 0)]
    assert all(step.data[name]["output"][0] for name in names)
    assert {name for name in step.names if "grad" in name} == {f"Module.{k}.Linear.parameters_grad.0" for k in range(4)}
    assert step.errors == "" and hooks_on(model, *model) == []


def test_a_shallow_copy_that_comes_and_goes(tmp_path: Path) -> None:
    """Names and hooks are kept from step to step only where the model is the same."""
    model = nn.ModuleList([nn.Linear(2, 2)])
    debugger = configured(tmp_path, level="L0")
    counts = []
    for _ in range(4):
        debugger.start(model)
        for module in model:
            module(torch.ones(1, 2))
        debugger.stop()
        session = type(debugger)._session
        assert session is not None and session.step is not None
        counts.append(session.step.calls_so_far())
        debugger.step()
        assert hooks_on(*model) == []
        if len(model) == 1:
            model.append(copy.copy(model[0]))
        else:
            del model[1]
    assert counts == [1, 2, 1, 2]


@pytest.mark.parametrize("way", ["c", "python"])
def test_hooks_that_a_fusion_has_moved_are_taken_off(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "python":
        monkeypatch.setattr(hooks, "take_from_each", hooks.take_in_python)
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Tanh()).eval()
    users = model[2].register_forward_hook(lambda *_: None)
    debugger = configured(tmp_path, level="L0")
    debugger.start(model)
    originals = list(model)
    model(torch.ones(1, 2))
    fuse_modules(model, [["0", "1"]], inplace=True)
    model(torch.ones(1, 2))
    assert hooks_on(*model[0].modules())
    debugger.stop()
    assert [hook for hook in hooks_on(*model.modules(), *originals) if hook[0] != users.id] == []
    debugger.step()
    assert list(model[2]._forward_hooks) == [users.id]


@pytest.mark.parametrize("take", [hooks.take_from_each, hooks.take_in_python])
def test_hooks_are_only_looked_for_where_one_is_missing(take: Any) -> None:
    modules = [nn.Tanh(), nn.ReLU()]
    for module in modules:
        torch_internals.put_module_hooks(module, "ours", print, print)
    assert take(modules, torch_internals.MODULE_HOOKS, "ours") is True
    assert take(modules, torch_internals.MODULE_HOOKS, "ours") is False
    assert hooks_on(*modules) == []
