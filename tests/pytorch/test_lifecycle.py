"""start, stop and step in every order and with every argument."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from capturing import Run, configured, forget_debugger

from msprobe.errors import MsprobeException, UsageError
from msprobe.pytorch import PrecisionDebugger


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "dump")


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    """The log's lines."""
    logger = logging.getLogger("msprobe")
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "msprobe")
    yield lambda level=logging.INFO: list(dict.fromkeys(r.getMessage() for r in caplog.records if r.levelno >= level))
    logger.removeHandler(caplog.handler)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU())


def test_starting_twice_is_starting_once(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="mix")
    model = net()
    debugger.start(model)
    debugger.start(model)
    model(torch.ones(1, 2))
    debugger.stop()
    debugger.step()
    assert run.step().names.count("Module.0.Linear.forward.0") == 1 and len(run.step().data) == 4
    assert not model[0]._forward_hooks and not model[0]._forward_pre_hooks


def test_stopping_without_starting_and_twice(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path)
    debugger.stop()
    debugger.start()
    torch.relu(torch.ones(1))
    debugger.stop()
    debugger.stop()
    debugger.step()
    debugger.stop()
    assert run.step().names == ["Torch.relu.0.forward"]


def test_step_without_start_only_advances_the_number(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path)
    debugger.step()
    debugger.step()
    debugger.start()
    torch.relu(torch.ones(1))
    debugger.step()
    assert run.steps == [2]


def test_step_without_stop_stops_first(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path)
    debugger.start()
    torch.relu(torch.ones(1))
    debugger.step()
    torch.relu(torch.ones(1))
    debugger.start()
    torch.sigmoid(torch.ones(1))
    debugger.step()
    assert run.step(0).names == ["Torch.relu.0.forward"] and run.step(1).names == ["Torch.sigmoid.0.forward"]


def test_windows_of_one_step_are_one_dump(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="mix")
    model = net()
    for _ in range(3):
        debugger.start(model)
        model(torch.ones(1, 2))
        debugger.stop()
        model(torch.ones(1, 2))
    debugger.step()
    debugger.start(model)
    model(torch.ones(1, 2))
    debugger.step()
    names = run.step(0).names
    assert [n for n in names if "Linear" in n] == [f"Module.0.Linear.forward.{i}" for i in range(3)]
    assert [n for n in names if "linear" in n] == [f"Functional.linear.{i}.forward" for i in range(3)]
    assert "Module.0.Linear.forward.0" in run.step(1).data and "Module.0.Linear.forward.1" not in run.step(1).data


def test_what_runs_outside_of_windows_is_not_recorded(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path)
    torch.relu(torch.ones(1))
    debugger.start()
    torch.sigmoid(torch.ones(1))
    debugger.stop()
    torch.relu(torch.ones(1))
    debugger.step()
    assert run.step().names == ["Torch.sigmoid.0.forward"]


def test_one_debugger_in_a_process(tmp_path: Path) -> None:
    debugger = configured(tmp_path)
    assert PrecisionDebugger("no such file.json", task="nonsense", dump_path="elsewhere") is debugger


