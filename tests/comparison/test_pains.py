"""What people who hunt numerical mismatches complain about, as far as a comparison can answer it. Numbers: those of that list."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msprobe.cli.main import main

from .commands import Ran, compare
from .dumps import Json, api, backward, malicious, module, save_array, statistics, tensor, tensor_call, write_dump
from .net import Net

Compare = Callable[..., Ran]
OUTPUT = "Torch.op.0.forward.output.0"


@pytest.fixture
def dumps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Compare:
    numbers = count()

    def run(target: Json, golden: Json, *options: str, **how: Any) -> Ran:
        place = tmp_path / str(next(numbers))
        paths = [write_dump(place / side, data, **how) for side, data in (("t", target), ("g", golden))]
        return compare(capsys, *paths, place / "out", *options)

    return run


def op(output: Any, given: Any = None) -> Json:
    return {"Torch.op.0.forward": api([given if given is not None else tensor()], [output])}


def first(ran: Ran) -> str:
    return next(line for line in ran.out.splitlines() if line.startswith("First difference"))


def chain(length: int, changed: int | None = None, skipped: int | None = None) -> Json:
    """`length` calls, each of another value; one of them changed, or left out so that the numbers behind it are shifted."""
    data: Json = {}
    for n in range(length):
        value = tensor(n + 2.0 + (0.5 if changed is not None and n >= changed else 0.0))
        given = tensor(n + 1.0 + (0.5 if changed is not None and n > changed else 0.0))
        if n != skipped:
            data[f"Torch.op.{len(data)}.forward"] = api([given], [value])
    return data


def test_1_logs_of_different_length_have_a_first_divergence(dumps: Compare) -> None:
    ran = dumps(chain(313, skipped=7), chain(313))
    assert ran.code == 1 and "First call without partner: Torch.op.7.forward, in the golden dump only" in ran.out
    assert [row["Result"] for row in ran.rows].count("pass") == 2 * 312


def test_2_dumps_of_other_processes_machines_and_configurations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = write_dump(tmp_path / "t" / "step0" / "proc11", op(tensor()), level="L1")
    golden = write_dump(tmp_path / "g" / "step0" / "rank0", op(tensor()), level="mix")
    ran = compare(capsys, target.parents[2], golden.parents[2], tmp_path / "out")
    assert ran.code == 0 and ran.result(OUTPUT) == "pass"


def test_3_nan_in_the_same_place_is_no_difference_and_against_a_number_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for case, golden, word in (("same", [math.nan, 1.0], "pass"), ("number", [2.0, 1.0], "error")):
        paths = [tensor_call(tmp_path / case / side, np.array(array)) for side, array in (("t", [math.nan, 1.0]), ("g", golden))]
        assert compare(capsys, *paths, tmp_path / case / "out").result(OUTPUT) == word


def test_8_a_fused_engine_model_against_the_plain_one_by_one_mapping_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Paths that differ, qkv in one product, and in it a wrong k."""
    rng = np.random.default_rng(8)
    x, *plain = (rng.standard_normal((2, 4)) for _ in range(4))

    def write(side: str, modules: Mapping[str, np.ndarray]) -> Path:
        place = tmp_path / side
        data: Json = {}
        for path, output in modules.items():
            name = f"Module.{path}.Linear.forward.0"
            values = [save_array(place, f"{name}.{role}.0.pt", array) for role, array in (("input", x), ("output", output))]
            data[name] = module(values[:1], values[1:])
        return write_dump(place, data, task="tensor")

    mapping = tmp_path / "mapping.yaml"
    golden = ", ".join(f"model.layers.0.self_attn.{name}_proj.output.0" for name in "qkv")
    mapping.write_text(
        "modules: {transformer.h: model.layers, transformer.h.*.attn: model.layers.*.self_attn}\n"
        f"tensors: [{{target: transformer.h.0.attn.qkv_proj.output.0, golden: [{golden}], how: {{concat: -1}}}}]\n"
    )
    reference = write("g", {f"model.layers.0.self_attn.{name}_proj": array for name, array in zip("qkv", plain, strict=True)})
    for case, changed, word in (("same", 0.0, "pass"), ("wrong", 1.0, "error")):
        fused = np.concatenate([plain[0], plain[1] + changed, plain[2]], axis=-1)
        target = write(case, {"transformer.h.0.attn.qkv_proj": fused})
        ran = compare(capsys, target, reference, tmp_path / f"o_{case}", "--mapping", str(mapping))
        assert ran.result("Module.transformer.h.0.attn.qkv_proj.Linear.forward.0.output.0") == word
        assert "unmatched" not in {row["Result"] for row in ran.rows}


def test_10_weights_of_equal_sum_differ(dumps: Compare) -> None:
    def data(weight: Json) -> Json:
        return {"Module.fc.Linear.forward.0": module([tensor()], [tensor()], weight=weight)}

    ran = dumps(data(statistics(3.0, -3.0, 0.0, 5.0)), data(statistics(3.0, -3.0, 0.0, 5.5)))
    assert ran.result("Module.fc.Linear.forward.0.parameters.weight") == "error"


