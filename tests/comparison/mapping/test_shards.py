"""Tensor-parallel ranks against one: the shards are put together before they are compared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warm_python
from msprobe.comparison.compare import compare
from msprobe.comparison.inputs import make_plan
from msprobe.comparison.mapping.groups import grouped
from msprobe.comparison.mapping.rules import How, TensorRule, TensorRules
from msprobe.comparison.options import Options
from msprobe.comparison.outcome import Outcome

from ..dumps import api, module, read_csv, save_array, tensor, write_dump

SCRIPT = Path(__file__).with_name("tensor_parallel.py")
RULES = TensorRules(
    (
        TensorRule("mlp.up.weight", ("mlp.up.weight",), How(shard=0, over="tp")),
        TensorRule("mlp.down.output.0", ("mlp.down.output.0",), How(shard="sum", over="tp")),
        TensorRule("mlp.up.grad.input.0", ("mlp.up.grad.input.0",), How(shard="sum", over="tp")),
    )
)


def run(directory: Path, world: int, task: str, fault: bool = False) -> Path:
    """Starts the ranks, returns the dump root."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    directory.mkdir(parents=True)
    tail = [str(world), str(directory / "store"), str(directory / "dump"), task, "fault" if fault else ""]
    ranks = [
        subprocess.Popen(
            [*warm_python.command(), str(SCRIPT), str(rank), *tail], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for rank in range(world)
    ]
    for process in ranks:
        output = process.communicate(timeout=180)[0]
        assert process.returncode == 0, output.decode()
    return directory / "dump"


def rows(outcome: Outcome) -> dict[str, dict[str, str]]:
    (report,) = outcome.reports
    assert report.csv is not None
    return {row["NPU Name"]: row for row in read_csv(report.csv) if row["NPU Name"] != "N/A"}


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_two_ranks_against_one(tmp_path: Path, task: str) -> None:
    pytest.importorskip("torch")
    whole, parts = run(tmp_path / "one", 1, task), run(tmp_path / "two", 2, task)
    for target, golden in ((parts, whole), (whole, parts)):
        outcome = compare(target, golden, tmp_path / "o", Options(tensors=RULES))
        assert outcome.plan.one_sided == () and outcome.plan.problems == ()
        found = rows(outcome)
        for name in (
            "Module.mlp.up.Linear.forward.0.parameters.weight",
            "Module.mlp.up.Linear.forward.0.output.0",
            "Module.mlp.up.Linear.parameters_grad.0.weight",
            "Module.mlp.down.Linear.parameters_grad.0.weight",
            "Functional.linear.0.forward.output.0",
            "Functional.linear.1.forward.input.1",
            "Torch.relu.0.forward.output.0",
        ):
            assert found[name]["Result"] == "pass", name
            assert found[name]["NPU Tensor Shape"] == found[name]["Bench Tensor Shape"]
        for name in ("Module.mlp.down.Linear.forward.0.output.0", "Functional.linear.1.forward.output.0"):  # terms of a sum
            assert found[name]["Result"] == ("pass" if task == "tensor" else "not compared"), name
        worse = [name for name, row in found.items() if row["Result"] in ("error", "warning")]
        assert worse == []
        assert any("put together from rank0, rank1" in note for note in outcome.reports[0].notes)


def test_a_fault_on_the_second_rank_is_found(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    whole, parts = run(tmp_path / "one", 1, "tensor"), run(tmp_path / "two", 2, "tensor", fault=True)
    first = compare(parts, whole, tmp_path / "o", Options(tensors=RULES)).reports[0].findings
    found = first.beyond_rounding or first.first
    assert found is not None and found.kind == "parameter" and found.call.name == "Module.mlp.up.Linear.forward.0"


def step(directory: Path, ranks: list[int]) -> Path:
    for rank in ranks:
        data = {"Torch.a.0.forward": api([tensor()], [tensor(shape=(2, 3))])}
        write_dump(directory / f"rank{rank}", data, construct={}, stack={})
    return directory


def test_groups_of_ranks(tmp_path: Path) -> None:
    many, few = step(tmp_path / "t", [0, 1, 2, 3]), step(tmp_path / "g", [0, 1])
    plan = make_plan(many, few, groups=[[0, 1], [2, 3]])
    shown = [([path.parent.name for path in pair.target_group], [path.parent.name for path in pair.golden_group]) for pair in plan.pairs]
    assert shown == [(["rank0", "rank1"], ["rank0"]), (["rank2", "rank3"], ["rank1"])]
    assert make_plan(few, many, groups=[[0, 1], [2, 3]]).pairs[1].golden_group[1].parent.name == "rank3"
    assert [pair.target_group for pair in make_plan(few, few, groups=()).pairs] == [(), ()]
    (problem,) = make_plan(many, few, groups=()).problems
    assert problem.startswith("4 ranks in 1 groups on one side and 2 ranks on the other cannot be paired")
    assert grouped({0: few, 1: few}, {0: few}, [[0, 5]]) == (
        "the mapping file's group names rank 5, of which there is no dump; there are: 0, 1"
    )


def test_shards_that_do_not_fit_are_compared_as_they_are(tmp_path: Path) -> None:
    def rank(directory: Path, width: int) -> None:
        shown = save_array(directory, "x.pt", [[1.0] * width])
        write_dump(directory, {"Module.m.M.forward.0": module([shown], [shown])}, task="tensor", construct={}, stack={})

    for number in (0, 1):
        rank(tmp_path / "t" / f"rank{number}", 2)
    rank(tmp_path / "g" / "rank0", 5)
    rules = TensorRules((TensorRule("m.output.0", ("m.output.0",), How(shard=1, over="tp")),))
    outcome = compare(tmp_path / "t", tmp_path / "g", tmp_path / "o", Options(tensors=rules))
    found = read_csv(outcome.reports[0].csv)  # type: ignore[arg-type]
    assert {row["Result"] for row in found} == {"error"}
    assert [row["NPU Tensor Shape"] for row in found] == ["[1, 2]", "[1, 4]"]


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def ranks(root: Path, *outputs: Any) -> Path:
    """A step of so many ranks, each with one output of one module; None: it has none."""
    for number, array in enumerate(outputs):
        directory = root / f"rank{number}"
        given = [] if array is None else [save_array(directory, "x.pt", array)]
        write_dump(directory, {"Module.m.M.forward.0": module([], given)}, task="tensor", construct={}, stack={})
    return root


@pytest.mark.parametrize(
    "parts, how, why",
    [
        ((X, X), How(shard=7, over="tp"), "concat 7: there is no dimension 7 in 2 dimensions"),
        ((X, None), How(shard="sum", over="tp"), "rank1 has no such value"),
        ((X, X), How(shard="sum", over="tp", transpose=(0, 9)), "transpose [0, 9]: there is no dimension 9 in 2 dimensions"),
    ],
)
@pytest.mark.parametrize("side", [0, 1])
def test_a_rule_that_cannot_be_applied(tmp_path: Path, parts: tuple[Any, ...], how: How, why: str, side: int) -> None:
    """The whole is equal to the part of the first rank, which is not what is compared."""
    roots = ranks(tmp_path / "many", *parts), ranks(tmp_path / "one", X)
    rules = TensorRules((TensorRule("m.output.0", ("m.output.0",), how),))
    outcome = compare(roots[side], roots[1 - side], tmp_path / "o", Options(tensors=rules))
    (row,) = rows(outcome).values()
    assert row["Result"] == "not compared" and f"the mapping file's rule for m.output.0 cannot be applied: {why}" in row["Err_message"]
    (note,) = [note for note in outcome.reports[0].notes if "rule for" in note]
    assert "rule for m.output.0 cannot be applied, and 1 value is not compared" in note and why in note


def test_parts_of_ranks_that_are_turned_as_well(tmp_path: Path) -> None:
    """The side that is whole is turned; of the other each part would have to be."""
    many, one = ranks(tmp_path / "many", X[:, :1], X[:, 1:]), ranks(tmp_path / "one", X.T)
    rules = TensorRules((TensorRule("m.output.0", ("m.output.0",), How(shard=1, over="tp", transpose=(0, 1))),))
    (row,) = rows(compare(many, one, tmp_path / "o", Options(tensors=rules))).values()
    assert row["Result"] == "pass" and row["NPU Tensor Shape"] == "[2, 3]"
    outcome = compare(one, many, tmp_path / "o", Options(tensors=rules))
    (row,) = rows(outcome).values()
    assert row["Result"] != "pass" and "works only on the side that is whole" in row["Err_message"]


def test_nothing_to_put_together_is_told(tmp_path: Path) -> None:
    one, same = ranks(tmp_path / "t", X.T), ranks(tmp_path / "g", X)
    said = "the mapping file's rules with `shard` have nothing to put together: neither side has several ranks for one of the other"
    for how in (How(shard=0, over="tp"), How(shard=0, over="tp", transpose=(0, 1))):
        outcome = compare(one, same, tmp_path / "o", Options(tensors=TensorRules((TensorRule("m.output.0", ("m.output.0",), how),))))
        assert said in outcome.reports[0].notes
        (row,) = rows(outcome).values()
        assert row["Result"] == ("pass" if how.transpose else "error")