def test_every_method_works_on_the_class(tmp_path: Path, run: Run) -> None:
    configured(tmp_path)

    class UsesTheClass(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            PrecisionDebugger.start()
            y = self.fc(x)
            PrecisionDebugger.stop()
            return torch.relu(y)

    UsesTheClass()(torch.ones(1, 2)).sum().backward()
    PrecisionDebugger.step()
    assert run.step().names == ["Functional.linear.0.forward", "Functional.linear.0.backward"]


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_start_and_stop_inside_a_forward(tmp_path: Path, run: Run, level: str) -> None:
    debugger = configured(tmp_path, level=level)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.inner, self.b = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.a(x)
            debugger.start(model)
            x = self.inner(x)
            debugger.stop()
            return self.b(x)

    model = nn.Sequential(Outer())
    model(torch.ones(1, 2))
    model(torch.ones(1, 2))
    debugger.step()
    names = [n for n in run.step().names if n.startswith("Module")]
    assert names == [f"Module.0.inner.{m}.forward.{i}" for i in (0, 1) for m in ("0.Linear", "Sequential")]
    construct = run.step().construct
    assert construct["Module.0.inner.0.Linear.forward.1"] == "Module.0.inner.Sequential.forward.1"
    assert construct["Module.0.inner.Sequential.forward.1"] is None


def test_stop_inside_a_forward_keeps_what_has_begun(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="mix")

    class Stops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.fc(x)
            debugger.stop()
            return self.fc(x)

    model = nn.Sequential(Stops())
    debugger.start(model)
    result = model(torch.ones(1, 2))
    debugger.step()
    assert result.shape == (1, 2)
    assert run.step().data["Module.0.Stops.forward.0"]["input_args"][0]["shape"] == [1, 2]
    assert "Module.0.fc.Linear.forward.0" in run.step().data and "Module.0.fc.Linear.forward.1" not in run.step().data


@pytest.mark.parametrize("where", ["mode", "hook"])
def test_stop_from_another_thread(tmp_path: Path, run: Run, where: str) -> None:
    """Its functions go off at once for the thread that started it, too, and nothing of ours stays on its stack of modes."""
    debugger = configured(tmp_path, level="mix")
    model = net()
    before = torch._C._len_torch_function_stack()
    debugger.start(model)
    model(torch.ones(1, 2))
    thread = threading.Thread(target=debugger.stop)
    thread.start()
    thread.join()
    if where == "mode":
        torch.relu(torch.ones(1))
    else:
        model(torch.ones(1, 2))
    debugger.step()
    assert len([n for n in run.step().names if n.startswith("Module.0.")]) == 1 and "Torch.relu.0.forward" not in run.step().data
    debugger.start(model)
    model(torch.ones(1, 2))
    debugger.stop()
    debugger.step()
    assert torch._C._len_torch_function_stack() == before
    assert run.step(1).names.count("Functional.linear.0.forward") == 1 and "Functional.linear.1.forward" not in run.step(1).data
    assert not model[0]._forward_hooks


def test_everything_from_another_thread(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="mix")
    model = net()

    def work() -> None:
        debugger.start(model)
        model(torch.ones(1, 2)).sum().backward()
        debugger.stop()
        debugger.step()

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert run.steps == [0, 1]
    assert run.step(0).names == run.step(1).names and "Functional.linear.0.backward" in run.step(1).data


def test_a_submodule_as_model(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="L0")
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 2))
    debugger.start(model[0])
    model(torch.ones(1, 2))
    debugger.step()
    assert run.step().names == ["Module.0.Linear.forward.0", "Module.1.ReLU.forward.0"]


@pytest.mark.parametrize("wrap", [list, tuple])
def test_several_models(tmp_path: Path, run: Run, wrap: Any) -> None:
    debugger = configured(tmp_path, level="L0")
    a, b = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2))
    debugger.start(wrap([a, b]))
    b(a(torch.ones(1, 2)))
    debugger.step()
    assert run.step().names == ["Module.0.0.Linear.forward.0", "Module.1.0.Linear.forward.0"]


def test_a_module_under_two_names_has_the_first(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="L0")
    shared = nn.Linear(2, 2)
    model = nn.Sequential(shared, nn.Sequential(shared))
    debugger.start([model, nn.Sequential(shared)])
    model(torch.ones(1, 2))
    debugger.step()
    assert [n for n in run.step().names if "Linear" in n] == ["Module.0.0.Linear.forward.0", "Module.0.0.Linear.forward.1"]


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["model", "missing"]),
        ({"model": "net"}, ["model", "str"]),
        ({"model": [nn.ReLU(), 3]}, ["model[1]", "int"]),
        ({"model": {"a": nn.ReLU()}}, ["model", "dict"]),
        ({"model": nn.ReLU}, ["model", "type"]),
        ({"model": nn.ReLU(), "rank_id": -1}, ["rank_id", "-1"]),
        ({"model": nn.ReLU(), "rank_id": True}, ["rank_id", "True"]),
        ({"model": nn.ReLU(), "rank_id": "0"}, ["rank_id", "'0'"]),
        *(
            ({"model": nn.ReLU(), "token_range": wrong}, ["token_range", repr(wrong), "0 <= first <= last"])
            for wrong in ([2, 1], [-1, 1], [0], [0, 1, 2], [0, True], [0, 1.0], ["0", 1], 3, "12", {0, 1}, {0: 1, 1: 2})
        ),
    ],
)
def test_wrong_arguments_of_start(tmp_path: Path, run: Run, level: str, arguments: dict[str, Any], words: list[str]) -> None:
    debugger = configured(tmp_path, level=level)
    with pytest.raises(UsageError) as raised:
        debugger.start(**arguments)
    assert all(word in str(raised.value) for word in words) and "\n" not in str(raised.value)
    model = net()
    debugger.start(model)
    model(torch.ones(1, 2))
    debugger.step()
    assert run.steps == [0] and run.step().data


