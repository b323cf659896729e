"""Several recordings of one script: the first call that is not identical in all."""

from __future__ import annotations

import csv
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from msprobe.cli.main import main
from msprobe.comparison.repeated.runs import Runs, compare_runs
from msprobe.comparison.repeated.words import describe, grouped, sentence, write
from msprobe.errors import UsageError

from ..dumps import Json, api, frame, module, save_array, tensor, write_dump
from ..net import FC, Net


def recorded(tmp_path: Path, dumps: list[Json], **options: Any) -> Runs:
    """Writes one run for each and compares them."""
    paths = []
    for number, data in enumerate(dumps):
        paths.append(tmp_path / f"run{number}")
        write_dump(paths[-1], data, **options)
    return compare_runs(paths)


def chain(*values: float, **fields: Any) -> Json:
    return {
        f"Torch.op{n}.0.forward": api([tensor(given)], [tensor(result, **fields)]) for n, (given, result) in enumerate(pairwise(values))
    }


def first_sentence(runs: Runs) -> str:
    found = runs.units[0].first
    assert found is not None
    return sentence(found)


def test_identical_runs(tmp_path: Path) -> None:
    runs = recorded(tmp_path, [chain(1.0, 2.0, 3.0)] * 3)
    assert (runs.exit_code, runs.units[0].first) == (0, None)
    assert [line.text for line in describe(runs, [])][-1] == "Everything recorded is identical in all 3 runs."


def test_a_call_that_gives_other_results_for_identical_inputs(tmp_path: Path) -> None:
    runs = recorded(tmp_path, [chain(1.0, 2.0, 3.0, 4.0), chain(1.0, 2.0, 3.5, 4.5), chain(1.0, 2.0, 3.0, 4.0)])
    assert runs.exit_code == 1
    first = runs.units[0].first
    assert first is not None and first.call.name == "Torch.op1.0.forward"
    assert (first.cause, first.call.distinct, grouped(first.call.whole)) == ("call", 2, [[1, 3], [2]])
    text = "\n".join(line.text for line in describe(runs, []))
    assert "1 of 3 calls identical in all 3 runs, 2 not" in text
    assert "Torch.op1.0.forward is not deterministic: its inputs and parameters are identical, its outputs are not" in text
    assert "2 distinct recordings: runs 1, 3 agree; run 2 alone" in text
    assert "output.0\n    run 1: Max 4.0, Min 2.0, Mean 3.0, Norm 6.5\n    run 2: Max 4.5, Min 2.5, Mean 3.5, Norm 7.5" in text


def test_one_bit_counts(tmp_path: Path) -> None:
    runs = recorded(tmp_path, [chain(1.0, 2.0), chain(1.0, math.nextafter(2.0, 3.0))])
    assert runs.units[0].first is not None


@pytest.mark.parametrize(("one", "other", "same"), [(math.nan, math.nan, True), (0.0, -0.0, False), (1, 1.0, False)])
def test_what_identical_means(one: Any, other: Any, same: bool, tmp_path: Path) -> None:
    runs = recorded(tmp_path, [{"Torch.a.0.forward": api([], [tensor(Max=value)])} for value in (one, other)])
    assert (runs.units[0].first is None) is same


def test_other_dtypes_and_shapes_are_not_identical(tmp_path: Path) -> None:
    for number, fields in enumerate(({"dtype": "bfloat16"}, {"shape": (3, 2)}, {"requires_grad": True})):
        runs = recorded(tmp_path / str(number), [{"Torch.a.0.forward": api([], [tensor(1.0, **more)])} for more in ({}, fields)])  # type: ignore[arg-type]
        assert runs.units[0].first is not None


def test_checksums_see_what_statistics_do_not(tmp_path: Path) -> None:
    runs = recorded(tmp_path, [chain(1.0, 2.0, md5=text) for text in ("00000001", "00000001", "00000002")])
    assert runs.units[0].mode == "md5"
    assert runs.units[0].first is not None and grouped(runs.units[0].first.call.whole) == [[1, 2], [3]]


