"""config.json is edited while training runs."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from capturing import Run, Step, configured

from msprobe.errors import UsageError
from msprobe.pytorch import PrecisionDebugger, live_config

Edit = Callable[..., None]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    """The log's lines since the last time they were asked for."""
    logger = logging.getLogger("msprobe")
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "msprobe")

    def lines(level: int = logging.INFO) -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.levelno >= level]
        caplog.clear()
        return found

    yield lines
    logger.removeHandler(caplog.handler)


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    """Change fields of config.json; None takes a field out. Text replaces the file as it is."""

    def change(text: str | None = None, **fields: Any) -> None:
        path = tmp_path / "config.json"
        if text is None:
            content = json.loads(path.read_text(encoding="utf-8"))
            content.update(fields)
            text = json.dumps({name: value for name, value in content.items() if value is not None})
        path.write_text(text, encoding="utf-8")

    return change


MODEL = nn.Sequential(nn.Linear(2, 2), nn.ReLU())


def train(model: Any = MODEL) -> None:
    """One step of a training."""
    PrecisionDebugger.start(model)
    MODEL(torch.ones(1, 2)).sum().backward()
    PrecisionDebugger.stop()
    PrecisionDebugger.step()


def steps(directory: Path, name: str = "dump") -> list[int]:
    return Run(directory / name).steps


def last(directory: Path, name: str = "dump") -> Step:
    run = Run(directory / name)
    return run.step(run.steps[-1])


def test_on_and_off(tmp_path: Path, edit: Edit, told: Any) -> None:
    configured(tmp_path, level="L1", dump_enable=False)
    assert any('"dump_enable" is false' in line for line in told())
    train()
    train()
    assert not (tmp_path / "dump").exists()
    edit(dump_enable=True)
    train()
    train()
    assert [line for line in told() if "dump_enable" in line] == ['"dump_enable" is true now: recording is on at step 2']
    edit(dump_enable=False)
    train()
    edit(dump_enable=True)
    train()
    assert steps(tmp_path) == [2, 3, 5]


