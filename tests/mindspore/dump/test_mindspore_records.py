"""What is recorded in a MindSpore process: names, numbers, gradients, selection, files."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msprobe.format import reader

pytestmark = pytest.mark.mindspore
GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "mindspore" / "structure.json").read_text(encoding="utf-8"))
NOISE = ("Functional.rank.", "Primitive.shape_op.")
"""The reference tool records these, which say the shape of a tensor and compute nothing."""


class Runs:
    """What the script has left."""

    def __init__(self, directory: Path, seen: dict[str, Any]) -> None:
        self.directory, self.seen = directory, seen

    def place(self, name: str, step: int = 0) -> Path:
        (place,) = (self.directory / name / f"step{step}").iterdir()
        return place

    def data(self, name: str, step: int = 0) -> dict[str, Any]:
        return reader.read_dump(self.place(name, step) / "dump.json").data

    def construct(self, name: str) -> dict[str, Any]:
        return reader.read_construct(self.place(name) / "construct.json")

    def values(self, name: str, record: dict[str, Any]) -> Any:
        return np.load(self.place(name) / "dump_tensor_data" / record["data_name"])


@pytest.fixture(scope="module")
def runs(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Runs:
    directory = tmp_path_factory.mktemp("records")
    return Runs(directory, run_mindspore("dump/records.py", directory))


def test_every_case_ran(runs: Runs) -> None:
    assert "failed" not in runs.seen


def bare(record: Any) -> Any:
    """A record without its numbers."""
    if isinstance(record, dict):
        if record.get("type") == "mindspore.Tensor":
            return {key: record[key] for key in ("type", "dtype", "shape")}
        return {key: bare(value) for key, value in record.items()}
    return [bare(value) for value in record] if isinstance(record, list) else record


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_names_and_records_are_those_of_the_samples(runs: Runs, level: str) -> None:
    golden = {name: value for name, value in GOLDEN[level]["data"].items() if not name.startswith(NOISE)}
    data = runs.data(f"sample_{level}")
    assert set(data) == set(golden)
    for name, value in golden.items():
        if ".forward" in name or name.startswith("Cell."):
            assert bare(data[name]) == value, name
        else:  # there the inputs' gradients are in an order of their own, and some are left out
            assert bare(data[name]["input"]) == value["input"], name


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_forward_entries_are_in_the_order_of_the_samples(runs: Runs, level: str) -> None:
    wanted = [name for name in GOLDEN[level]["data"] if ".forward" in name and not name.startswith(NOISE)]
    assert [name for name in runs.data(f"sample_{level}") if ".forward" in name] == wanted


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_parents_are_those_of_the_samples(runs: Runs, level: str) -> None:
    assert runs.construct(f"sample_{level}") == {k: v for k, v in GOLDEN[level]["construct"].items() if not k.startswith(NOISE)}


def test_files_are_those_of_the_samples(runs: Runs) -> None:
    files = sorted(path.name for path in (runs.place("sample_L0") / "dump_tensor_data").iterdir())
    assert files == GOLDEN["files"]


def test_head_and_place(runs: Runs) -> None:
    dump = reader.read_dump(runs.place("sample_mix") / "dump.json")
    assert (dump.task, dump.level, dump.framework) == ("statistics", "mix", "mindspore")
    assert runs.place("sample_mix").name.startswith("proc")
    text = (runs.place("sample_mix") / "stack.json").read_text(encoding="utf-8")
    (frames,) = [frames for names, frames in json.loads(text).values() if "Functional.tanh.0.forward" in names]
    assert "records.py" in frames[0]
    assert "in construct" in frames[0]
    assert "self.head(ops.tanh(x))" in frames[0]
    assert "src/msprobe" not in text


def test_gradients_of_a_call_are_its_own_contribution(runs: Runs) -> None:
    y = np.array([1.5, -0.75, 0.375], np.float32)
    data = runs.data("own")
    for name, expected in {
        "Functional.tanh.0.backward": [1 - np.tanh(y) ** 2],
        "Functional.mul.0.backward": [y, y],  # one tensor, passed twice
        "MintFunctional.relu.0.backward": [np.array([1, 0, 1], np.float32)],
        "Tensor.__mul__.0.backward": [3 * (1 - np.tanh(y) ** 2 + 2 * y + (y > 0))],
    }.items():
        output = data[name]["output"]
        assert [record is not None for record in output] == [True] * len(expected)
        for record, value in zip(output, expected, strict=True):
            np.testing.assert_allclose(runs.values("own", record), value, rtol=2e-6)


def test_gradients_of_a_call_that_is_several_nodes(runs: Runs) -> None:
    (record, label) = runs.data("several")["Functional.cross_entropy.0.backward"]["output"]
    truth = np.load(runs.directory / "several_truth.npy")
    np.testing.assert_array_equal(runs.values("several", record), truth)
    assert label is None


def test_in_place_functions_are_recorded_as_they_began(runs: Runs) -> None:
    data = runs.data("in_place")
    before = data["Tensor.add_.0.forward"]["input_args"][0]
    at_setitem = data["Tensor.__setitem__.0.forward"]["input_args"][0]
    after = data["Tensor.__iadd__.0.forward"]["input_args"][0]
    scaled = data["Tensor.__mul__.0.forward"]["output"][0]
    first = data["Cell.first.Dense.forward.0"]["output"][0]
    y, z = runs.values("in_place", first), runs.values("in_place", scaled)
    np.testing.assert_array_equal(z, y * np.float32(1.5))
    np.testing.assert_array_equal(runs.values("in_place", before), z)
    set_then = runs.values("in_place", after)
    assert runs.values("in_place", at_setitem)[0].tolist() != [2.0] * 6
    assert set_then[0].tolist() == [2.0] * 6
    np.testing.assert_array_equal(set_then[1:], runs.values("in_place", at_setitem)[1:])


def records_of_kinds(runs: Runs) -> list[Any]:
    return list(runs.data("kinds")["Cell.inner.Values.forward.0"]["input_args"])


def test_statistics_of_every_kind_of_number(runs: Runs) -> None:
    records = records_of_kinds(runs)
    shown = [[record[key] for key in ("dtype", "shape", "Max", "Min", "Mean", "Norm")] for record in records[:11]]
    nan, inf = pytest.approx(float("nan"), nan_ok=True), float("inf")
    bf16 = float(np.frombuffer(np.uint32(0x7F620000).tobytes(), np.float32)[0])
    large = np.full(5000, 0.1, np.float32)
    large[0] = 3e38
    exact = large.astype(np.float64)
    assert shown == [
        ["Float32", [4], nan, nan, nan, nan],
        ["Float16", [2], inf, 1.0, inf, inf],
        ["BFloat16", [3], bf16, -2.25, pytest.approx((bf16 - 0.75) / 3, rel=1e-15), pytest.approx(bf16, rel=1e-15)],
        ["Float32", [0, 3], None, None, None, None],
        ["Float32", [], 2.5, 2.5, 2.5, 2.5],
        ["Int64", [2], 2**62 + 1, -5, (2**62 - 4) / 2, pytest.approx(2.0**62)],
        ["Bool", [2], True, False, None, None],
        ["Complex64", [2], 5.0, 1.0, 3.0, pytest.approx(26**0.5)],
        ["UInt8", [2], 255, 1, 128.0, pytest.approx((255**2 + 1) ** 0.5)],
        ["Float32", [5000], exact.max(), exact.min(), pytest.approx(exact.mean(), rel=1e-14), pytest.approx(exact[0], rel=1e-14)],
        ["Float64", [2, 3], 5.0, 0.0, 2.5, pytest.approx(55**0.5, rel=1e-15)],
    ]


def test_other_values(runs: Runs) -> None:
    records = records_of_kinds(runs)[11:]
    assert records[:5] == [
        None,
        {"type": "int", "value": 3},
        {"type": "str", "value": "text"},
        {"type": "bool", "value": True},
        {"type": "float", "value": 2.5},
    ]
    assert records[5][0]["data_name"] == "Cell.inner.Values.forward.0.input.16.0.npy"
    assert records[5][1]["k"]["Max"] == 2**62 + 1
    assert records[6:9] == [
        {"type": "mindspore.dtype", "value": "Float16"},
        {"type": "slice", "value": [1, None, None]},
        {"type": "float32", "value": 1.5},
    ]
    assert records[9]["type"] == "numpy.ndarray"
    assert records[10] is None
    meta = json.loads((runs.place("kinds") / "meta.json").read_text())
    assert "a object" in json.dumps(meta["unread"])


def test_files_hold_the_values(runs: Runs) -> None:
    records = records_of_kinds(runs)
    assert runs.values("kinds", records[0]).tolist()[2:] == [-np.inf, 2.0]
    bf16 = runs.values("kinds", records[2])
    assert (bf16.dtype, bf16[:2].tolist()) == (np.float32, [1.5, -2.25])
    assert runs.values("kinds", records[6]).tolist() == [True, False]
    assert runs.values("kinds", records[7]).tolist() == [3 + 4j, 1j]
    assert runs.values("kinds", records[4]).shape == ()
    assert "data_name" not in records[3]  # nothing in it


def test_md5_is_the_crc_of_the_bytes(runs: Runs) -> None:
    record = records_of_kinds(runs)[9]
    assert record["md5"] == f"{zlib.crc32(runs.values('kinds', record).tobytes()):08x}"
    assert list(runs.data("md5")["Primitive.relu.ReLU.0.forward"]["output"][0]) == GOLDEN["md5_keys"]
    assert "md5" not in runs.data("plain")["Primitive.relu.ReLU.0.forward"]["output"][0]


def test_what_only_compiled_graphs_have_is_told_once(runs: Runs) -> None:
    record = runs.data("of_graphs")["Primitive.relu.ReLU.0.forward"]["output"][0]
    assert {"Max", "Min", "Mean", "Norm"} <= set(record)
    output = (runs.directory / "output.txt").read_text()
    for told in (
        """"statistics"."summary_mode" ['max'] is for compiled graphs: here it is "statistics\"""",
        """"statistics"."device" 'device' is for compiled graphs: here it is "host\"""",
    ):
        assert output.count(told) == 1