def test_11_the_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [net.write(tmp_path / side) for side, net in (("t", Net(relu_gain=1.5)), ("g", Net()))]
    ran = compare(capsys, *paths, tmp_path / "out")
    assert "Functional.relu.0.forward in Module.blocks.0.Block.forward.0 (inputs equal, " in first(ran)
    assert "/home/me/model.py" in ran.out


def test_12_rounding_is_told_from_a_bug(dumps: Compare) -> None:
    """A matrix product of 4096 terms in float32, whose input already has an error of another order of summation."""

    def data(error: float) -> Json:
        given = statistics(3.0 * (1 + 2e-6), -3.0, 0.0, 2048.0, shape=[1024, 4096])
        weight = statistics(0.1, -0.1, 0.0, 128.0, shape=[4096, 4096])
        result = statistics(6.0 * (1 + error), -6.0, 0.001, 4096.0, shape=[1024, 4096])
        return {"Functional.linear.0.forward": api([given if error else {**given, "Max": 3.0}, weight], [result])}

    name = "Functional.linear.0.forward.output.0"
    assert dumps(data(1e-5), data(0.0)).result(name) == "pass"
    ran = dumps(data(1e-3), data(0.0))
    assert ran.result(name) in ("error", "warning") and any("more than rounding explains" in text for text in ran.messages(name))


def test_12_near_zero_elements_do_not_dominate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden = np.linspace(-1, 1, 101, dtype=np.float32)
    target = golden.copy()
    target[50] = 1e-9  # exactly 0 in the golden run: its relative error is beyond every bound
    ran = compare(capsys, *(tensor_call(tmp_path / s, a) for s, a in (("t", target), ("g", golden))), tmp_path / "out")
    assert float(ran.row(OUTPUT)["MaxRelativeErr"]) > 1e-3
    assert ran.result(OUTPUT) == "pass"


def test_13_masks_of_minus_infinity_are_no_fault(dumps: Compare) -> None:
    mask = statistics(0.0, -math.inf, -math.inf, math.inf)
    lowest = statistics(0.0, -3.4028234663852886e38, -1.7e38, 3e38)
    ran = dumps(op(tensor(), mask), op(tensor(), mask))
    assert ran.code == 0
    ran = dumps(op(tensor(), mask), op(tensor(), lowest))
    assert ran.result("Torch.op.0.forward.input.0") == "warning" and ran.result(OUTPUT) == "pass"


def test_15_statistics_round_trip_exactly(dumps: Compare) -> None:
    value = 0.1 + 0.2
    ran = dumps(op(statistics(value, -value, value / 3, value * 7)), op(tensor()))
    row = ran.row(OUTPUT)
    assert [float(row[f"NPU {name}"]) for name in ("max", "min", "mean", "l2norm")] == [value, -value, value / 3, value * 7]


def test_17_recomputed_calls_are_told_apart_and_shift_no_other(dumps: Compare) -> None:
    """The first of two layers is run again before its gradient; two more calls of the same API follow in both runs."""

    def data(checkpointed: bool) -> Json:
        forward = [("Torch.op.0.forward", 1.0), ("Torch.op.1.forward", 2.0)]
        found: Json = {name: api([tensor(value)], [tensor(value + 1.0)]) for name, value in forward}
        found["Torch.op.1.backward"] = backward([tensor(9.0)], [tensor(8.0)])
        if checkpointed:
            found["Torch.op.2.forward"] = found["Torch.op.0.forward"]
        found["Torch.op.0.backward"] = backward([tensor(8.0)], [tensor(7.0)])
        after = 3 if checkpointed else 2
        found[f"Torch.op.{after}.forward"] = api([tensor(20.0)], [tensor(21.0)])
        return found

    ran = dumps(data(True), data(False))
    assert "1 calls of the target were run again by the backward pass (activation checkpointing)" in ran.out
    assert {row["NPU Name"]: row["Result"] for row in ran.rows if row["Result"] != "pass"} == {
        "Torch.op.2.forward.input.0": "unmatched",
        "Torch.op.2.forward.output.0": "unmatched",
    }
    assert ran.row("Torch.op.3.forward.output.0")["Bench Name"] == "Torch.op.2.forward.output.0"


def test_22_the_first_call_that_is_not_the_same_in_all_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [write_dump(tmp_path / str(n), chain(6, changed=changed)) for n, changed in enumerate((None, None, 3))]
    assert main(["compare", "--runs", *(str(path.parent) for path in paths), "-o", str(tmp_path / "out")]) == 1
    assert "Torch.op.3.forward" in capsys.readouterr().out


