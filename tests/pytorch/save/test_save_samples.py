"""The reference's two samples of save(), and the scripts of its documentation, as they are written."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn as nn
from against_golden import differences
from capturing import configured, environment, golden
from debug_json import step_of

import warm_python

SKIPPED_THERE = ("withNone", "np", "none", "intkey")
"""None, an array or a key that is no text: the reference leaves out the whole call, we record it."""


def sample(case: str, directory: Path, linear: nn.Linear) -> None:
    dbg = configured(directory, **golden(case)["config"] | {"dump_path": str(directory / "dump")})
    l = linear  # noqa: E741
    for _ in range(2):
        x = torch.ones(2, 3, requires_grad=True)
        y = l(x)
        dbg.save(y, "y")
        dbg.save(y * 1, "y", save_backward=False)
        d = {"key1": 1, "key2": [torch.ones(2), (y, "s")], "n": None}
        dbg.save({"key1": "v", "key2": [x, [y]]}, "nest")
        dbg.save(d, "withNone")
        dbg.save(3, "int")
        dbg.save(2.5, "float")
        dbg.save("abc", "str")
        dbg.save([y, 2], "lst")
        dbg.save((y,), "tup")
        dbg.save(True, "boolv")
        dbg.save(np.ones(2), "np")
        dbg.save(None, "none")
        dbg.save(y, 5)
        dbg.save(y, "badflag", save_backward="x")
        dbg.save({1: y}, "intkey")
        dbg.save(l.weight, "param")
        dbg.save(torch.ones(2, dtype=torch.int64), "ints")
        dbg.save([], "empty")
        if case == "save_stat":
            dbg.save(y, "sp ace.ü")
        y.sum().backward()
        dbg.step()
    dbg.start()
    dbg.stop()


def ours_there(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key.split(".")[0].removesuffix("_grad") not in SKIPPED_THERE}


@pytest.mark.parametrize("number", [0, 1])
def test_the_sample_of_statistics(number: int, tmp_path: Path) -> None:
    """Its weights are not known: keys, nesting, types, and the values that do not depend on them."""
    sample("save_stat", tmp_path, nn.Linear(3, 2))
    theirs = golden("save_stat")["steps"][str(number)]
    step = step_of(tmp_path / "dump", number)
    assert {key: value for key, value in step.document.items() if key != "data"} == theirs["head"]
    assert list(step.document) == ["task", "level", "framework", "dump_data_dir", "data"]
    data = ours_there(step.data)
    assert list(data) == list(theirs["data"])
    assert [text for key in data for text in differences(theirs["data"][key], data[key], key, False)] == []
    for key in ("y_grad.0.debug", "lst_grad.0.debug", "tup_grad.0.debug", "sp ace.ü_grad.0.debug", "int.0.debug", "str.0.debug"):
        assert differences(theirs["data"][key], data[key], key, True) == []
    assert {path.name for path in step.directory.iterdir()} == {"debug.json", "meta.json"}


def test_the_sample_of_tensors(tmp_path: Path) -> None:
    case = golden("save_tensor")
    linear = nn.Linear(3, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor(case["weight"]))
        linear.bias.copy_(torch.tensor(case["y"][0]) - linear.weight.sum(1))
    sample("save_tensor", tmp_path, linear)
    assert [path.name for path in (tmp_path / "dump").iterdir()] == ["step1"]  # "step": [1]
    theirs = case["steps"]["1"]
    step = step_of(tmp_path / "dump", 1)
    assert step.document["dump_data_dir"] == str(step.directory / "dump_tensor_data")
    data = ours_there(step.data)
    assert list(data) == list(theirs["data"])
    assert [text for key in data for text in differences(theirs["data"][key], data[key], key, True)] == []
    assert [name for name in step.files if name.split(".")[0].removesuffix("_grad") not in SKIPPED_THERE] == theirs["files"]
    assert step.values(step.data["param_grad.0.debug"]) == [[2.0] * 3] * 2
    assert {path.name for path in step.directory.iterdir()} == {"debug.json", "meta.json", "dump_tensor_data"}


def test_what_the_reference_refuses(tmp_path: Path) -> None:
    sample("save_stat", tmp_path, nn.Linear(3, 2))
    data = step_of(tmp_path / "dump").data
    assert data["none.0.debug"] is None and data["none_grad.0.debug"] is None
    assert data["np.0.debug"]["type"] == "numpy.ndarray" and data["np.0.debug"]["Mean"] == 1.0
    assert data["intkey.0.debug"]["1"] == data["y.0.debug"]
    assert data["intkey_grad.0.debug"]["1"] == data["y_grad.0.debug"]
    assert data["withNone.0.debug"]["n"] is None
    assert data["withNone_grad.0.debug"] == {"key1": None, "key2": [None, [data["y_grad.0.debug"], None]], "n": None}
    assert data["ints.0.debug"]["Mean"] == 1.0  # null there


DOCUMENTED = """
import torch
import torch.nn as nn
import torch.nn.functional as F

from msprobe.pytorch import PrecisionDebugger, seed_all
# 在模型训练开始前实例化PrecisionDebugger
debugger = PrecisionDebugger(dump_path="dump_path", level="debug")

# 定义网络
class ModuleOP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(in_features=8, out_features=4)
        self.linear_2 = nn.Linear(in_features=4, out_features=2)

    def forward(self, x):
        x1 = self.linear_1(x)
        x2 = self.linear_2(x1)
        debugger.save(x2, "x2", save_backward=True)  # 调用save接口
        r1 = F.relu(x2)
        return r1

if __name__ == "__main__":
    module = ModuleOP()
"""
ONE = """
    x = torch.randn(10, 8)
    out = module(x)
    loss = out.sum()
    loss.backward()
"""
STEPS = """
    train_iter = 10
    for i in range(train_iter):
        x = torch.randn(10, 8)
        out = module(x)
        loss = out.sum()
        loss.backward()
        debugger.step()  # 调用debugger.step用于区分step保存
"""


@pytest.mark.parametrize(("body", "steps"), [(ONE, 1), (STEPS, 10)], ids=["without steps", "by steps"])
def test_the_documented_scripts(body: str, steps: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DOCUMENTED + body, encoding="utf-8")
    done = subprocess.run(
        [*warm_python.command(), "train.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "[WARNING]" not in done.stderr and "[ERROR]" not in done.stderr
    root = tmp_path / "dump_path"
    assert sorted(path.name for path in root.iterdir()) == sorted(f"step{n}" for n in range(steps))
    for number in range(steps):
        data = step_of(root, number).data
        assert list(data) == ["x2.0.debug", "x2_grad.0.debug"]
        assert data["x2.0.debug"]["shape"] == data["x2_grad.0.debug"]["shape"] == [10, 2]
        assert data["x2_grad.0.debug"]["Max"] in (0.0, 1.0)
    assert "[step 0] saved 2 tensors of 1 calls, " in done.stderr
    assert "debug.json is at dump_path/step0" in done.stderr