def test_structure_has_names_and_no_records(runs: Runs) -> None:
    assert runs.data("structure") == {}
    construct = runs.construct("structure")
    assert construct["Primitive.matmul.MatMul.1.forward"] == "Cell.same.Dense.forward.1"
    assert construct["Primitive.matmul.MatMul.1.backward"] == "Cell.same.Dense.backward.1"
    assert "Primitive.mul.Mul.0.forward" in (runs.place("structure") / "stack.json").read_text()


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("list_api", {"Functional.tanh.0.forward": ["output"]}),
        ("scope_l0", {f"Cell.same.Dense.forward.{n}": ["input_args", "input_kwargs", "output", "parameters"] for n in (0, 1)}),
    ],
)
def test_list_scope_and_data_mode(runs: Runs, run: str, expected: dict[str, list[str]]) -> None:
    assert {name: list(value) for name, value in runs.data(run).items()} == expected


def test_a_listed_cell_brings_all_that_runs_inside_it(runs: Runs) -> None:
    data = runs.data("list_cell")
    assert {name for name in data if "forward" in name} == {
        "Primitive.matmul.MatMul.0.forward",
        "Primitive.bias_add.BiasAdd.0.forward",
        "Cell.same.Dense.forward.0",
    }


def test_scope_ends_with_what_runs_inside_its_last_cell(runs: Runs) -> None:
    data = list(runs.data("scope_mix"))
    assert data[0] == "Primitive.matmul.MatMul.1.forward"
    assert data[-3:] == ["Primitive.matmul.MatMul.2.forward", "Primitive.bias_add.BiasAdd.2.forward", "Cell.out.Dense.forward.0"]