def test_without_the_field_the_file_is_not_looked_at_again(tmp_path: Path, edit: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(tmp_path, level="L1")
    monkeypatch.setattr(live_config, "_stamp_of", lambda path: pytest.fail("looked at"))
    edit(dump_enable=False, level="L0")
    train()
    assert steps(tmp_path) == [0] and last(tmp_path).dump["level"] == "L1"


def test_one_look_is_one_stat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(tmp_path, level="L1", dump_enable=True)
    long_ago = time.time() - 100
    os.utime(tmp_path / "config.json", (long_ago, long_ago))
    train()
    monkeypatch.setattr(live_config, "load_config", lambda *args, **more: pytest.fail("read again"))
    looks = []
    monkeypatch.setattr(os, "stat", lambda path, **more: looks.append(path) or os.lstat(path), raising=True)
    session = PrecisionDebugger._session
    assert session is not None
    assert session.live.changed() is None and looks == [str(tmp_path / "config.json")]


@pytest.mark.parametrize(
    ("before", "after", "holds"),
    [
        ({"level": "L1"}, {"level": "mix"}, lambda step: step.dump["level"] == "mix" and "Module.0.Linear.forward.0" in step.data),
        ({"level": "mix"}, {"level": "L0"}, lambda step: set(step.forward()) == {"Module.0.Linear.forward.0", "Module.1.ReLU.forward.0"}),
        (
            {"level": "L0"},
            {"level": "L1"},
            lambda step: set(step.forward()) >= {"Functional.linear.0.forward", "Functional.relu.0.forward"},
        ),
        ({}, {"task": "tensor"}, lambda step: (step.directory / "dump_tensor_data" / "Functional.relu.0.forward.output.0.pt").exists()),
        ({"task": "tensor"}, {"task": "statistics"}, lambda step: not (step.directory / "dump_tensor_data").exists()),
        ({}, {"extra_info": False}, lambda step: not (step.directory / "stack.json").exists()),
        ({}, {"risk_level": "CORE"}, lambda step: set(step.forward()) == {"Functional.linear.0.forward"}),
        (
            {},
            {"statistics": {"list": ["relu"]}},
            lambda step: set(step.data) == {"Functional.relu.0.forward", "Functional.relu.0.backward"},
        ),
        ({}, {"statistics": {"data_mode": ["backward"]}}, lambda step: step.data and not step.forward()),
        (
            {},
            {"statistics": {"scope": ["Functional.relu.0.forward", "Functional.relu.0.forward"]}},
            lambda step: set(step.data) == {"Functional.relu.0.forward"},
        ),
        ({}, {"statistics": {"summary_mode": "md5"}}, lambda step: "md5" in step.only("relu.0.forward")["output"][0]),
        (
            {"summary_mode": "md5"},
            {"statistics": {"summary_mode": "xor"}},
            lambda step: "Max" not in step.only("relu.0.forward")["output"][0],
        ),
        ({"level": "mix"}, {"task": "structure"}, lambda step: step.data == {} and "Module.0.Linear.forward.0" in step.construct),
        ({}, {"task": "nan_check"}, lambda step: step.only("relu.0.forward")["is_nan"] == 0 if step.dump["task"] == "nan_check" else False),
        ({}, {"statistics": {"tensor_list": ["relu"]}}, lambda step: len(list(step.directory.glob("dump_tensor_data/*"))) == 4),
    ],
)
def test_every_field_can_change(
    tmp_path: Path, edit: Edit, told: Any, before: dict[str, Any], after: dict[str, Any], holds: Callable[[Step], bool]
) -> None:
    configured(tmp_path, **{"level": "L1", "dump_enable": True, **before})
    train()
    assert not holds(last(tmp_path))
    told()
    edit(**after)
    train()
    train()
    assert steps(tmp_path) == [0, 1, 2] and holds(Run(tmp_path / "dump").step(1)) and holds(last(tmp_path))
    lines = [line for line in told() if "has changed" in line]
    (field, value), *_ = after.items()
    if isinstance(value, dict):
        ((field, value),) = value.items()
    assert len(lines) == 1 and f'"{field}" ' in lines[0] and "from step 1 on" in lines[0]
    assert isinstance(value, list) or f"-> {json.dumps(value)}" in lines[0]


def test_where_to(tmp_path: Path, edit: Edit) -> None:
    configured(tmp_path, dump_enable=True)
    train()
    edit(dump_path=str(tmp_path / "other"))
    train()
    assert steps(tmp_path) == [0] and steps(tmp_path, "other") == [1]


def test_which_steps_and_ranks(tmp_path: Path, edit: Edit) -> None:
    configured(tmp_path, dump_enable=True, step=[1])
    train()
    train()
    edit(step=[3, "5-6"])
    for _ in range(6):
        train()
    assert steps(tmp_path) == [1, 3, 5, 6]
    edit(step=[], rank=[4])
    train()
    PrecisionDebugger.start(MODEL, rank_id=4)
    torch.relu(torch.ones(1))
    PrecisionDebugger.step()
    assert last(tmp_path).directory.name == "rank4" and steps(tmp_path) == [1, 3, 5, 6, 9]


def test_your_own_files_of_apis(tmp_path: Path, edit: Edit) -> None:
    """`ops_dir`: a directory that cannot be used changes nothing, a good one holds from then on."""
    configured(tmp_path, level="L1", dump_enable=True)
    train()
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "support_wrap_ops.yaml").write_text("functional:\n- relu\n", encoding="utf-8")
    edit(ops_dir=str(tmp_path / "ops"))
    train()
    assert set(last(tmp_path).forward()) == {"Functional.relu.0.forward", "Tensor.sum.0.forward"}


