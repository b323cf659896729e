"""PrecisionDebugger.save of MindSpore in PyNative; see debug_save_cases.py."""

from __future__ import annotations

import json
import zlib
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


@pytest.fixture(scope="module")
def settings(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("debug_save_settings")
    answer = run_mindspore("debug_save_settings.py", directory)
    return {**answer, "output": (directory / "output.txt").read_text(encoding="utf-8")}


def test_md5_is_the_crc_of_value_and_gradient(settings: Any) -> None:
    data = settings["md5"]["steps"]["step0"]
    found = [data[name]["y"]["md5"] for name in ("values.0.debug", "values_grad.0.debug")]
    assert found == [f"{zlib.crc32(bytes.fromhex(text)):08x}" for text in settings["bytes"]]


def test_only_the_steps_that_are_selected(settings: Any) -> None:
    assert sorted(settings["steps"]["steps"]) == ["step1", "step3", "step4"]
    assert all(set(data) == {"values.0.debug", "values_grad.0.debug"} for data in settings["steps"]["steps"].values())


def test_a_rank_that_is_not_there_is_told(settings: Any) -> None:
    assert settings["rank"] == {"steps": {}, "files": {}}
    assert '"rank" is set, but this process has no rank' in settings["output"]


def test_async_dump_saves_the_same(settings: Any) -> None:
    tensor = settings["tensor"]["steps"]["step0"]
    without = {
        name: {**entry, "y": {key: value for key, value in entry["y"].items() if key != "data_name"}} for name, entry in tensor.items()
    }
    assert settings["async"]["steps"]["step0"] == without
    assert settings["async_tensor"]["steps"]["step0"] == tensor and settings["async_tensor"]["files"] == settings["tensor"]["files"]


def test_the_gradient_is_bit_for_bit_what_mindspore_computes(settings: Any) -> None:
    """Its tanh on a CPU is off by up to 1e-4 where the argument is large, and so is a gradient made of that: that is what training gets."""
    gradient = settings["tensor"]["files"]["values_grad.0.debug.y.npy"]
    assert gradient == settings["of_y"]
    for found, row in zip(settings["of_x"], gradient, strict=True):
        assert found == pytest.approx([3 * value for value in row], rel=1e-6)


def test_another_pass_over_the_same_graph_has_an_entry_of_its_own(settings: Any) -> None:
    data, files = settings["again"]["steps"]["step0"], settings["again"]["files"]
    assert list(data) == ["y.0.debug", "y_grad.0.debug", "y_grad.0.debug.pass1", "y_grad.0.debug.pass2"]
    assert [data[name]["Max"] for name in list(data)[1:]] == [1.0, 2.0, 3.0]
    assert files["y_grad.0.debug.pass1.npy"] == [[2.0] * 3] * 2 and len(files) == 4
