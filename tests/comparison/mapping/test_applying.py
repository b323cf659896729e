"""Rules about values of one golden module: turned, cut, added up, under a mask."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe
from msprobe.comparison.mapping.rules import How, Select, TensorRule, TensorRules
from msprobe.comparison.options import Options
from msprobe.comparison.outcome import PairReport
from msprobe.errors import UsageError

from ..dumps import backward, module, read_csv, save_array, write_dump

NAME = "Module.m.M.forward.0"
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
W = RNG.standard_normal((5, 4)).astype(np.float32)


def dump(directory: Path, outputs: list[Any], weight: Any = W, task: str = "tensor", mask: Any = None, gradient: Any = None) -> Path:
    saved = [save_array(directory, f"{NAME}.output.{i}.pt", array) for i, array in enumerate(outputs)]
    held = save_array(directory, f"{NAME}.parameters.weight.pt", weight)
    entry = module([save_array(directory, f"{NAME}.input.0.pt", X)], saved, weight=held)
    if mask is not None:
        entry["input_kwargs"] = {"mask": save_array(directory, f"{NAME}.input.mask.pt", mask)}
    data: dict[str, Any] = {NAME: entry}
    if gradient is not None:
        data["Module.m.M.backward.0"] = backward([save_array(directory, "g.pt", gradient)], [])
        data["Module.m.M.parameters_grad.0"] = {"weight": [save_array(directory, "w.pt", weight * 2)]}
    return write_dump(directory, data, task=task, construct={NAME: None}, stack={})


def report(tmp_path: Path, rule: TensorRule, target: Path, golden: Path) -> PairReport:
    return compare(target, golden, tmp_path / "o", Options(tensors=TensorRules((rule,)))).reports[0]


def results(found: PairReport) -> dict[str, tuple[str, str]]:
    assert found.csv is not None
    return {row["NPU Name"].removeprefix("Module.m.M."): (row["Result"], row["Err_message"]) for row in read_csv(found.csv)}


@pytest.mark.parametrize(
    "how, ours, theirs",
    [
        (How(transpose=(-2, -1)), X.swapaxes(-1, -2), X),
        (How(select=Select(1, index=2)), X[:, 2], X),
        (How(select=Select(-1, start=0, stop=2)), X[..., :2], X),
        (How(flatten=(0, 1)), X.reshape(6, 4), X),
        (How(flatten=(0, 1)), X, X.reshape(6, 4)),
    ],
)
def test_one_tensor_turned_or_cut(tmp_path: Path, how: How, ours: Any, theirs: Any) -> None:
    rule = TensorRule("m.output.0", ("m.output.0",), how)
    found = report(tmp_path, rule, dump(tmp_path / "t", [ours]), dump(tmp_path / "g", [theirs]))
    assert results(found)["forward.0.output.0"] == ("pass", "[]")
    wrong = np.array(ours)
    wrong.flat[0] += 1
    found = report(tmp_path, rule, dump(tmp_path / "t2", [wrong]), dump(tmp_path / "g2", [theirs]))
    assert results(found)["forward.0.output.0"][0] == "error"


def test_outputs_that_add_up(tmp_path: Path) -> None:
    parts = [X, RNG.standard_normal(X.shape).astype(np.float32)]
    rule = TensorRule("m.output.0", ("m.output.0", "m.output.1"), How(sum=True))
    found = report(tmp_path, rule, dump(tmp_path / "t", [parts[0] + parts[1]]), dump(tmp_path / "g", parts))
    assert results(found)["forward.0.output.0"] == ("pass", "[]")
    assert found.counts["unmatched"] == 0
    found = report(tmp_path, rule, dump(tmp_path / "t2", [parts[0]]), dump(tmp_path / "g2", parts))
    assert results(found)["forward.0.output.0"][0] == "error"
    by_statistics = report(
        tmp_path, rule, dump(tmp_path / "t3", [parts[0] + parts[1]], task="statistics"), dump(tmp_path / "g3", parts, task="statistics")
    )
    word, message = results(by_statistics)["forward.0.output.0"]
    assert word == "not compared" and "statistics of a sum do not follow" in message and "record both runs with task tensor" in message
    assert by_statistics.lost == 1


def test_statistics_that_contradict_a_sum_are_an_error(tmp_path: Path) -> None:
    """Its Mean follows, and its Max, Min and Norm have bounds: what lies outside is a difference, and the block says which."""
    parts = [X, RNG.standard_normal(X.shape).astype(np.float32)]
    rule = TensorRule("m.output.0", ("m.output.0", "m.output.1"), How(sum=True))
    target, golden = dump(tmp_path / "t", [parts[0]], task="statistics"), dump(tmp_path / "g", parts, task="statistics")
    for path in (target, golden):
        shutil.rmtree(path.parent / "dump_tensor_data")  # a run of task statistics has none
    outcome = compare(target, golden, tmp_path / "o", Options(tensors=TensorRules((rule,))))
    (found,) = outcome.reports
    word, message = results(found)["forward.0.output.0"]
    assert word == "error" and "its Mean must be" in message
    shown = "\n".join(line.text for line in describe(outcome))
    assert "its Mean must be" in shown and "unknown" in shown and "None" not in shown


def test_the_values_of_a_sum_are_shown_from_the_files(tmp_path: Path) -> None:
    parts = [X, X]
    rule = TensorRule("m.output.0", ("m.output.0", "m.output.1"), How(sum=True))
    outcome = compare(dump(tmp_path / "t", [X]), dump(tmp_path / "g", parts), tmp_path / "o", Options(tensors=TensorRules((rule,))))
    shown = [line.text.split() for line in describe(outcome)]
    (golden,) = [words for words in shown if words[:1] == ["golden"]]
    assert float(golden[1]) == pytest.approx(2 * float(X.max())) and float(golden[4]) == pytest.approx(2 * float(np.linalg.norm(X)))


def test_what_could_not_be_compared_inside_a_module_is_not_called_equal(tmp_path: Path) -> None:
    """The output of a module differs, that of a call inside is a sum of which statistics leave all open: either may be at fault."""
    inner = "Module.m.fc.Linear.forward.0"

    def nested(directory: Path, last: float, outputs: list[Any]) -> Path:
        save = [save_array(directory, f"{inner}.output.{i}.pt", array) for i, array in enumerate(outputs)]
        given = save_array(directory, "x.pt", X)
        data = {inner: module([given], save), NAME: module([given], [save_array(directory, "y.pt", X * last)])}
        return write_dump(directory, data, construct={inner: NAME, NAME: None}, stack={})

    rule = TensorRule("m.fc.output.0", ("m.fc.output.0", "m.fc.output.1"), How(sum=True))
    target, golden = nested(tmp_path / "t", 2.0, [X + W[0]]), nested(tmp_path / "g", 1.0, [X, X * 0 + W[0]])
    outcome = compare(target, golden, tmp_path / "o", Options(tensors=TensorRules((rule,))))
    shown = "\n".join(line.text for line in describe(outcome))
    assert f"the calls inside it agree as far as they could be compared, and {inner} could not" in shown
    assert "its own code" not in shown


def test_a_reference_and_shards_exclude_each_other(tmp_path: Path) -> None:
    rule = TensorRule("m.output.0", ("m.output.0",), How(shard=0, over="tp"))
    path = dump(tmp_path / "t", [X])
    with pytest.raises(UsageError, match="--reference does not go with `shard`"):
        compare(path, path, tmp_path / "o", Options(tensors=TensorRules((rule,)), reference=str(path)))


def test_a_rule_for_a_weight_holds_for_its_gradient(tmp_path: Path) -> None:
    rule = TensorRule("m.weight", ("m.weight",), How(transpose=(0, 1)))
    target, golden = dump(tmp_path / "t", [X], weight=W.T, gradient=X), dump(tmp_path / "g", [X], weight=W, gradient=X)
    found = results(report(tmp_path, rule, target, golden))
    assert found["forward.0.parameters.weight"] == ("pass", "[]")
    assert found["parameters_grad.0.weight"] == ("pass", "[]")


def test_a_rule_for_an_output_holds_for_its_gradient(tmp_path: Path) -> None:
    rule = TensorRule("m.output.0", ("m.output.0",), How(transpose=(-2, -1)))
    turned = X.swapaxes(-1, -2)
    target, golden = dump(tmp_path / "t", [turned], gradient=turned), dump(tmp_path / "g", [X], gradient=X)
    assert results(report(tmp_path, rule, target, golden))["backward.0.input.0"] == ("pass", "[]")


def test_padding_differs_by_design(tmp_path: Path) -> None:
    """Padded left in one run and right in the other: each side has its own mask."""
    real = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    left = np.concatenate([np.full((2, 2, 4), 9, np.float32), real], 1)
    right = np.concatenate([real, np.full((2, 1, 4), -9, np.float32)], 1)
    masks = [np.array([[0, 0, 1, 1, 1]] * 2, dtype=np.int64), np.array([[1, 1, 1, 0]] * 2, dtype=np.int64)]
    rule = TensorRule("m.output.0", ("m.output.0",), How(mask="m.input.mask"))
    found = report(tmp_path, rule, dump(tmp_path / "t", [left], mask=masks[0]), dump(tmp_path / "g", [right], mask=masks[1]))
    assert results(found)["forward.0.output.0"] == ("pass", "[]")


def test_padding_of_one_length_under_one_mask(tmp_path: Path) -> None:
    ours, mask = X.copy(), np.array([[1, 1, 0], [1, 1, 1]], dtype=np.int64)
    ours[0, 2] = 100.0
    rule = TensorRule("m.output.0", ("m.output.0",), How(mask="m.input.mask"))
    found = report(tmp_path, rule, dump(tmp_path / "t", [ours], mask=mask), dump(tmp_path / "g", [X], mask=mask))
    assert results(found)["forward.0.output.0"] == ("pass", "[]")
    ours[0, 1] = 100.0
    found = report(tmp_path, rule, dump(tmp_path / "t2", [ours], mask=mask), dump(tmp_path / "g2", [X], mask=mask))
    assert results(found)["forward.0.output.0"][0] == "error"


@pytest.mark.parametrize(
    "target, golden, said",
    [
        ("nowhere.output.0", "m.output.0", ": the target has no module nowhere"),
        ("mm.output.0", "m.output.0", ": the target has no module mm; nearest: m"),
        ("m.outputs.0", "m.output.0", ": m of the target has no outputs.0; nearest: output.0, input.0"),
        ("m.weigth", "m.weight", ": m of the target has no weigth; nearest: weight"),
        ("m.output.0", "mm.output.0", ": the golden run has no module mm; nearest: m"),
        ("m.output.7", "m.output.0", ": m of the target has no output.7; nearest: output.0"),
    ],
)
def test_a_rule_that_fits_nothing_is_told_with_the_nearest_names(tmp_path: Path, target: str, golden: str, said: str) -> None:
    found = report(tmp_path, TensorRule(target, (golden,), How()), dump(tmp_path / "t", [X]), dump(tmp_path / "g", [X]))
    assert f"the mapping file's rule for {target} fits no module that both dumps have{said}" in found.notes


def test_checksums_say_nothing_of_parts(tmp_path: Path) -> None:
    def with_md5(directory: Path, count: int) -> Path:
        def tensors(number: int) -> dict[str, Any]:
            width = [2, 6] if count == 1 else [2, 3]
            return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": width, "requires_grad": False, "md5": f"0a1b2c3{number}"}

        entry = module([], [tensors(number) for number in range(count)])
        return write_dump(directory, {NAME: entry}, construct={NAME: None}, stack={})

    rule = TensorRule("m.output.0", ("m.output.0", "m.output.1"), How(concat=-1))
    target, golden = with_md5(tmp_path / "t", 1), with_md5(tmp_path / "g", 2)
    found = report(tmp_path, rule, target, golden)
    assert results(found)["forward.0.output.0"] == ("not compared", '["not compared: checksums of parts say nothing of the whole"]')
