"""PrecisionDebugger.save of MindSpore in PyNative; see debug_save_cases.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore


@pytest.fixture(scope="module")
def saved(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("debug_save")
    return {**run_mindspore("debug_save_cases.py", directory), "directory": directory}


def test_keys_and_files(saved: Any) -> None:
    assert (saved["place"], saved["others"]) == ("proc", ["debug.json", "dump_tensor_data", "meta.json"])
    head = saved["debug"]
    assert (head["task"], head["level"], head["framework"]) == ("tensor", "debug", "mindspore")
    assert set(head["data"]) == {"z.0.debug", "z_grad.0.debug", "nest.0.debug", "nest_grad.0.debug", "z.1.debug"}
    assert sorted(saved["files"]) == [
        "nest.0.debug.a.npy", "nest.0.debug.b.0.npy", "nest_grad.0.debug.a.npy", "z.0.debug.npy", "z.1.debug.npy", "z_grad.0.debug.npy",
    ]  # fmt: skip


def test_values_and_gradients(saved: Any) -> None:
    data, files = saved["debug"]["data"], saved["files"]
    assert files["z.0.debug.npy"] == saved["z"]
    for found, wanted in zip(files["z_grad.0.debug.npy"], saved["gradient"], strict=True):
        assert found == pytest.approx(wanted, rel=1e-5)
    record = data["z.0.debug"]
    assert (record["type"], record["dtype"], record["shape"]) == ("mindspore.Tensor", "Float32", [2, 2])
    assert record["Max"] == pytest.approx(max(map(max, saved["z"]))) and record["data_name"] == "z.0.debug.npy"
    assert data["nest.0.debug"]["b"][1] == {"type": "int", "value": 3}
    assert data["nest_grad.0.debug"]["b"] == [None, None]  # nothing came from there
    assert data["nest_grad.0.debug"]["a"]["Norm"] == data["z_grad.0.debug"]["Norm"]


def test_loss_and_gradients_have_the_same_bits(saved: Any) -> None:
    assert saved["same"] is True


def test_wrong_arguments_are_told_and_a_step_that_nobody_ended_is_on_disk(saved: Any) -> None:
    directory: Path = saved["directory"]
    output = (directory / "output.txt").read_text(encoding="utf-8")
    assert "save(name=<int>): a name must be text" in output and "it must be True or False" in output
    (file,) = (directory / "dump" / "step1").glob("*/debug.json")
    assert "later.0.debug" in json.loads(file.read_text(encoding="utf-8"))["data"]