def test_without_checksum_or_file_the_statistics_count(tmp_path: Path) -> None:
    """A NumPy array has neither."""

    def held(value: float, **fields: Any) -> Json:
        return {"Torch.op.0.forward": api([tensor(**fields), tensor(value)], [tensor(**fields)])}

    for number, fields in enumerate(({"md5": "0" * 8}, {"data_name": "x.pt"})):
        task = "tensor" if number else "statistics"
        found = recorded(tmp_path / f"{number}", [held(1.0, **fields), held(5.0, **fields)], task=task)
        assert found.units[0].first is not None and found.exit_code == 1


def test_the_bytes_of_tensors(tmp_path: Path) -> None:
    """A permutation: all statistics are equal."""
    paths = []
    for number, values in enumerate(([1.0, 2.0], [2.0, 1.0], [1.0, 2.0])):
        paths.append(tmp_path / str(number))
        name = "Torch.a.0.forward"
        records = [save_array(paths[-1], f"{name}.{place}.pt", what) for place, what in (("input.0", [5.0]), ("output.0", values))]
        write_dump(paths[-1], {name: api([records[0]], [records[1]])}, task="tensor")
    runs = compare_runs(paths)
    assert runs.units[0].mode == "tensor"
    assert runs.units[0].first is not None and grouped(runs.units[0].first.call.whole) == [[1, 3], [2]]


def test_a_tensor_file_that_cannot_be_read_is_counted(tmp_path: Path) -> None:
    paths = []
    for number in range(2):
        paths.append(tmp_path / str(number))
        record = save_array(paths[-1], "Torch.a.0.forward.output.0.pt", [1.0])
        write_dump(paths[-1], {"Torch.a.0.forward": api([], [record])}, task="tensor")
        (paths[-1] / "dump_tensor_data" / "Torch.a.0.forward.output.0.pt").write_bytes(b"")
    runs = compare_runs(paths)
    assert runs.exit_code == 2
    assert "1 values have nothing to be compared by" in "\n".join(line.text for line in describe(runs, []))


def test_runs_of_several_kinds_are_compared_by_what_all_hold(tmp_path: Path) -> None:
    kinds: list[Json] = [{"md5": "00000001"}, {"md5": "00000002"}, {}]
    runs = recorded(tmp_path, [chain(1.0, 2.0, **kind) for kind in kinds])
    assert (runs.units[0].mode, runs.units[0].first) == ("statistics", None)


def test_the_innermost_call_of_a_module_is_named_with_its_line(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(3)]
    for path, gain in zip(paths, (1.0, 1.0, 1.5), strict=True):
        Net(fc_gain=gain).write(path)
    first = compare_runs(paths).units[0].first
    assert first is not None and first.call.name == "Functional.linear.0.forward"
    assert first.module == FC
    assert first.frame is not None and first.frame.path == "/home/me/model.py"


def test_a_backward_entry_of_a_module_that_stands_before_those_inside(tmp_path: Path) -> None:
    outer, inner = "Module.b.Block.backward.0", "Functional.linear.0.backward"
    for number, gain in enumerate((1.0, 2.0)):
        data = {outer: {"input": [tensor()], "output": [tensor(gain)]}, inner: {"input": [tensor()], "output": [tensor(gain)]}}
        write_dump(tmp_path / str(number), data, construct={outer: None, inner: outer})
    first = compare_runs([tmp_path / "0", tmp_path / "1"]).units[0].first
    assert first is not None and first.call.name == inner


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (chain(1.0, 2.0), chain(1.5, 2.0), "the inputs of the first call, Torch.op0.0.forward, differ: the data"),
        (
            {**chain(1.0, 2.0), "Torch.b.0.forward": api([tensor(5.0)], [tensor(5.0)])},
            {**chain(1.0, 2.0), "Torch.b.0.forward": api([tensor(6.0)], [tensor(5.0)])},
            "the inputs of Torch.b.0.forward differ, and no recorded call before it gave a difference",
        ),
        (
            {FC: module([tensor()], [tensor()], weight=tensor(1.0))},
            {FC: module([tensor()], [tensor()], weight=tensor(2.0))},
            f"parameters of {FC} differ (its inputs are identical)",
        ),
        (
            {**chain(1.0, 2.0), "Torch.extra.0.forward": api([tensor()], [tensor()])},
            chain(1.0, 2.0),
            "Torch.extra.0.forward is in run 1 only: another way through the code",
        ),
        (
            {"Functional.dropout.0.forward": api([tensor()], [tensor(1.0)])},
            {"Functional.dropout.0.forward": api([tensor()], [tensor(2.0)])},
            "Functional.dropout.0.forward draws random numbers",
        ),
    ],
    ids=["data", "code", "parameters", "missing", "random"],
)
def test_why(one: Json, other: Json, words: str, tmp_path: Path) -> None:
    assert words in first_sentence(recorded(tmp_path, [one, other]))