def test_an_empty_list_of_models(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="L0")
    debugger.start([])
    debugger.step()
    assert run.step().data == {}


def test_L1_needs_no_model_and_minds_none(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="L1")
    debugger.start(net())
    torch.relu(torch.ones(1))
    debugger.step()
    assert run.step().names == ["Torch.relu.0.forward"]


@pytest.mark.parametrize("call", ["start", "stop", "step"])
def test_before_there_is_a_debugger(call: str) -> None:
    with pytest.raises(UsageError, match="construct one first"):
        getattr(PrecisionDebugger, call)()


@pytest.mark.parametrize("step", [-1, "1", 1.5, None, True])
def test_wrong_first_steps(tmp_path: Path, step: Any) -> None:
    with pytest.raises(UsageError, match="set_init_step"):
        configured(tmp_path).set_init_step(step)


def test_counting_from_another_step(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path)
    debugger.set_init_step(10)
    for _ in range(2):
        debugger.start()
        torch.relu(torch.ones(1))
        debugger.step()
    assert run.steps == [10, 11]


def test_the_sample_order_L1(tmp_path: Path, run: Run) -> None:
    """Everything out of order, level L1: the reference made step1, step10, step21 with these names."""
    debugger = configured(tmp_path, level="L1", risk_level="ALL")
    model = nn.Sequential(nn.Linear(2, 2))
    x = torch.ones(2)
    debugger.stop()
    debugger.step()
    debugger.start()
    debugger.start()
    torch.relu(x)
    debugger.step()
    torch.relu(x)
    debugger.stop()
    debugger.stop()
    debugger.set_init_step(10)
    debugger.start(model)
    debugger.set_init_step(20)
    model(x)
    debugger.stop()
    debugger.step()
    for odd in ("abc", [model, 3], []):
        debugger.start(odd)  # type: ignore[arg-type]
    debugger.stop()
    debugger.start(torch.jit.script(model))
    debugger.stop()
    debugger.step()
    assert {number: run.step(number).names for number in run.steps} == {
        1: ["Torch.relu.0.forward"],
        10: ["Functional.linear.0.forward"],
        21: [],
    }


def test_only_the_steps_asked_for(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="mix", step=[1, "3-4"])
    model = net()
    for _ in range(6):
        debugger.start(model)
        model(torch.ones(1, 2)).sum().backward()
        debugger.stop()
        debugger.step()
    assert run.steps == [1, 3, 4]
    assert run.step(1).names == run.step(3).names == run.step(4).names != []


def test_steps_by_argument(tmp_path: Path, run: Run) -> None:
    debugger = PrecisionDebugger(task="statistics", dump_path=str(tmp_path / "dump"), level="L1", step=[1])
    for _ in range(3):
        debugger.start()
        torch.relu(torch.ones(1))
        debugger.step()
    assert run.steps == [1]


def test_a_rank_in_a_single_process_is_a_warning(tmp_path: Path, run: Run, told: Any) -> None:
    debugger = configured(tmp_path, rank=[0])
    for _ in range(2):
        debugger.start()
        torch.relu(torch.ones(1))
        debugger.stop()
        debugger.step()
    (line,) = [text for text in told(logging.WARNING) if '"rank"' in text]
    assert "nothing is recorded" in line
    assert run.steps == []


def test_a_rank_by_hand(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, rank=[3])
    debugger.start(rank_id=3)
    torch.relu(torch.ones(1))
    debugger.step()
    debugger.start(rank_id=4)
    torch.relu(torch.ones(1))
    debugger.step()
    assert run.step().directory.name == "rank3" and run.steps == [0]


