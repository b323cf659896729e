"""The document's quick start and its scenarios, as written: train.py in processes of its own, then msprobe compare."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import environment

import warm_python

TRAIN = """\
import sys
import torch
import torch.nn as nn

from msprobe.pytorch import PrecisionDebugger, seed_all

seed_all()
debugger = PrecisionDebugger(config_path=sys.argv[1])

class ModuleOP(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.relu = nn.ReLU()

    def forward(self, x):
        x1 = self.linear(x)
        r1 = self.relu(x1)
        return r1

if __name__ == "__main__":
    model = ModuleOP()

    debugger.start(model=model) # 开启数据dump

    x = torch.randn(10, 8)
    # 第二次运行时通过偏移量改变输入，使两次运行的数据不同
    offset = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    if offset:
        x = x + offset
    out = model(x)
    loss = out.sum()
    loss.backward()

    debugger.stop() # 关闭数据dump，可继续开启数据dump，采集数据会记录在同一个step中
    debugger.step() # 结束数据dump，若继续开启数据dump，采集数据将记录在下一个step中
    torch.save([x, loss.detach(), model.linear.weight.grad], sys.argv[3])
"""
LINEAR, RELU = "Module.linear.Linear.forward.0", "Module.relu.ReLU.forward.0"


class Home:
    """A directory with train.py and configurations, in which commands run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "train.py").write_text(TRAIN, encoding="utf-8")

    def run(self, *command: str) -> str:
        python = [sys.executable] if "compare" in command else warm_python.command()
        done = subprocess.run(
            [*python, *command], cwd=self.directory, env=environment(), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode in ((0, 1) if "compare" in command else (0,)), done.stderr
        return done.stderr

    def failing(self, script: str, config: dict[str, Any]) -> str:
        """What a script that fails has said."""
        (self.directory / "failing.py").write_text(script, encoding="utf-8")
        (self.directory / "failing.json").write_text(json.dumps(config), encoding="utf-8")
        command = [*warm_python.command(), "failing.py", "failing.json"]
        done = subprocess.run(command, cwd=self.directory, env=environment(), capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 1
        return done.stderr

    def train(self, config: dict[str, Any], offset: int, name: str) -> tuple[str, list[torch.Tensor]]:
        """The log, and the input, the loss and the gradient of the linear layer's weight."""
        (self.directory / f"config_{name}.json").write_text(json.dumps(config), encoding="utf-8")
        log = self.run("train.py", f"config_{name}.json", str(offset), f"{name}.pt")
        return log, torch.load(self.directory / f"{name}.pt")

    def cosines(self) -> dict[str, float]:
        """What msprobe compare says of the two dumps, by name."""
        paths = [str(self.directory / f"data_dump_{name}" / "step0") for name in "ba"]
        self.run("-m", "msprobe", "compare", "-tp", paths[0], "-gp", paths[1], "-o", "./compare_result")
        (report,) = (self.directory / "compare_result").glob("*.csv")
        with report.open(newline="", encoding="utf-8-sig") as file:
            return {row["NPU Name"]: float(row["Cosine"]) for row in csv.DictReader(file) if "forward" in row["NPU Name"]}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[torch.Tensor]]:
    """The first run: config_a.json."""
    home = Home(tmp_path_factory.mktemp("golden"))
    config = {"task": "tensor", "dump_path": str(home.directory / "data_dump_a"), "rank": [], "step": [], "level": "L0"}
    _, results = home.train({**config, "async_dump": False, "extra_info": True}, 0, "a")
    return home.directory, results


@pytest.fixture
def home(tmp_path: Path, recorded: tuple[Path, list[torch.Tensor]]) -> Home:
    (tmp_path / "data_dump_a").symlink_to(recorded[0] / "data_dump_a")
    return Home(tmp_path)


def config_b(home: Home, modules: list[str], **load: Any) -> dict[str, Any]:
    section = {"path": str(home.directory / "data_dump_a"), "modules": modules, **load}
    return {"task": "tensor", "dump_path": str(home.directory / "data_dump_b"), "rank": [], "step": [], "level": "L0", "load": section}


def test_quick_start(home: Home, recorded: tuple[Path, list[torch.Tensor]]) -> None:
    """Scenario one: override, then dump."""
    log, (x, loss, gradient) = home.train(config_b(home, [RELU], dump_after_load=True), 1, "b")
    assert "[load] module validation: 1/1 modules valid in model" in log
    cosines = home.cosines()
    for value in ("input.0", "output.0"):
        assert cosines[f"{RELU}.{value}"] == 1.0
        assert cosines[f"{LINEAR}.{value}"] < 0.99
    assert loss == recorded[1][1]
    (source,) = (home.directory / "data_dump_a" / "step0").iterdir()
    put_in = torch.load(source / "dump_tensor_data" / f"{RELU}.input.0.pt")
    assert torch.equal(gradient, (put_in > 0).float().t() @ x)


def test_scenario_two_override_only(home: Home, recorded: tuple[Path, list[torch.Tensor]]) -> None:
    log, (_, loss, gradient) = home.train(config_b(home, [RELU], rank=[], step=[], dump_after_load=False), 1, "b")
    assert loss == recorded[1][1]
    assert gradient is not None
    assert not (home.directory / "data_dump_b").exists()
    assert "[load] step 0: replaced 1 input of 1 call" in log
    assert "recorded" not in log


def test_scenario_three_several_modules(home: Home, recorded: tuple[Path, list[torch.Tensor]]) -> None:
    log, (_, loss, _) = home.train(config_b(home, [RELU, LINEAR], dump_after_load=True), 1, "b")
    assert loss == recorded[1][1]
    assert "[load] step 0: replaced 2 inputs of 2 calls" in log
    cosines = home.cosines()
    assert all(cosines[f"{name}.{value}"] == 1.0 for name in (RELU, LINEAR) for value in ("input.0", "output.0"))


def test_a_script_that_never_ends_its_step(home: Home) -> None:
    script = (home.directory / "train.py").read_text().replace("    debugger.stop()", "    #").replace("    debugger.step()", "    #")
    (home.directory / "train.py").write_text(script)
    log, _ = home.train(config_b(home, [RELU]), 1, "b")
    assert log.splitlines()[-1].endswith("[load] step 0: replaced 1 input of 1 call")
    log, _ = home.train(config_b(home, [RELU], step=[3]), 1, "c")
    assert log.splitlines()[-1].endswith('[INFO] [load] nothing was replaced: "load" selects other steps or ranks')
    (home.directory / "train.py").write_text(script.replace("    debugger.start(", "    dict("))
    log, _ = home.train(config_b(home, [RELU]), 1, "d")
    assert log.splitlines()[-1].endswith("[WARNING] [load] nothing was replaced: start() was never called")


@pytest.mark.parametrize("dump_after_load", [False, True])
def test_what_a_script_is_told_whose_start_raised(home: Home, dump_after_load: bool) -> None:
    script = (home.directory / "train.py").read_text()
    config = config_b(home, [RELU], dump_after_load=dump_after_load)
    for given in ("", "model=[model, 3]"):
        log = home.failing(script.replace("start(model=model)", f"start({given})"), config)
        reason = log.rpartition("UsageError: ")[2].splitlines()[0]
        assert reason.startswith("start(")
        assert f"[load] nothing was replaced: {reason}" in log
        assert "start() was never called" not in log and "is start() called" not in log and "selects other" not in log
        assert (f"nothing was recorded: 0 steps were ended by step(); {reason}" in log) is dump_after_load
    for name in ("proc1", "proc2"):
        (home.directory / "two" / "step0" / name).mkdir(parents=True)
    config["load"]["path"] = "two"
    log = home.failing(script, config)
    assert "[load] nothing was replaced: " in log and log.count("remove all but the one to load") == 2 + dump_after_load
    assert "selects other" not in log