def test_23_the_gradient_of_the_step_before_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fc = "Module.fc.Linear"

    def step(weight: float, gradient: float) -> Json:
        return {
            f"{fc}.forward.0": module([tensor()], [tensor(weight)], weight=tensor(weight)),
            f"{fc}.backward.0": backward([tensor()], [tensor(gradient)]),
            f"{fc}.parameters_grad.0": {"weight": [tensor(gradient)]},
        }

    for side, gradient in (("t", 2.5), ("g", 2.0)):
        write_dump(tmp_path / side / "step0" / "rank0", step(1.0, gradient))
        write_dump(tmp_path / side / "step1" / "rank0", step(1.0 - 0.1 * gradient, gradient))
    ran = compare(capsys, tmp_path / "t", tmp_path / "g", tmp_path / "out")
    assert f"First difference of step0 rank0: {fc}.backward.0" in ran.out


@pytest.mark.parametrize(
    ("target", "golden", "word"),
    [
        ([2.0, 4.0], [1.0, 2.0], "error"),  # y = 2x: cosine 1
        ([1e6, 1e6 + 1], [1e6 + 9e3, 1e6], "error"),  # cosine almost 1, far apart
        ([3.0], [1.0], "error"),
        ([5.0] * 8, [5.0] * 8, "pass"),
        ([0.0] * 8, [0.0] * 8, "pass"),
        ([5.0] * 8, [0.0] * 8, "error"),
    ],
)
def test_24_all_metrics_are_defined(target: Any, golden: Any, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tensor_call(tmp_path / side, np.array(array)) for side, array in (("t", target), ("g", golden))]
    ran = compare(capsys, *paths, tmp_path / "out")
    row = ran.row(OUTPUT)
    assert row["Result"] == word
    if row["Cosine"] != "Nan":
        assert -1.0 <= float(row["Cosine"]) <= 1.0
    assert "unsupported" not in row.values()


def test_24_a_multiple_is_called_one(dumps: Compare) -> None:
    ran = dumps(op(statistics(4.0, -2.0, 1.0, 6.0)), op(statistics(2.0, -1.0, 0.5, 3.0)))
    assert ran.messages(OUTPUT)[-1] == "hint: The target is 2 times the golden value."
    ran = dumps(op(statistics(1.0, -2.0, -0.5, 3.0)), op(statistics(2.0, -1.0, 0.5, 3.0)))
    assert ran.messages(OUTPUT)[-1] == "hint: The target is -1 times the golden value."


def test_25_a_malicious_pickle_is_not_executed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker = tmp_path / "marker"
    paths = [tensor_call(tmp_path / side, [1.0]) for side in "tg"]
    for file in (tmp_path / "t" / "dump_tensor_data").iterdir():
        malicious(file, marker)
    ran = compare(capsys, *paths, tmp_path / "out")
    assert ran.code == 2 and not marker.exists()


def test_27_padding_is_compared_under_a_mask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What stands at padded positions is nobody's result; a difference elsewhere is one."""
    mask, golden = np.array([[1, 1, 1, 0], [1, 1, 0, 0]]), np.arange(1.0, 9.0).reshape(2, 4)

    def write(side: str, output: np.ndarray) -> Path:
        place, name = tmp_path / side, "Module.model.Model.forward.0"
        values = [save_array(place, f"{name}.{role}.0.pt", array) for role, array in (("input", mask), ("output", output))]
        return write_dump(place, {name: module(values[:1], values[1:])}, task="tensor")

    mapping = tmp_path / "mapping.yaml"
    mapping.write_text("tensors: [{target: model.output.0, golden: model.output.0, how: {mask: model.input.0}}]")
    reference = write("g", golden)
    padded = np.where(mask == 0, -5.0, golden)
    wrong = padded.copy()
    wrong[1, 1] += 3.0
    for case, output, options, word in (
        ("a", padded, ("--mapping", str(mapping)), "pass"),
        ("b", padded, (), "error"),
        ("c", wrong, ("--mapping", str(mapping)), "error"),
    ):
        ran = compare(capsys, write(case, output), reference, tmp_path / f"o_{case}", *options)
        assert ran.result("Module.model.Model.forward.0.output.0") == word, case


def test_28_two_different_tensors_compare_within_two_and_a_half_times_their_bytes(tmp_path: Path) -> None:
    """10^7 elements here; the share of the interpreter is taken off."""
    size = 10**7
    generator = np.random.default_rng(1)
    paths = [tensor_call(tmp_path / side, generator.standard_normal(size, np.float32), name="Torch.op.0.forward") for side in "tg"]
    script = (
        "import resource, sys\n"
        "from msprobe.comparison.compare import compare\n"
        "import msprobe.comparison.measure_tensors\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "compare(*sys.argv[1:4])\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, paths), str(tmp_path / "out")], capture_output=True, text=True, check=True, timeout=120
    )
    assert int(done.stdout.split()[-1]) < 2.5 * 2 * 4 * size


def test_every_message_is_valid_json(dumps: Compare) -> None:
    ran = dumps(op(tensor(2.0), tensor(3.0)), op(tensor()))
    assert all(isinstance(json.loads(row["Err_message"]), list) for row in ran.rows)