def test_a_step_keeps_the_configuration_it_began_with(tmp_path: Path, edit: Edit, told: Any) -> None:
    """Only dump_enable acts at once: a dump that changes its level half-way could not be read."""
    configured(tmp_path, level="L1", dump_enable=True)
    for change in ({}, {"level": "mix"}, {"dump_enable": False}, {"dump_enable": True}):
        edit(**change)
        PrecisionDebugger.start(MODEL)
        MODEL(torch.ones(1, 2))
        PrecisionDebugger.stop()
    PrecisionDebugger.step()
    assert any('"level" "L1" -> "mix"; this holds from step 1 on' in line for line in told())
    train()
    first = Run(tmp_path / "dump").step(0)
    assert first.names == [f"Functional.{name}.{i}.forward" for i in range(3) for name in ("linear", "relu")]
    assert first.dump["level"] == "L1" and last(tmp_path).dump["level"] == "mix"


WRONG = {
    "half written": '{"task": "statistics", "dump_pa',
    "empty": "",
    "no object": "[1]",
    "a wrong value": '{"dump_path": "x", "level": "L7", "dump_enable": true}',
    "no dump_path": '{"dump_enable": false}',
    "binary": "\x00\x01",
}


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_one_warning_and_the_last_good_state_is_kept(tmp_path: Path, edit: Edit, told: Any, what: str, on: bool) -> None:
    configured(tmp_path, level="L1", dump_enable=on)
    good = (tmp_path / "config.json").read_text(encoding="utf-8")
    train()
    told()
    edit(WRONG[what])
    train()
    train()
    warnings = told(logging.WARNING)
    assert len(warnings) == 1 and "cannot be used; recording goes on as before" in warnings[0] and str(tmp_path) in warnings[0]
    assert "Traceback" not in warnings[0]
    assert steps(tmp_path) == ([0, 1, 2] if on else []) if (tmp_path / "dump").exists() else not on
    edit(good)
    edit(dump_enable=not on)
    train()
    edit(WRONG[what])
    train()
    assert len(told(logging.WARNING)) == 1, "it is told again after a good file"


def test_a_file_that_is_gone(tmp_path: Path, edit: Edit, told: Any) -> None:
    configured(tmp_path, level="L1", dump_enable=True)
    good = (tmp_path / "config.json").read_text(encoding="utf-8")
    (tmp_path / "config.json").unlink()
    train()
    train()
    assert len([line for line in told(logging.WARNING) if "cannot be read" in line]) == 1
    edit(good)
    edit(dump_enable=False)
    train()
    assert steps(tmp_path) == [0, 1]


def test_a_field_that_is_gone_keeps_the_state(tmp_path: Path, edit: Edit, told: Any) -> None:
    configured(tmp_path, level="L1", dump_enable=True)
    edit(dump_enable=None)
    train()
    assert [line for line in told() if "is gone" in line] == ['"dump_enable" is gone from the file: recording is on at step 0']
    edit(dump_enable=False)
    train()
    edit(dump_enable=None)
    train()
    assert steps(tmp_path) == [0]


def test_a_second_change_within_one_tick_of_the_clock(tmp_path: Path, edit: Edit) -> None:
    """Same size, same time: the file is looked at once more while it is so young."""
    path = tmp_path / "config.json"
    configured(tmp_path, dump_enable=True, level="L1")
    train()
    now = time.time_ns()
    edit(level="L0")
    os.utime(path, ns=(now, now))
    train()
    content = path.read_text(encoding="utf-8").replace('"L0"', '"L1"')
    with path.open("r+", encoding="utf-8") as file:
        file.write(content)
    os.utime(path, ns=(now, now))
    train()
    assert [Run(tmp_path / "dump").step(number).dump["level"] for number in range(3)] == ["L1", "L0", "L1"]


