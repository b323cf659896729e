"""Words for rows. F-numbers are faults of the existing tool that must not be repeated."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msprobe.comparison.compare import compare

from .dumps import Json, api, backward, module, read_csv, save_array, statistics, tensor, tensor_call, write_dump


def rows(tmp_path: Path, target: Json, golden: Json) -> dict[str, dict[str, str]]:
    outcome = compare(write_dump(tmp_path / "t", target), write_dump(tmp_path / "g", golden), tmp_path / "o")
    return {row["NPU Name"] if row["NPU Name"] != "N/A" else row["Bench Name"]: row for row in read_csv(outcome.reports[0].csv)}


def result(tmp_path: Path, target_output: Any, golden_output: Any, given: Any = None, golden_given: Any = None) -> tuple[str, list[str]]:
    """Result and messages of the output of one call."""
    given = given if given is not None else tensor()
    name = "Torch.op.0.forward"
    target = {name: api([given], [target_output])}
    golden = {name: api([golden_given if golden_given is not None else given], [golden_output])}
    row = rows(tmp_path, target, golden)[f"{name}.output.0"]
    return row["Result"], json.loads(row["Err_message"])


def tensor_result(tmp_path: Path, target: Any, golden: Any, dtype: str | None = None) -> tuple[str, list[str]]:
    """The same for a tensor dump."""
    paths = [tensor_call(tmp_path / side, array, dtype=dtype) for side, array in (("t", target), ("g", golden))]
    outcome = compare(*paths, tmp_path / "o")
    row = read_csv(outcome.reports[0].csv)[1]
    return row["Result"], json.loads(row["Err_message"])


@pytest.mark.parametrize(
    ("target", "golden", "word"),
    [
        (tensor(1.0), tensor(1.0), "pass"),
        (tensor(2.0), tensor(1.0), "error"),
        (statistics(1.0, -1.0, 0.1, 3.0), statistics(1.0, -1.0, -0.1, 3.0), "error"),  # F14: negated
        (statistics(3.0, -1.0, 0.1, 3.0), statistics(2.0, -1.0, 0.1, 3.0), "error"),  # F14: another maximum
        (statistics(7, 1, None, None, dtype="int64"), statistics(8, 1, None, None, dtype="int64"), "error"),  # F14: other token ids
        (statistics(True, False, None, None, dtype="bool"), statistics(True, True, None, None, dtype="bool"), "error"),  # F14
        (statistics(2**62, 1, None, None, dtype="int64"), statistics(2**62 + 1, 1, None, None, dtype="int64"), "error"),  # F9
        (statistics(1.0, 1.0, 1.0, 1.0), statistics(math.nan, math.nan, math.nan, math.nan), "error"),  # F6
        (statistics(math.inf, 1.0, math.inf, math.inf), statistics(1.0, -math.inf, -math.inf, math.inf), "error"),  # F5
        (statistics(None, None, None, None), statistics(1.0, 1.0, 1.0, 1.0), "not compared"),  # F14
        (statistics(None, None, None, None, shape=[0]), statistics(None, None, None, None, shape=[0]), "pass"),
        (statistics(None, None, None, None, shape=[0]), statistics(1.0, 1.0, 1.0, 1.0), "error"),
        (tensor(1.0, "int64"), tensor(1.0, "float32"), "error"),  # not two unmatched rows
        (tensor(1.0, "bfloat16"), tensor(1.0, "float32"), "error"),
        (tensor(1.0, shape=(2, 3)), tensor(1.0, shape=(3, 2)), "error"),
        (tensor(1.0, requires_grad=True), tensor(1.0), "error"),
        (None, None, "pass"),
        (None, tensor(1.0), "error"),
        ({"type": "int", "value": 3}, {"type": "int", "value": 4}, "error"),
    ],
)
def test_an_output_on_equal_inputs(target: Any, golden: Any, word: str, tmp_path: Path) -> None:
    found, messages = result(tmp_path, target, golden)
    assert found == word
    assert bool(messages) == (word != "pass")


@pytest.mark.parametrize(
    ("target", "golden", "dtype", "word"),
    [
        ([2.0, 4.0], [1.0, 2.0], None, "error"),  # y = 2x has cosine 1
        ([1.0, 2.0], [1.0, 2.0], None, "pass"),
        ([math.inf, 1.0], [-math.inf, 1.0], None, "error"),  # F5
        ([math.nan, 1.0], [1.0, math.nan], None, "error"),  # F6
        ([1.0, 1.0], [1.0, math.nan], None, "error"),  # F6
        (np.float32(1.5), np.float32(1.25), None, "error"),  # F7
        ([2.0], [1.0], None, "error"),  # F7
        (np.array([1 + 1j]), np.array([1 - 1j]), None, "error"),  # F8
        (np.array([2**62]), np.array([2**62 + 1]), None, "error"),  # F9
        ([1e308, 1e308], [1e308, -1e308], None, "error"),
        ([2.0] * 5 + [1.0] * 95, [1.0] * 100, None, "error"),  # 95 % of the elements are right, the rest are twice too large
        (np.array([1.0, 2.0], np.float32), np.array([1.0, 2.0 + 2.4e-7], np.float32), None, "pass"),
        (np.zeros(0), np.zeros(0), None, "pass"),
        ([[1.0, 2.0]], [1.0, 2.0], None, "error"),
    ],
)
def test_a_tensor_on_equal_inputs(target: Any, golden: Any, dtype: str | None, word: str, tmp_path: Path) -> None:
    assert tensor_result(tmp_path, np.asarray(target), np.asarray(golden), dtype)[0] == word


def test_messages_of_the_metric_stage_reach_the_file(tmp_path: Path) -> None:
    """F1, F2."""
    paths = [tensor_call(tmp_path / side, np.array([1.0])) for side in "tg"]
    next((tmp_path / "t" / "dump_tensor_data").glob("*output*")).unlink()
    row = read_csv(compare(*paths, tmp_path / "o").reports[0].csv)[1]
    assert row["Result"] == "not compared"
    (message,) = json.loads(row["Err_message"])
    assert message.startswith("not compared: ") and "Torch.op.0.forward.output.0.pt" in message


def test_rows_of_one_side_are_unmatched_and_kept(tmp_path: Path) -> None:
    """F4."""
    found = rows(
        tmp_path,
        {"Torch.a.0.forward": api([tensor()], [tensor()]), "Torch.b.0.forward": api([], [tensor()])},
        {"Torch.a.0.forward": api([tensor()], [tensor()]), "Torch.c.0.forward": api([], [tensor()])},
    )
    assert list(found) == [
        "Torch.a.0.forward.input.0",
        "Torch.a.0.forward.output.0",
        "Torch.c.0.forward.output.0",
        "Torch.b.0.forward.output.0",
    ]
    assert found["Torch.b.0.forward.output.0"]["Result"] == found["Torch.c.0.forward.output.0"]["Result"] == "unmatched"
    assert found["Torch.c.0.forward.output.0"]["NPU Name"] == "N/A"
    assert found["Torch.c.0.forward.output.0"]["Bench max"] == "2.0"


def test_the_bad_output_is_marked_and_not_the_first(tmp_path: Path) -> None:
    """F11."""
    target = {"Torch.two.0.forward": api([tensor()], [tensor(1.0), tensor(9.0)])}
    golden = {"Torch.two.0.forward": api([tensor()], [tensor(1.0), tensor(1.0)])}
    found = rows(tmp_path, target, golden)
    assert [row["Result"] for row in found.values()] == ["pass", "pass", "error"]


def test_inputs_of_a_module_called_output_are_inputs(tmp_path: Path) -> None:
    """F12."""
    name = "Module.output.Linear.forward.0"
    found = rows(tmp_path, {name: module([tensor(9.0)], [tensor(9.0)])}, {name: module([tensor(1.0)], [tensor(1.0)])})
    assert [row["Result"] for row in found.values()] == ["error", "warning"]
    assert "The input differs although no call before it gave a difference." in found[f"{name}.input.0"]["Err_message"]


def test_a_weight_that_is_one_per_cent_off_is_marked(tmp_path: Path) -> None:
    """F13."""
    name = "Module.fc.Linear.forward.0"
    found = rows(
        tmp_path,
        {name: module([tensor()], [tensor()], weight=tensor(1.01))},
        {name: module([tensor()], [tensor()], weight=tensor(1.0))},
    )
    assert found[f"{name}.parameters.weight"]["Result"] == "error"
    assert json.loads(found[f"{name}.parameters.weight"]["Err_message"]) == [
        "error: The parameter differs.",
        "size: more than rounding explains (0.0079, 0.0001 expected).",
    ]


def test_weights_of_equal_sum_are_told_apart_by_their_maximum(tmp_path: Path) -> None:
    name = "Module.fc.Linear.forward.0"
    found = rows(
        tmp_path,
        {name: module([], [], weight=statistics(3.0, -3.0, 0.0, 5.0))},
        {name: module([], [], weight=statistics(4.0, -2.0, 0.0, 5.0))},
    )
    assert found[f"{name}.parameters.weight"]["Result"] == "error"


def test_a_token_id_that_moved_because_of_rounding_is_a_warning_when_the_runs_part_elsewhere(tmp_path: Path) -> None:
    def data(first: float, given: float, ids: int) -> Json:
        return {
            "Torch.a.0.forward": api([tensor()], [tensor(first)]),
            "Torch.argmax.0.forward": api([tensor(given)], [statistics(ids, 1, None, None, dtype="int64")]),
        }

    name = "Torch.argmax.0.forward.output.0"
    assert rows(tmp_path, data(2.0, 1.0, 7), data(1.0, 1.0 + 1e-7, 8))[name]["Result"] == "warning"
    assert rows(tmp_path, data(2.0, 1.0, 7), data(1.0, 1.0, 8))[name]["Result"] == "error"
    assert rows(tmp_path, data(1.0, 1.0, 7), data(1.0, 1.0 + 1e-7, 8))[name]["Result"] == "error"  # here they part


def test_an_output_that_grows_much_worse_than_its_input_is_an_error(tmp_path: Path) -> None:
    inputs = (statistics(1.0, 0.0, 0.5, 1.05), statistics(1.0, 0.0, 0.5, 1.0))
    outputs = (statistics(1.0, 0.0, 0.5, 1.6), statistics(1.0, 0.0, 0.5, 1.0))
    assert result(tmp_path, *outputs, *inputs) == (
        "error",
        [
            "error: The NormRelativeErr of output is greater than 0.5.",
            "warning: The norm relative error of output is 10 times that of input.",
        ],
    )


def test_nan_in_the_target_alone(tmp_path: Path) -> None:
    nan = statistics(math.nan, math.nan, math.nan, math.nan)
    assert result(tmp_path, nan, tensor(1.0)) == (
        "error",
        ["error: There is nan/inf/-inf in the maximum or minimum value of NPU."],
    )


@pytest.mark.parametrize(
    ("target", "golden", "word"),
    [
        ({"type": "int", "value": 2}, {"type": "int", "value": 3}, "error"),
        ({"type": "slice", "value": [0, 1, None]}, {"type": "slice", "value": [1, 2, None]}, "error"),
        ({"type": "torch.Size", "value": [1]}, {"type": "torch.Size", "value": [2]}, "error"),
        ({"type": "torch.device", "value": "npu:0"}, {"type": "torch.device", "value": "cuda:0"}, "error"),
        ({"type": "float", "value": math.nan}, {"type": "float", "value": math.nan}, "pass"),
        ({"type": "int", "value": 1}, {"type": "float", "value": 1.0}, "error"),
        ({"type": "str", "value": "a"}, {"type": "str", "value": "a"}, "pass"),
    ],
)
def test_plain_arguments(target: Any, golden: Any, word: str, tmp_path: Path) -> None:
    name = "Torch.op.0.forward"
    found = rows(tmp_path, {name: api([target], [tensor()])}, {name: api([golden], [tensor()])})
    assert found[f"{name}.input.0"]["Result"] == word


def test_another_device_is_no_start_of_a_difference(tmp_path: Path) -> None:
    def data(device: str) -> Json:
        return {"Torch.ones.0.forward": api([], [tensor()], device={"type": "torch.device", "value": device})}

    outcome = compare(write_dump(tmp_path / "t", data("npu:0")), write_dump(tmp_path / "g", data("cuda:0")), tmp_path / "o")
    assert outcome.reports[0].findings.first is None


def test_checksums(tmp_path: Path) -> None:
    name = "Torch.op.0.forward"

    def data(md5: str | None) -> Json:
        return {name: api([tensor(md5="00000001"), {"type": "int", "value": 3}, None], [tensor(md5=md5)])}

    found = rows(tmp_path, data("aaaaaaaa"), data("bbbbbbbb"))
    assert list(found[f"{name}.input.0"])[8:10] == ["NPU MD5", "BENCH MD5"]
    assert found[f"{name}.input.1"]["NPU MD5"] == "6dd28e9b"  # the CRC-32 of the text "3"
    assert [row["Result"] for row in found.values()] == ["pass", "pass", "pass", "error"]
    assert json.loads(found[f"{name}.output.0"]["Err_message"]) == ["error: The CRC-32 value of NPU differs from that of the bench."]
    found = rows(tmp_path, data(None), data("bbbbbbbb"))
    assert found[f"{name}.output.0"]["Result"] == "not compared"
    found = rows(tmp_path, data(None), data(None))
    assert found[f"{name}.output.0"]["Result"] == "not compared"


def test_a_dump_agrees_with_itself_whatever_it_holds(tmp_path: Path) -> None:
    data = {
        "Torch.a.0.forward": api(
            [tensor(math.nan), tensor(math.inf), tensor(-0.0), statistics(True, False, None, None, dtype="bool"), None, [], {}],
            [{"x": tensor(), "y": [tensor(shape=())]}],
            p={"type": "float", "value": math.nan},
            s={"type": "slice", "value": [None, None, None]},
        ),
        "Torch.a.0.backward": backward([tensor(), None], [None]),
        "Module.a.A.parameters_grad.0": {"weight": [tensor()]},
    }
    path = write_dump(tmp_path / "t", data)
    outcome = compare(path, path, tmp_path / "o")
    assert outcome.exit_code == 0
    assert outcome.reports[0].counts["pass"] == outcome.reports[0].matched


def test_nothing_measurable_is_never_a_pass(tmp_path: Path) -> None:
    data = {"Torch.a.0.forward": api([], [statistics(None, None, None, None)])}
    path = write_dump(tmp_path / "t", data)
    outcome = compare(path, path, tmp_path / "o")
    report = outcome.reports[0]
    assert report.counts["pass"] == 0 and report.counts["not compared"] == 1
    assert outcome.exit_code == 2
    assert report.nothing_measured == (
        "none of the 1 pairs of values could be compared; the first: neither side recorded statistics of this tensor"
    )


def test_rows_saved_by_hand(tmp_path: Path) -> None:
    target = write_dump(tmp_path / "t", {"a.0.debug": save_array(tmp_path / "t", "a.0.debug.pt", [1.0])}, task="tensor", name="debug.json")
    golden = write_dump(tmp_path / "g", {"a.0.debug": save_array(tmp_path / "g", "a.0.debug.pt", [2.0])}, task="tensor", name="debug.json")
    report = compare(target.parent, golden.parent, tmp_path / "o").reports[0]
    assert report.csv.name.startswith("debug_compare_result_")
    assert report.counts["error"] == 1
