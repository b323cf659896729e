"""MSAdapter, by a package that stands in for it: its calls have the names of PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msprobe.cli.main import main

pytestmark = pytest.mark.mindspore


@pytest.fixture(scope="module")
def ran(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    directory = tmp_path_factory.mktemp("adapter")
    return run_mindspore("adapter/standing_in.py", directory), directory


def entries(ran: tuple[Any, Path], name: str) -> dict[str, Any]:
    (path,) = (ran[1] / name).glob("step0/*/dump.json")
    return dict(json.loads(path.read_text(encoding="utf-8"))["data"])


def test_modules(ran: tuple[Any, Path]) -> None:
    found = entries(ran, "L0")
    assert {name for name in found if ".forward." in name} == {"Module.first.Linear.forward.0", "Module.second.Linear.forward.0"}
    assert "Module.second.Linear.backward.0" in found
    assert set(found["Module.first.Linear.parameters_grad.0"]) == {"weight", "bias"}
    record = found["Module.first.Linear.forward.0"]
    assert set(record["parameters"]) == {"weight", "bias"}
    assert record["output"][0]["type"] == "mindspore.Tensor" and record["output"][0]["shape"] == [2, 3]


def test_functions(ran: tuple[Any, Path]) -> None:
    found = [name for name in entries(ran, "L1") if name.endswith(".forward")]
    assert found == [
        "Functional.linear.0.forward",
        "Functional.relu.0.forward",
        "Tensor.__mul__.0.forward",
        "Functional.linear.1.forward",
        "Torch.tanh.0.forward",
        "Torch.mean.0.forward",
    ]


def test_mix_and_what_is_selected(ran: tuple[Any, Path]) -> None:
    (path,) = (ran[1] / "mix").glob("step0/*/construct.json")
    parents = json.loads(path.read_text(encoding="utf-8"))
    assert parents["Functional.linear.1.forward"] == "Module.second.Linear.forward.0"
    assert parents["Torch.tanh.0.forward"] is None
    assert {name.split(".")[0] for name in entries(ran, "mix")} == {"Module", "Functional", "Tensor", "Torch"}
    listed = [name for name in entries(ran, "mix_list") if "forward" in name]
    assert listed == ["Functional.linear.1.forward", "Module.second.Linear.forward.0"]
    scoped = [name for name in entries(ran, "mix_scope") if "forward" in name]
    assert scoped == ["Functional.linear.0.forward", "Module.first.Linear.forward.0"]
    assert all(set(record) == {"output", "parameters"} or set(record) == {"output"} for record in entries(ran, "mix_data_mode").values())


def test_values_and_checksums(ran: tuple[Any, Path]) -> None:
    (directory,) = (ran[1] / "mix_tensor_list").glob("step0/*/dump_tensor_data")
    files = {path.name for path in directory.iterdir()}
    assert "Module.second.Linear.forward.0.output.0.npy" in files
    assert not any(name.startswith("Module.first") for name in files)
    record = entries(ran, "mix_summary_mode")["Module.second.Linear.forward.0"]["output"][0]
    assert len(record["md5"]) == 8 and record["dtype"] == "Float32"


def test_nothing_changes(ran: tuple[Any, Path]) -> None:
    answers = ran[0]
    assert answers["put_back"]
    assert len(answers) == 10
    assert all(answer == answers["plain"] for name, answer in answers.items() if name != "put_back")


def test_against_itself(ran: tuple[Any, Path]) -> None:
    target, golden = str(ran[1] / "mix"), str(ran[1] / "mix")
    assert main(["compare", "-tp", target, "-gp", golden, "-o", str(ran[1] / "out")]) == 0