def test_tensor_list_keeps_values_of_what_it_names(runs: Runs) -> None:
    files = sorted(path.name for path in (runs.place("tensor_list") / "dump_tensor_data").iterdir())
    ends = ("backward.input", "backward.output", "forward.input", "forward.output")
    assert files == [f"Functional.tanh.0.{end}.0.npy" for end in ends]
    assert "Cell.out.Dense.forward.0" in runs.data("tensor_list")


def test_directions_and_sides(runs: Runs) -> None:
    assert not [name for name in runs.data("backward_only") if ".forward" in name]
    inputs = runs.data("inputs_only")
    assert list(inputs["Cell.out.Dense.forward.0"]) == ["input_args", "input_kwargs"]
    assert list(inputs["Cell.out.Dense.backward.0"]) == ["input"]


def test_async_dump_records_the_same(runs: Runs) -> None:
    data = runs.data("async")
    assert list(data) == ["Cell.out.Dense.forward.0", "Cell.out.Dense.backward.0", "Cell.out.Dense.parameters_grad.0"]
    other = runs.data("tensor_list")["Cell.out.Dense.forward.0"]["output"][0]
    assert {key: data["Cell.out.Dense.forward.0"]["output"][0][key] for key in other} == other


def test_steps_and_ranks(runs: Runs) -> None:
    assert sorted(path.name for path in (runs.directory / "steps").iterdir()) == ["step1", "step3", "step4"]
    assert [path.name for path in (runs.directory / "from_five").iterdir()] == ["step5"]
    assert runs.seen["no_rank"] is False
    assert runs.place("by_hand").name == "rank3"
    assert '"rank" is set, but this process has no rank' in (runs.directory / "output.txt").read_text()