def test_a_process_without_rank_is_named_by_its_number(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path)
    debugger.start()
    debugger.step()
    assert run.step().directory.name == f"proc{os.getpid()}"


@pytest.mark.parametrize("name", ["a b", "ünïcödé 中", "x;y&z", "a/b/c"])
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_paths_of_every_kind(tmp_path: Path, name: str, task: str, told: Any) -> None:
    path = tmp_path / name
    debugger = configured(tmp_path, dump_path=str(path), task=task)
    debugger.start()
    torch.relu(torch.ones(1))
    debugger.step()
    step = Run(path).step()
    assert step.names == ["Torch.relu.0.forward"]
    if task == "tensor":
        assert (Path(step.dump["dump_data_dir"]) / "Torch.relu.0.forward.input.0.pt").exists()
    assert f"dump.json is at {path}/step0" in told()


def test_an_older_dump_is_replaced(tmp_path: Path) -> None:
    for body in (lambda: [torch.relu(torch.ones(1)), torch.relu(torch.ones(1))], lambda: torch.sigmoid(torch.ones(1))):
        debugger = configured(tmp_path, task="tensor")
        debugger.start()
        body()
        debugger.step()
        forget_debugger()
    step = Run(tmp_path / "dump").step()
    assert step.names == ["Torch.sigmoid.0.forward"]
    assert {p.name for p in (step.directory / "dump_tensor_data").iterdir()} == {
        f"Torch.sigmoid.0.forward.{side}.0.pt" for side in ("input", "output")
    }
    assert [names for names, _ in step.stack.values()] == [["Torch.sigmoid.0.forward"]]


def test_a_dump_path_that_is_a_file(tmp_path: Path) -> None:
    """One clear error when the path is bad, no traceback of ours later."""
    (tmp_path / "file").write_text("")
    try:
        debugger = configured(tmp_path, dump_path=str(tmp_path / "file"))
        debugger.start()
    except MsprobeException as error:
        assert str(tmp_path / "file") in str(error) and "\n" not in str(error)
        return
    torch.relu(torch.ones(1))
    debugger.step()


def test_without_extra_info(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="mix", extra_info=False)
    model = net()
    debugger.start(model)
    model(torch.ones(1, 2)).sum().backward()
    debugger.step()
    directory = run.step().directory
    assert not (directory / "stack.json").exists() and not (directory / "construct.json").exists()
    assert len(run.step().data) == 11


def test_closing_lines(tmp_path: Path, told: Any) -> None:
    debugger = configured(tmp_path, level="mix")
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Tanh())
    debugger.start(model)
    model[1](model[0](torch.ones(1, 2))).sum().backward()
    debugger.stop()
    debugger.step()
    lines = told()
    (summary,) = [text for text in lines if text.startswith("[step 0]")]
    assert "modules 2/3" in summary and "APIs 3" in summary and " MB" in summary and " ms" in summary and "not recorded" not in summary
    assert lines[-1] == f"dump.json is at {tmp_path / 'dump'}/step0"


def test_a_step_in_which_nothing_happened_is_a_warning(tmp_path: Path, told: Any) -> None:
    debugger = configured(tmp_path)
    debugger.start()
    debugger.stop()
    debugger.step()
    assert any("nothing was recorded" in text for text in told(logging.WARNING))


def test_what_comes_too_late_is_counted(tmp_path: Path, told: Any) -> None:
    debugger = configured(tmp_path)
    x = torch.ones(2, requires_grad=True)
    debugger.start()
    y = torch.relu(x).sum()
    debugger.step()
    y.backward()
    debugger.start()
    torch.relu(x)
    debugger.step()
    assert any("2 calls of earlier steps" in text for text in told() if text.startswith("[step 1]"))


def test_the_files_are_valid_from_the_start_and_before_the_end(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="mix")
    model = net()
    debugger.start(model)
    wait_for(lambda: any(run.root.glob("*/*/meta.json")))
    assert run.step().data == {} and run.step().stack == {} and run.step().construct == {}
    model(torch.ones(1, 2))
    debugger.stop()
    wait_for(lambda: len(run.step().data) == 4 and len(run.step().construct) == 4)
    debugger.step()
    assert run.step().dump == {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None, "data": run.step().data}


def wait_for(condition: Any) -> None:
    """What another thread does soon; fails after 20 s."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
