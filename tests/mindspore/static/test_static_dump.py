"""Level L0 in graph mode, by taps that are compiled into the graph; see static_dump_cases.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore
CELLS = {
    "Cell.d1.Dense": 1,
    "Cell.shared.Dense": 2,
    "Cell.b.Block": 1,
    "Cell.b.d.Dense": 1,
    "Cell.b.r.ReLU": 1,
    "Cell.d2.Dense": 1,
}


def case(run_mindspore: Callable[..., Any], factory: pytest.TempPathFactory, task: str, mode: str) -> Any:
    directory = factory.mktemp("static_dump")
    answer = run_mindspore("static_dump_cases.py", directory, task, mode)
    return {**answer, "output": (directory / "output.txt").read_text(encoding="utf-8")}


@pytest.fixture(scope="module")
def everything(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return case(run_mindspore, tmp_path_factory, "tensor", "all")


@pytest.fixture(scope="module")
def forward(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return case(run_mindspore, tmp_path_factory, "statistics", "forward")


def test_forward_backward_and_parameters_of_every_call(everything: Any) -> None:
    wanted = {f"{cell}.{way}.{n}" for cell, calls in CELLS.items() for n in range(calls) for way in ("forward", "backward")}
    wanted |= {f"{cell}.parameters_grad.0" for cell in CELLS if cell.endswith("Dense")}
    assert set(everything["dump"]["data"]) == wanted
    assert everything["steps"] == ["step0", "step2"]
    assert (everything["dump"]["level"], everything["dump"]["framework"]) == ("L0", "mindspore")


def test_records(everything: Any) -> None:
    data = everything["dump"]["data"]
    block = data["Cell.b.Block.forward.0"]
    assert [record["shape"] for record in block["input_args"][:2]] == [[2, 4], [2, 4]]
    assert block["input_args"][2] == {"type": "int", "value": 2} and block["input_kwargs"]["scale"]["dtype"] == "Float32"
    assert len(block["output"]) == 2
    first, second = (data[f"Cell.shared.Dense.forward.{n}"] for n in (0, 1))
    for key in ("Max", "Min", "Mean", "Norm"):
        assert second["input_args"][0][key] == first["output"][0][key]
    first_layer = data["Cell.d1.Dense.forward.0"]
    assert first_layer["input_args"][0]["Max"] == 0.625
    assert {name: record["shape"] for name, record in first_layer["parameters"].items()} == {"weight": [4, 3], "bias": [4]}


def test_gradients_belong_to_their_calls(everything: Any) -> None:
    data = everything["dump"]["data"]
    later, earlier = (data[f"Cell.shared.Dense.backward.{n}"] for n in (1, 0))
    for key in ("Max", "Min", "Mean", "Norm"):  # what leaves the second call enters the first
        assert later["output"][0][key] == earlier["input"][0][key]
    assert data["Cell.d2.Dense.backward.0"]["input"][0]["Max"] == 1.0
    block = data["Cell.b.Block.backward.0"]
    assert [record["shape"] for record in block["output"]] == [[2, 4]] * 3  # of the keyword, too; the number has none
    assert [record["shape"] for record in block["input"]] == [[2, 4]] * 2


def test_gradients_of_parameters_are_those_that_training_gets(everything: Any) -> None:
    data, wanted = everything["dump"]["data"], everything["gradients"]
    for cell in ("d1", "b.d", "shared", "d2"):
        for name in ("weight", "bias"):
            (record,) = data[f"Cell.{cell}.Dense.parameters_grad.0"][name]
            assert [record["Max"], record["shape"]] == wanted[f"{cell}.{name}"]


def test_parents_and_files(everything: Any) -> None:
    construct, files = everything["construct"], everything["files"]
    assert construct["Cell.b.d.Dense.forward.0"] == "Cell.b.Block.forward.0"
    assert construct["Cell.b.r.ReLU.backward.0"] == "Cell.b.Block.backward.0" and construct["Cell.shared.Dense.forward.1"] is None
    assert files["Cell.b.Block.forward.0.kwargs.scale.npy"] == [2, 4] and files["Cell.d1.Dense.parameters_grad.0.weight.npy"] == [4, 3]
    assert len(files) == 52


def test_gradients_stay_what_they_are_and_what_may_differ_is_told(everything: Any) -> None:
    assert everything["close"] is True and everything["output"].count("its last bits differ") == 1
    assert "at Cell.b.Block (takes in what is used elsewhere too, goes on using what it gives out) MindSpore" in everything["output"]


def test_forward_alone_changes_no_bit(forward: Any) -> None:
    assert forward["same"] is True and "at Cell.b.Block (goes on using what it gives out) MindSpore" in forward["output"]
    assert set(forward["dump"]["data"]) == {f"{cell}.forward.{n}" for cell, calls in CELLS.items() for n in range(calls)}
    assert forward["files"] == {} and forward["dump"]["data"]["Cell.d1.Dense.forward.0"]["output"][0]["Norm"] > 0