def test_compiled_functions_are_calls_and_work(runs: Runs) -> None:
    data = runs.data("jit")
    assert runs.seen["jit_same"] is True
    assert [name for name in data if name.startswith("Jit.")] == [
        "Jit.construct.0.forward",
        "Jit.compiled_first.0.forward",
        "Jit.compiled_first.0.backward",
        "Jit.construct.0.backward",
    ]
    assert len(data["Jit.construct.0.forward"]["input_args"]) == 1  # the cell is no argument
    assert len(data["Jit.compiled_first.0.backward"]["output"]) == 2
    assert data["Cell.jit.JitCell.backward.0"]["output"][0]["shape"] == [4, 6]


def test_a_compiled_function_does_not_say_whose_gradients_it_gives(runs: Runs) -> None:
    """Nobody asked for the gradient of `x`; those of the weights are not taken for it."""
    assert runs.data("jit_whole")["Jit.whole.0.backward"]["output"] == [None]


def test_model_train(runs: Runs) -> None:
    assert [path.name for path in (runs.directory / "model_train").iterdir()] == ["step1"]
    data = runs.data("model_train", 1)
    forward = [name for name in data if ".forward." in name]
    assert forward == [
        "Cell.network._backbone.first.Dense.forward.0",
        "Cell.network._backbone.act.ReLU.forward.0",
        "Cell.network._backbone.second.Dense.forward.0",
        "Cell.network._backbone.Mlp.forward.0",
        "Cell.network._loss_fn.MSELoss.forward.0",
        "Cell.network.WithLossCell.forward.0",
    ]
    assert "Cell.network._backbone.first.Dense.parameters_grad.0" in data


def test_the_users_errors_stay_the_users(runs: Runs) -> None:
    assert runs.seen["the user's error"] == "the user's own"
    data = runs.data("raises")
    assert list(data["Cell.bad.Bad.forward.0"]) == ["input_args", "input_kwargs"]
    assert list(data["Functional.reshape.0.forward"]) == ["input_args", "input_kwargs"]
    assert runs.construct("raises")["Cell.fc.Dense.forward.0"] is None


def test_an_operation_that_fails_is_told_to_the_user(runs: Runs) -> None:
    """In the call itself; and by step(), where it was started after stop()."""
    assert runs.seen["failing"] == ["ValueError", "ValueError"]
    assert runs.seen["session after it"] == [True, 1]


def test_bfloat16_is_recorded_where_numpy_is_of_another_major_version(runs: Runs) -> None:
    name = "Cell.inner.Values.forward.0"
    records = [runs.data(path)[name]["input_args"][2] for path in ("kinds", "kinds_numpy")]
    assert records[0] == records[1] and records[0]["dtype"] == "BFloat16" and len(records[0]["md5"]) == 8
    values = [runs.values(path, records[0]) for path in ("kinds", "kinds_numpy")]
    np.testing.assert_array_equal(*values)
    assert values[1].dtype == np.float32


def test_our_errors_stay_ours(runs: Runs) -> None:
    assert runs.seen["our error"] is True
    assert "ZeroDivisionError" in (runs.place("ours") / "dump_error_info.log").read_text()


def test_a_signal_handler_that_raises_in_our_code_ends_no_recording(runs: Runs) -> None:
    """Four calls of a net are cut off by it, the fifth is recorded as a whole."""
    assert runs.seen["timeouts"] == ["the user's handler"] * 4
    whole = ["Cell.first.Dense.forward.4", "Primitive.relu.ReLU.0.forward", "Cell.act.ReLU.forward.0", "Primitive.matmul.MatMul.4.forward",
             "Primitive.bias_add.BiasAdd.2.forward", "Cell.second.Dense.forward.0"]  # fmt: skip
    assert list(runs.data("timeout"))[-6:] == whole
    parents = runs.construct("timeout")
    assert [parents[name] for name in whole] == [None, whole[2], None, whole[5], whole[5], None]


def test_everything_is_put_back(runs: Runs) -> None:
    assert runs.seen["not back"] == []
    names = ["exchanged", "back at step", "theirs stays"]
    assert {name: runs.seen[name] for name in names} == dict.fromkeys(names, True)
    assert runs.seen["hooks left"] == 0


def test_a_backward_pass_after_its_step_is_counted(runs: Runs) -> None:
    assert runs.seen["late"] == 3
    assert not [name for name in runs.data("late") if "backward" in name]
    assert "3 calls of earlier steps had their backward pass after their step had ended" in (runs.directory / "output.txt").read_text()