def test_calls_of_later_runs_stand_where_they_ran(tmp_path: Path) -> None:
    extra = {"Torch.extra.0.forward": api([tensor()], [tensor()])}
    longer = {**chain(1.0, 2.0), **extra, "Torch.op1.0.forward": api([tensor(2.0)], [tensor(3.0)])}
    runs = recorded(tmp_path, [chain(1.0, 2.0, 3.0), longer])
    assert [call.name for call in runs.units[0].calls] == ["Torch.op0.0.forward", "Torch.extra.0.forward", "Torch.op1.0.forward"]
    assert "is in run 2 only" in first_sentence(runs)


def test_memory_that_nobody_set_is_no_difference(tmp_path: Path) -> None:
    def dump(junk: float) -> Json:
        return {
            "Torch.empty.0.forward": api([{"type": "int", "value": 3}], [tensor(junk)]),
            "Tensor.copy_.0.forward": api([tensor(junk), tensor(2.0)], [tensor(2.0)]),
        }

    assert recorded(tmp_path, [dump(1.0), dump(5.0)]).exit_code == 0


def test_roots_with_steps_and_ranks(tmp_path: Path) -> None:
    """The communication comes after the rank that computes something else, whatever its number."""
    paths = [tmp_path / name for name in "abc"]
    for number, path in enumerate(paths):
        for step in range(2):
            noise = 1.0 if step and number == 2 else 0.0
            summed = {"Distributed.all_reduce.0.forward": api([tensor(1.0)], [tensor(9.0 + noise)])}
            write_dump(path / f"step{step}" / "rank0", summed)
            write_dump(path / f"step{step}" / "rank1", {"Torch.a.0.forward": api([tensor()], [tensor(5.0 + noise)]), **summed})
    runs = compare_runs(paths)
    assert [unit.pair.title for unit in runs.units] == ["step0 rank0", "step0 rank1", "step1 rank0", "step1 rank1"]
    text = "\n".join(line.text for line in describe(runs, write(runs, tmp_path / "o")))
    assert "First call that is not identical of step1 rank1: Torch.a.0.forward is not deterministic" in text
    assert len(list((tmp_path / "o" / "step1").glob("repeated_runs_rank?_*.csv"))) == 2
    assert [unit.pair.title for unit in compare_runs(paths, frozenset({0}), frozenset({1})).units] == ["step0 rank1"]


def test_what_not_all_have_is_told(tmp_path: Path) -> None:
    for name, steps in (("a", (0, 1)), ("b", (0, 1)), ("c", (0,))):
        for step in steps:
            write_dump(tmp_path / name / f"step{step}" / "proc7", chain(1.0, 2.0))
    runs = compare_runs([tmp_path / name for name in "abc"])
    assert [unit.pair.title for unit in runs.units] == ["step0 proc7"]
    assert runs.one_sided == (f"step1 is in {tmp_path / 'a'} and not in {tmp_path / 'c'}",)
    assert runs.exit_code == 1


def test_processes_of_other_numbers_belong_together(tmp_path: Path) -> None:
    for number in range(3):
        write_dump(tmp_path / str(number) / "step0" / f"proc{number + 5}", chain(1.0, 2.0))
    assert compare_runs([tmp_path / str(number) for number in range(3)]).exit_code == 0


