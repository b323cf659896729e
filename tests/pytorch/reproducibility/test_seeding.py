"""seed_all does what its table says, argument by argument."""

from __future__ import annotations

import importlib
import os
import random
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from capturing import environment
from torch import nn

import warm_python
from msprobe.errors import UsageError
from msprobe.pytorch import seed_all


def _train() -> list[torch.Tensor]:
    """Two steps of a small net with dropout, made from scratch: its losses and gradients."""
    net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 4), nn.Dropout1d(0.3))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    seen: list[torch.Tensor] = []
    for _ in range(2):
        loss = net(torch.randn(4, 8) * random.random() + float(np.random.rand())).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += [loss.detach(), *(p.grad.clone() for p in net.parameters() if p.grad is not None)]
    return seen


def test_two_runs_are_bit_identical() -> None:
    seed_all(7)
    first = _train()
    without = _train()
    seed_all(7)
    assert all(map(torch.equal, first, _train()))
    assert not torch.equal(first[0], without[0])
    seed_all(8)
    assert not torch.equal(first[0], _train()[0])


def test_two_processes_are_bit_identical() -> None:
    program = (
        "import torch, numpy, random; from msprobe.pytorch import seed_all; seed_all(mode=True);"
        "print(torch.randn(3).tolist(), numpy.random.rand(), random.random(), torch.nn.functional.dropout(torch.ones(20)).tolist())"
    )
    runs = [
        subprocess.run([*python, "-c", program], env=environment(), capture_output=True, text=True, check=True)
        for python in ([sys.executable], warm_python.command())
    ]
    assert runs[0].stdout == runs[1].stdout != ""


def test_the_documented_numbers() -> None:
    seed_all(seed=1234, mode=True)
    assert [round(torch.mean(torch.randn(2, 2)).item(), 4) for _ in range(2)] == [-0.0866, 0.2038]
    seed_all(seed=1234, mode=True, is_enhanced=True)
    assert [round(torch.mean(torch.randn(2, 2)).item(), 4) for _ in range(2)] == [-0.0866, -0.0866]


@pytest.mark.parametrize("seed", [0, 1234, 2**32 - 1])
def test_each_generator_is_seeded(seed: int) -> None:
    seed_all(seed)
    assert random.random() == random.Random(seed).random()
    assert np.random.rand() == np.random.RandomState(seed).rand()
    assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(seed)))


def test_environment() -> None:
    seed_all(5)
    assert (os.environ["PYTHONHASHSEED"], os.environ["HCCL_DETERMINISTIC"]) == ("5", "True")
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    seed_all(5, mode=True)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_a_workspace_that_the_user_chose_stays() -> None:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"
    seed_all(mode=True)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


@pytest.mark.parametrize("mode", [False, True])
def test_cudnn_flags_without_cuda_too(mode: bool) -> None:
    cudnn = torch.backends.cudnn
    cudnn.enabled, cudnn.benchmark, cudnn.deterministic = True, True, False
    seed_all(mode=mode)
    assert (cudnn.enabled, cudnn.benchmark, cudnn.deterministic) == (False, False, True)


def test_frozen_flags_are_a_warning(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with monkeypatch.context() as frozen:
        frozen.setitem(torch.backends.disable_global_flags.__globals__, "__allow_nonbracketed_mutation_flag", False)
        seed_all()
    assert "torch.backends.cudnn.enabled could not be set to False" in capsys.readouterr().err


def test_mode_alone_switches_deterministic_algorithms_on() -> None:
    seed_all()
    assert not torch.are_deterministic_algorithms_enabled()
    seed_all(mode=True)
    assert torch.are_deterministic_algorithms_enabled()
    seed_all(mode=False)
    assert torch.are_deterministic_algorithms_enabled()  # False leaves it as it is: the user may have switched it on


def test_all_cuda_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    seed_all(77)
    assert seeds == [77]


def _stand_in_npu(calls: list[tuple[str, int]]) -> Any:
    package: Any = types.ModuleType("torch_npu")
    package.npu = types.SimpleNamespace(
        manual_seed=lambda seed: calls.append(("one", seed)), manual_seed_all=lambda seed: calls.append(("all", seed))
    )
    return package


def test_the_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []
    monkeypatch.setitem(sys.modules, "torch_npu", _stand_in_npu(calls))
    seed_all(9)
    assert calls == [("one", 9), ("all", 9)]


def test_torch_npu_is_imported_where_it_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch_npu.py").write_text("class npu:\n    seeds = []\n    manual_seed = manual_seed_all = staticmethod(seeds.append)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "torch_npu", None)  # so that it is taken out again, after nothing_stays has called seed_all
    del sys.modules["torch_npu"]
    importlib.invalidate_caches()
    seed_all(11)
    assert sys.modules["torch_npu"].npu.seeds == [11, 11]


def test_a_broken_torch_npu_is_a_warning(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "torch_npu", types.ModuleType("torch_npu"))
    seed_all(4)
    assert "the random numbers of the NPU are not fixed" in capsys.readouterr().err
    assert torch.initial_seed() == 4


WRONG = [
    ("seed", -1),
    ("seed", 2**32),
    ("seed", "a"),
    ("seed", 1.0),
    ("seed", True),
    ("seed", None),
    ("mode", "x"),
    ("mode", 1),
    ("rm_dropout", 1),
    ("rm_dropout", None),
    ("is_enhanced", "x"),
    ("is_enhanced", 0),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_argument_is_named_and_nothing_is_changed(name: str, value: Any) -> None:
    seed_all(1)
    before = torch.get_rng_state()
    arguments = {"mode": True, "rm_dropout": True, "is_enhanced": True, name: value}
    with pytest.raises(UsageError) as raised:
        seed_all(**arguments)
    text = str(raised.value)
    assert "\n" not in text and name in text and repr(value) in text and "allowed: " in text
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.equal(torch.rand(2), torch.rand(2)) and torch.nn.functional.dropout(torch.ones(100)).min() == 0
