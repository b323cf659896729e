"""Rules that meet a value and cannot be applied to it: it is not compared as it is, and a note says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.mapping.rules import How, Select, TensorRule, TensorRules
from msprobe.comparison.options import Options
from msprobe.comparison.outcome import Outcome

from ..dumps import backward, module, read_csv, save_array, tensor, write_dump

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4)).astype(np.float32)
MASK = np.array([1, 1, 0], dtype=np.int64)
NAME = "Module.m.M.forward.0"


def dump(directory: Path, outputs: dict[str, Any], gradient: bool = False, task: str = "tensor", mask: Any = MASK) -> Path:
    """Modules with their outputs: path -> arrays, or one array; None is recorded as it is."""
    data: dict[str, Any] = {}
    for path, arrays in outputs.items():
        name = f"Module.{path}.M.forward.0"
        listed = arrays if isinstance(arrays, list) else [arrays]
        saved = [None if array is None else save_array(directory, f"{name}.output.{i}.pt", array) for i, array in enumerate(listed)]
        data[name] = module([save_array(directory, f"{name}.input.0.pt", mask)], saved)
    if gradient:
        for path, arrays in outputs.items():
            data[f"Module.{path}.M.backward.0"] = backward([save_array(directory, f"{path}.g.pt", arrays)], [])
    return write_dump(directory, data, task=task, construct=dict.fromkeys(data), stack={})


def run(tmp_path: Path, target: Path, golden: Path, *rules: TensorRule) -> Outcome:
    return compare(target, golden, tmp_path / "o", Options(tensors=TensorRules(rules)))


def results(outcome: Outcome) -> dict[str, tuple[str, str]]:
    (report,) = outcome.reports
    assert report.csv is not None
    return {row["NPU Name"].removeprefix("Module."): (row["Result"], row["Err_message"]) for row in read_csv(report.csv)}


def notes(outcome: Outcome) -> list[str]:
    return [note for note in outcome.reports[0].notes if "rule for" in note]


@pytest.mark.parametrize(
    "place, how, why",
    [
        ("m.output.9", How(), "m of the golden run has no output.9; nearest: output.0"),
        ("m.output.9", How(transpose=(0, 1)), "m of the golden run has no output.9; nearest: output.0"),
        ("m.output.0", How(mask="m.input.7"), "neither dump has a tensor m.input.7 that could be the mask; nearest: m.input.0, m.output.0"),
        ("m.output.0", How(mask="nowhere"), "neither dump has a tensor nowhere that could be the mask"),
        ("m.output.0", How(select=Select(0, index=99)), "select: there is no index 99 along dimension 0 of [3, 4]"),
        ("m.output.0", How(select=Select(5, index=0)), "select: there is no dimension 5 in 2 dimensions"),
        ("m.output.0", How(transpose=(0, 9)), "transpose [0, 9]: there is no dimension 9 in 2 dimensions"),
        ("m.output.0", How(flatten=(0, 7)), "flatten [0, 7]: there is no dimension 7 in 2 dimensions"),
        ("m.output.0", How(flatten=(1, -2)), "flatten [1, -2]: dimension -2 comes before 1 in 2 dimensions"),
    ],
)
@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_equal_values_do_not_pass_and_the_reason_is_told(tmp_path: Path, place: str, how: How, why: str, task: str) -> None:
    target, golden = (dump(tmp_path / side, {"m": X}, task=task) for side in "tg")
    outcome = run(tmp_path, target, golden, TensorRule("m.output.0", (place,), how))
    said = f"not compared: the mapping file's rule for m.output.0 cannot be applied: {why}"
    assert results(outcome)["m.M.forward.0.output.0"] == ("not compared", f'["{said}"]')
    first = f"(first: {NAME}.output.0: {why})"
    assert notes(outcome) == [f"the mapping file's rule for m.output.0 cannot be applied, and 1 value is not compared for that {first}"]
    assert outcome.exit_code == 1 and outcome.reports[0].lost == 1


def test_a_sum_of_which_a_term_is_not_there(tmp_path: Path) -> None:
    target, golden = (dump(tmp_path / side, {"m": [X, X]}) for side in "tg")
    outcome = run(tmp_path, target, golden, TensorRule("m.output.0", ("m.output.0", "m.output.2"), How(sum=True)))
    assert results(outcome)["m.M.forward.0.output.0"][0] == "not compared"
    assert "m of the golden run has no output.2; nearest: output.1, output.0" in notes(outcome)[0]


def test_checksums(tmp_path: Path) -> None:
    data = {NAME: module([], [tensor(md5="0a1b2c3d")])}
    path = write_dump(tmp_path / "t", data, construct={NAME: None}, stack={})
    outcome = run(tmp_path, path, path, TensorRule("m.output.0", ("m.output.0",), How(transpose=(0, 9))))
    assert results(outcome)["m.M.forward.0.output.0"][0] == "not compared" and len(notes(outcome)) == 1


def test_other_shapes_stay_an_error_with_the_reason(tmp_path: Path) -> None:
    target, golden = dump(tmp_path / "t", {"m": X.T}), dump(tmp_path / "g", {"m": X})
    outcome = run(tmp_path, target, golden, TensorRule("m.output.0", ("m.output.0",), How(transpose=(0, 9))))
    word, message = results(outcome)["m.M.forward.0.output.0"]
    assert word == "error" and "there is no dimension 9" in message


def test_one_note_for_all_that_a_rule_meets(tmp_path: Path) -> None:
    target, golden = (dump(tmp_path / side, {f"layers.{i}": X for i in range(3)}, gradient=True) for side in "tg")
    outcome = run(tmp_path, target, golden, TensorRule("layers.*.output.0", ("layers.*.output.1",), How(transpose=(0, 1))))
    (note,) = notes(outcome)
    assert "rule for layers.*.output.0 cannot be applied, and 6 values are not compared for that (first: Module.layers.0.M." in note
    found = results(outcome)
    assert found["layers.2.M.forward.0.output.0"][0] == "not compared"
    word, message = found["layers.2.M.backward.0.input.0"]
    assert word == "not compared" and "layers.2 of the golden run has no gradient of output.1" in message


def test_none_on_both_sides_is_no_value_of_a_rule(tmp_path: Path) -> None:
    target, golden = (dump(tmp_path / side, {"m": [X, None]}) for side in "tg")
    outcome = run(tmp_path, target, golden, TensorRule("m.output.1", ("m.output.1",), How(transpose=(0, 1))))
    assert results(outcome)["m.M.forward.0.output.1"][0] == "pass" and notes(outcome) == []


def test_a_gradient_that_is_not_there(tmp_path: Path) -> None:
    rule = TensorRule("m.grad.output.9", ("m.grad.output.0",), How(transpose=(0, 1)))
    target, golden = (dump(tmp_path / side, {"m": X}, gradient=True) for side in "tg")
    said = "the mapping file's rule for m.grad.output.9 was not used: "
    assert notes(run(tmp_path, target, golden, rule)) == [f"{said}m of the target has no grad.output.9; nearest: grad.output.0"]
    target, golden = (dump(tmp_path / f"{side}2", {"m": X}) for side in "tg")
    assert notes(run(tmp_path, target, golden, rule)) == [f"{said}no backward call of m was recorded"]
    rule = TensorRule("m.grad.output.0", ("m.grad.output.9",), How(transpose=(0, 1)))
    target, golden = (dump(tmp_path / f"{side}3", {"m": X}, gradient=True) for side in "tg")
    outcome = run(tmp_path, target, golden, rule)
    assert "m of the golden run has no grad.output.9" in notes(outcome)[0]
    assert results(outcome)["m.M.backward.0.input.0"][0] == "not compared"


def test_flattened_under_a_mask_the_dimensions_are_those_of_the_side_that_has_more(tmp_path: Path) -> None:
    cube = RNG.standard_normal((3, 2, 4)).astype(np.float32)
    flat = cube.reshape(3, 8).copy()
    flat[2] = 9.0
    rule = TensorRule("m.output.0", ("m.output.0",), How(flatten=(1, 2), mask="m.input.0"))
    for ours, theirs in ((flat, cube), (cube, flat)):
        target, golden = dump(tmp_path / f"t{ours.ndim}", {"m": ours}), dump(tmp_path / f"g{ours.ndim}", {"m": theirs})
        outcome = run(tmp_path, target, golden, rule)
        assert results(outcome)["m.M.forward.0.output.0"] == ("pass", "[]") and notes(outcome) == []


JOINED = ("a.output.0", "b.output.0")


@pytest.mark.parametrize(
    "places, how, why",
    [
        (("a.output.0", "b.output.1"), How(concat=-1), "b of the golden run has no output.1; nearest: output.0"),
        (JOINED, How(concat=5), "concat 5: there is no dimension 5 in 2 dimensions"),
        (JOINED, How(concat=-1, mask="ab.input.5"), "neither dump has a tensor ab.input.5 that could be the mask; nearest: ab.input.0"),
    ],
)
def test_of_several_golden_modules(tmp_path: Path, places: tuple[str, ...], how: How, why: str) -> None:
    target, golden = dump(tmp_path / "t", {"ab": np.concatenate([X, X], -1)}), dump(tmp_path / "g", {"a": X, "b": X})
    outcome = run(tmp_path, target, golden, TensorRule("ab.output.0", places, how))
    assert results(outcome)["ab.M.forward.0.output.0"][0] == "unmatched"
    assert len(notes(outcome)) == 1 and why in notes(outcome)[0]


def test_a_mask_and_several_golden_modules(tmp_path: Path) -> None:
    padded = np.concatenate([X, X], -1)
    padded[2] = 9.0
    golden = dump(tmp_path / "g", {"a": X, "b": X})
    rule = TensorRule("ab.output.0", JOINED, How(concat=-1, mask="ab.input.0"))
    assert results(run(tmp_path, dump(tmp_path / "t", {"ab": padded}), golden, rule))["ab.M.forward.0.output.0"] == ("pass", "[]")
    padded[0] = 9.0
    assert results(run(tmp_path, dump(tmp_path / "t2", {"ab": padded}), golden, rule))["ab.M.forward.0.output.0"][0] == "error"