def test_arguments_go_before_the_file_and_a_change_of_theirs_is_told(tmp_path: Path, edit: Edit, told: Any) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"dump_path": str(tmp_path / "dump"), "level": "L0", "dump_enable": True}), encoding="utf-8")
    PrecisionDebugger(config_path=str(path), level="L1", step=[0, 1])
    train()
    told()
    edit(level="mix", extra_info=False)
    train()
    lines = told()
    assert len([line for line in lines if "\"level\" has changed, without effect: PrecisionDebugger(level='L1')" in line]) == 1
    assert not (last(tmp_path).directory / "stack.json").exists() and last(tmp_path).dump["level"] == "L1"


def test_a_level_that_needs_a_model_which_start_is_not_given(tmp_path: Path, edit: Edit, told: Any) -> None:
    """A mistake in the file raises nothing into a training that runs already."""
    configured(tmp_path, level="L1", dump_enable=True)
    train(None)
    edit(level="mix")
    train(None)
    train("no model")
    assert len([line for line in told(logging.WARNING) if 'level "mix" records modules and needs it' in line]) == 1
    train(MODEL)
    edit(level="L1")
    train(None)
    assert steps(tmp_path) == [0, 3, 4]


def test_a_missing_model_is_told_at_once_also_while_recording_is_off(tmp_path: Path) -> None:
    configured(tmp_path, level="L0", dump_enable=False)
    with pytest.raises(UsageError, match="model is missing"):
        PrecisionDebugger.start()


def test_a_relative_path_stays_what_it_was(tmp_path: Path, edit: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The training goes to another directory meanwhile."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text('{"dump_path": "dump", "dump_enable": true, "level": "L1"}', encoding="utf-8")
    PrecisionDebugger(config_path="config.json")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    train()
    edit(level="L0")
    train()
    assert steps(tmp_path) == [0, 1] and last(tmp_path).dump["level"] == "L0"
    edit(dump_path="more")
    train()
    assert steps(tmp_path, "more") == [2] and not list((tmp_path / "elsewhere").iterdir())


def test_the_reference_run(tmp_path: Path, edit: Edit) -> None:
    """The sample `dyn`, without its waiting: levels, task, path, broken file, off. A broken file left it off, here the state stays."""
    configured(tmp_path, level="L0", dump_enable=False, dump_path=str(tmp_path / "dump"))
    train()
    edit(dump_enable=True)
    train()
    edit(level="mix")
    train()
    edit(level="L1", task="tensor", dump_path=str(tmp_path / "dump2"))
    train()
    edit("{bad")
    train()
    edit(json.dumps({"task": "tensor", "dump_path": str(tmp_path / "dump2"), "level": "L1", "dump_enable": True}))
    train()
    edit(dump_enable=False)
    train()
    edit(dump_enable=None)
    train()
    assert steps(tmp_path) == [1, 2] and steps(tmp_path, "dump2") == [3, 4, 5]
    run = Run(tmp_path / "dump")
    assert [run.step(number).dump["level"] for number in (1, 2)] == ["L0", "mix"]
    assert list(last(tmp_path, "dump2").directory.glob("dump_tensor_data/*.pt"))


@pytest.mark.parametrize("on", [True, False])
def test_training_is_the_same_bit_for_bit(tmp_path: Path, edit: Edit, on: bool) -> None:
    def run(watched: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for number in range(4):
            if watched:
                edit(dump_enable=on is (number % 2 == 0), level=("L0", "L1", "mix", "L1")[number])
                PrecisionDebugger.start(model)
            optimizer.zero_grad()
            model(torch.randn(3, 4)).square().sum().backward()
            optimizer.step()
            if watched:
                PrecisionDebugger.stop()
                PrecisionDebugger.step()
        return [parameter.detach() for parameter in model.parameters()]

    plain = run(False)
    configured(tmp_path, level="L0", dump_enable=False)
    assert all(torch.equal(a, b) for a, b in zip(plain, run(True), strict=True))