def test_a_step_whose_end_fails_has_complete_files(runs: Runs) -> None:
    assert runs.seen["open after an end that failed"] is False
    assert (runs.directory / "failing" / "step0").exists()


def test_stop_before_the_backward_pass_and_step_after_it(runs: Runs) -> None:
    data = runs.data("early_stop")
    assert {"Cell.second.Dense.backward.0", "Primitive.matmul.MatMul.0.backward", "Cell.first.Dense.parameters_grad.0"} <= set(data)
    assert "Functional.tanh.0.forward" not in data


def test_gradients_of_gradients(runs: Runs) -> None:
    assert runs.seen["second order"] is True
    assert "Functional.tanh.0.backward" in runs.data("second_order")


def test_recomputed_cells_keep_their_names(runs: Runs) -> None:
    data = runs.data("recompute")
    assert not [name for name in data if "recompute" in name.lower()]
    assert "Cell.first.Dense.backward.0" in data


def test_several_models(runs: Runs) -> None:
    assert {name.split(".")[1] for name in runs.data("several_models")} == {"0", "1"}


def test_results_of_several_tensors(runs: Runs) -> None:
    data = runs.data("outputs")
    used, unused = data["Mint.split.1.backward"]["input"]
    assert (used["shape"], unused) == ([4, 3], None)
    first, stopped = data["Tensor.__add__.0.backward"]["output"]
    assert (first["shape"], stopped) == ([4, 3], None)
    assert len(data["Cell.inner.Inner.backward.0"]["input"] if "Cell.inner.Inner.backward.0" in data else [1]) == 1


def test_containers(runs: Runs) -> None:
    inner = runs.data("containers")["Cell.inner.Inner.forward.0"]
    assert list(inner["input_args"][0]) == ["a", "b"]
    assert inner["input_kwargs"]["scale"]["data_name"] == "Cell.inner.Inner.forward.0.kwargs.scale.npy"
    assert inner["output"][0]["parts"][1][1] == {"type": "int", "value": 3}
    assert [record["shape"] for record in runs.data("containers")["Cell.inner.Inner.backward.0"]["input"]] == [[4, 6]] * 3


def test_every_backward_pass_has_its_number(runs: Runs) -> None:
    data = runs.data("twice")
    gradients = [data[f"Cell.first.Dense.parameters_grad.{n}"]["weight"][0]["Norm"] for n in (0, 1)]
    assert gradients[0] != gradients[1]
    assert {"Cell.second.Dense.backward.0", "Cell.second.Dense.backward.1"} <= set(data)


def test_a_forked_child_is_left_alone(runs: Runs) -> None:
    assert runs.seen["forked"] == 0


def test_wrong_use_is_told(runs: Runs) -> None:
    assert runs.seen["wrong use"] == [
        'UsageError: start(model): model is missing; level "L0" records cells and needs it',
        "UsageError: start(model): model is int; allowed: a mindspore.nn.Cell, or a list or tuple of them",
        "UsageError: start(model): model[1] is int, not a mindspore.nn.Cell",
        "UsageError: set_init_step(step): step is -1; allowed: an integer of 0 or more",
        "UsageError: start(rank_id): rank_id is -1; allowed: an integer of 0 or more",
        "UsageError: MsprobeStep(debugger): debugger is None; allowed: the PrecisionDebugger",
    ]


def test_a_step_that_nobody_ended_is_ended(runs: Runs) -> None:
    assert list(runs.data("left_open")) == ["Cell.first.Dense.forward.0", "Cell.act.ReLU.forward.0", "Cell.second.Dense.forward.0"]


def test_seed_all(runs: Runs) -> None:
    assert runs.seen["seeded"] is True
    assert runs.seen["no dropout"] == [True, True]
    assert runs.seen["dropout again"] is True
    assert runs.seen["wrong seeds"][0] == "seed_all(seed): seed is -1; allowed: an integer from 0 to 4294967295"
    assert "mode is 1" in runs.seen["wrong seeds"][2]


def test_what_was_recorded_outlives_a_kill(run_mindspore: Callable[..., Any], tmp_path: Path) -> None:
    imported = run_mindspore("dump/killed.py", tmp_path, status=-9)
    assert imported == []  # importing msprobe.mindspore costs nothing beside mindspore
    killed = Runs(tmp_path, {})
    assert "Cell.second.Dense.forward.0" in killed.data("dump")
    assert killed.construct("dump")["Primitive.matmul.MatMul.1.forward"] == "Cell.second.Dense.forward.0"
