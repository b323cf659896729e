"""Task structure: names, parents and stacks as the sample has them, and nothing of the values."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from capturing import Step, forget_debugger, golden, record
from odd_values import Holder, sample_arguments
from sample_runs import small_net

from msprobe import numerics
from msprobe.cli.main import main
from msprobe.pytorch.dump import encoder, unusual

pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_sample(tmp_path: Path) -> None:
    step = small_net("structure", tmp_path).step()
    assert step.dump == {"task": "structure", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": {}}
    theirs, ours = golden("structure")["steps"]["0"]["construct"], step.construct
    assert set(theirs) == set(ours)
    forward = [name for name in theirs if ".forward" in name]
    assert {name: ours[name] for name in forward} == {name: theirs[name] for name in forward}  # those of backward entries: F26
    names = [group for group, _ in step.stack.values()]
    assert sorted(name for group in names for name in group) == sorted(forward)
    assert step.frames("Tensor.__mul__.0.forward") and not (step.directory / "dump_tensor_data").exists()


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_the_names_are_those_of_statistics(tmp_path: Path, level: str) -> None:
    def dump(task: str) -> Step:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(2, 3), nn.TransformerEncoderLayer(3, 1, 4, batch_first=True), nn.LSTM(3, 2))
        (tmp_path / task).mkdir()
        step = record(tmp_path / task, lambda: model(torch.randn(1, 2, 2))[0].sum().backward(), model=model, level=level, task=task)
        forget_debugger()
        return step

    statistics, structure = dump("statistics"), dump("structure")
    assert structure.construct == statistics.construct and structure.data == {}
    assert json.loads((structure.directory / "meta.json").read_text())["recorded"]["tensors"] == 0
    assert [names for names, _ in structure.stack.values()] == [names for names, _ in statistics.stack.values()]


def test_level_l1_becomes_mix(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    step = record(tmp_path, lambda: model(torch.ones(1, 2)), model=model, level="L1", task="structure")
    assert step.dump["level"] == "mix" and step.construct == {
        "Module.0.Linear.forward.0": None,
        "Functional.linear.0.forward": "Module.0.Linear.forward.0",
    }


def test_no_statistics_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("somebody looked at values")

    for owner, name in ((encoder, "_describe"), (encoder, "_describe_each"), (encoder, "_describe_items"), (unusual, "describe")):
        monkeypatch.setattr(owner, name, never)
    monkeypatch.setattr(numerics, "summarize_array", never)
    values, model = sample_arguments(), Holder()

    def body() -> None:
        for args, kwargs in values.values():
            model.probe(*args, **kwargs)
        nested: list[Any] = [torch.ones(2, requires_grad=True)]
        nested.append(nested)
        model.probe(nested)

    step = record(tmp_path, body, model=model, level="L0", task="structure")
    assert len(step.construct) == len(values) + 1 and step.errors == "" and step.data == {}


def test_an_error_keeps_the_run_going(tmp_path: Path) -> None:
    def body() -> None:
        with pytest.raises(RuntimeError):
            torch.ones(2, 3) @ torch.ones(2, 3)
        torch.ones(2) @ torch.ones(2)

    step = record(tmp_path, body, model=nn.Sequential(), task="structure", level="mix")
    assert [name for name in step.construct if "matmul" in name] == ["Tensor.__matmul__.0.forward"] and step.data == {}


def test_such_dumps_are_compared_call_by_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    recorded = record(tmp_path, lambda: model(torch.ones(1, 2)), model=model, level="mix", task="structure").directory
    target = shutil.copytree(recorded, tmp_path / "target" / recorded.name)
    for code in (0, 1):
        assert main(["compare", "-tp", str(target), "-gp", str(recorded), "-o", str(tmp_path / "out")]) == code
        construct = json.loads((target / "construct.json").read_text())
        (target / "construct.json").write_text(json.dumps({**construct, "Module.1.Linear.forward.0": None}))
    assert "Module.1.Linear.forward.0" in capsys.readouterr().out