def test_a_broken_rank_is_named_and_the_rest_compared(tmp_path: Path) -> None:
    for name in "ab":
        for rank in (0, 1):
            write_dump(tmp_path / name / f"rank{rank}", chain(1.0, 2.0))
    (tmp_path / "b" / "rank1" / "dump.json").write_text("{")
    runs = compare_runs([tmp_path / "a", tmp_path / "b"])
    assert [unit.pair.label for unit in runs.units] == ["rank0"]
    assert "b/rank1/dump.json" in runs.problems[0]
    assert runs.exit_code == 2


def test_wrong_paths(tmp_path: Path) -> None:
    path = write_dump(tmp_path / "a", chain(1.0, 2.0))
    for paths, words in (
        ([path], "two recordings"),
        ([path, tmp_path / "a" / "dump.json"], "twice"),
        ([path, tmp_path / "x"], "does not exist"),
    ):
        with pytest.raises(UsageError, match=words):
            compare_runs(paths)


def test_the_csv(tmp_path: Path) -> None:
    frames = [frame("/home/me/model.py", 7, "forward", "y = op(x)")]
    for number, last in enumerate((3.0, 3.5, 3.0)):
        write_dump(tmp_path / str(number) / "rank4", chain(1.0, 2.0, last), stack={"Torch.op1.0.forward": frames})
    runs = compare_runs([tmp_path / str(number) for number in range(3)])
    (path,) = write(runs, tmp_path / "o")
    assert path.name.startswith("repeated_runs_rank4_")
    with open(path, encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))
    assert rows == [
        ["Name", "Identical", "Distinct values", "Runs that agree", "Inputs", "Parameters", "Outputs", "Not compared", "Code line"],
        ["Torch.op0.0.forward", "True", "1", "1 2 3", "identical", "identical", "identical", "0", ""],
        [
            "Torch.op1.0.forward",
            "False",
            "2",
            "1 3 | 2",
            "identical",
            "identical",
            "differ",
            "0",
            "/home/me/model.py:7 in forward: y = op(x)",
        ],
    ]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(write_dump(tmp_path / str(n), chain(1.0, value))) for n, value in enumerate((2.0, 3.0))]
    out = ["-o", str(tmp_path / "o")]
    assert main(["compare", "--runs", *paths, *out]) == 1
    assert "First call that is not identical: Torch.op0.0.forward is not deterministic" in capsys.readouterr().out
    assert main(["compare", "--runs", *paths, *out, "--exit-zero"]) == 0
    assert main(["compare", "--runs", *paths, "-tp", paths[0], *out]) == 2
    assert "--runs takes all recordings itself and does not go with -tp" in capsys.readouterr().err
    assert main(["compare", "--runs", *paths, "--mapping", "m.yaml", *out]) == 2
    assert "does not go with --mapping: runs of one script have one structure" in capsys.readouterr().err
    assert main(["compare", "--runs", paths[0], "s3://bucket/run", *out]) == 2
    assert "--runs reads local paths only, and s3:/bucket/run is a URL: copy the dump" in capsys.readouterr().err
    assert main(["compare", "-tp", paths[0], *out]) == 2
    assert "required: -gp/--golden_path (or, in place of both, several recordings" in capsys.readouterr().err


def test_a_damaged_stack_or_construct_is_no_error(tmp_path: Path) -> None:
    for number, value in enumerate((2.0, 3.0)):
        path = write_dump(tmp_path / str(number), chain(1.0, value))
        (path.parent / "stack.json").write_text("[")
        (path.parent / "construct.json").write_text("[")
    first = compare_runs([tmp_path / "0", tmp_path / "1"]).units[0].first
    assert first is not None and (first.module, first.frame) == (None, None)


def test_what_was_not_compared_is_not_called_identical(tmp_path: Path) -> None:
    roots = [tmp_path / name for name in "abc"]
    for root in roots:
        for step in range(2):
            for rank in range(8):
                Net().write(root / f"step{step}" / f"rank{rank}")
    (roots[1] / "step1" / "rank1" / "dump.json").write_text('{"task')
    runs = compare_runs(roots)
    told = [line.text for line in describe(runs, [])]
    assert runs.exit_code == 2 and len(runs.problems) == 1
    assert told[-1] == "What could be compared is identical in all 3 runs."
    assert "15 steps and ranks: all calls identical in all 3 runs" in told
