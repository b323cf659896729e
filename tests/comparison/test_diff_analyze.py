"""`-da`: the JSON files of the search over the ranks."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from msprobe.cli.main import main
from msprobe.comparison.compare import compare
from msprobe.comparison.options import Options
from msprobe.comparison.outcome import Outcome

from .dumps import Json, api, module, save_array, statistics, tensor, write_dump
from .net import Net
from .ranks import compute, p2p, write_ranks
from .test_ranks import all_reduce, pipeline

GOLDEN = Path(__file__).parents[1] / "golden" / "analysis"


def analysed(target: Path, golden: Path, output: Path) -> tuple[Outcome, list[Json]]:
    outcome = compare(target, golden, output, Options(diff_analyze=True))
    assert outcome.analyses is not None
    return outcome, [json.loads(path.read_text(encoding="utf-8")) for path in outcome.analyses]


@pytest.mark.parametrize("sample", ["da_first", "da_md5"])
def test_the_samples(sample: str, tmp_path: Path) -> None:
    """Equal to those of the existing tool but for Err_message, in which it writes NaN for no message."""
    _, (found,) = analysed(GOLDEN / sample / "target", GOLDEN / sample / "golden", tmp_path)
    results = GOLDEN / sample / "result"
    assert found == json.loads(next(results.glob("diff_analyze_*.json")).read_text())
    for rank in (0, 1):
        theirs = json.loads(next(results.glob(f"compare_result_rank{rank}_*.json")).read_text())
        ours = json.loads(next(tmp_path.glob(f"compare_result_rank{rank}_*.json")).read_text())
        assert list(ours) == list(theirs)
        for name, entry in theirs.items():
            for item, our_item in zip(entry["op_items"], ours[name]["op_items"], strict=True):
                item["Err_message"] = ""
                assert list(our_item) == list(item)
            if sample == "da_md5":  # there the checksum of a value without one is the value; in ours as in the CSV
                for item in [*entry["op_items"], *ours[name]["op_items"]]:
                    if item["NPU Dtype"] == "torch.ProcessGroup":
                        item["NPU MD5"] = item["BENCH MD5"] = ""
            assert ours[name]["op_items"] == entry["op_items"]
            assert ours[name]["is_same"] == entry["is_same"]


def test_names_of_the_files(tmp_path: Path) -> None:
    target, golden = (write_ranks(tmp_path / side, all_reduce({0: 1.0, 1: gain})) for side, gain in (("t", 9.0), ("g", 2.0)))
    analysed(target, golden, tmp_path / "o")
    names = [re.sub(r"\d{8,}", "T", path.name) for path in (tmp_path / "o").glob("*.json")]
    assert sorted(names) == ["compare_result_rank0_T.json", "compare_result_rank1_T.json", "diff_analyze_T.json"]


def test_the_rank_that_received_it_is_not_listed(tmp_path: Path) -> None:
    target, golden = write_ranks(tmp_path / "t", pipeline(5.0)), write_ranks(tmp_path / "g", pipeline(1.0))
    _, (found,) = analysed(target, golden, tmp_path / "o")
    assert {rank: [entry["op_name"] for entry in entries] for rank, entries in found.items()} == {"rank_2": ["Torch.mul.0.forward"]}


@pytest.mark.parametrize("kind", ["file", "proc", "root"])
def test_any_kind_of_directory(kind: str, tmp_path: Path) -> None:
    """F16: a file was ignored, a proc directory crashed."""
    inside = {"file": "rank0", "proc": "step0/proc77", "root": "step3/rank5"}[kind]
    target, golden = Net(fc_gain=1.5).write(tmp_path / "t" / inside), Net().write(tmp_path / "g" / inside)
    roots = tmp_path / "t", tmp_path / "g"
    given = {"file": (target, golden), "proc": (roots[0] / "step0", roots[1] / "step0"), "root": roots}
    _, (found,) = analysed(*given[kind], tmp_path / "o")
    assert list(found) == [{"file": "rank_0", "proc": "proc_77", "root": "rank_5"}[kind]]
    (start,) = next(iter(found.values()))
    assert start["op_name"] == "Functional.linear.0.forward"
    assert start["stack_info"] and "model.py" in "".join(start["stack_info"])
    assert len(list((tmp_path / "o").rglob("compare_result*.json"))) == 1
    if kind == "root":
        assert list((tmp_path / "o" / "step3").glob("diff_analyze_*.json"))


@pytest.mark.parametrize(
    ("target", "golden"),
    [
        (statistics(math.nan, 0.0, 0.5, 1.0), statistics(1.0, 0.0, 0.5, 1.0)),
        (statistics(0.5, 0.0, 0.1, 1.0), statistics(0.0, 0.0, 0.0, 0.0)),
        (tensor(1.2), tensor(1.0)),
    ],
    ids=["NaN", "golden 0", "20 per cent"],
)
def test_what_was_missed(target: Json, golden: Json, tmp_path: Path) -> None:
    """F17: NaN, a golden value of 0, changes of 50 % and less."""
    for side, output in (("t", target), ("g", golden)):
        write_dump(tmp_path / side, {"Torch.a.0.forward": api([tensor()], [output])})
    _, (found,) = analysed(tmp_path / "t", tmp_path / "g", tmp_path / "o")
    assert found["rank_0"][0]["op_name"] == "Torch.a.0.forward"
    (pair,) = (tmp_path / "o").glob("compare_result*.json")
    assert json.loads(pair.read_text())["Torch.a.0.forward"]["is_same"] is False


def test_a_call_of_one_side(tmp_path: Path) -> None:
    """F17."""
    both = compute("Torch.b.0.forward", 2.0, 3.0)
    target = write_dump(tmp_path / "t", {**compute("Torch.a.0.forward", 1.0, 2.0), **compute("Torch.b.0.forward", 9.0, 3.0)})
    _, (found,) = analysed(target, write_dump(tmp_path / "g", both), tmp_path / "o")
    assert found["rank_0"][0]["op_name"] == "Torch.a.0.forward"
    (pair,) = (tmp_path / "o").glob("compare_result*.json")
    entry = json.loads(pair.read_text())["Torch.a.0.forward"]
    assert entry["is_same"] is False
    assert {entry["op_items"][0][name] for name in ("Bench Name", "Bench Dtype", "Max diff", "Bench max")} == {"N/A"}


def test_results_of_an_earlier_run_are_not_read(tmp_path: Path) -> None:
    """F17: the existing tool reads whatever lies in the output directory."""
    good = write_ranks(tmp_path / "g", all_reduce({0: 1.0, 1: 2.0}))
    analysed(write_ranks(tmp_path / "t", all_reduce({0: 1.0, 1: 9.0})), good, tmp_path / "o")
    _, found = analysed(write_ranks(tmp_path / "u", all_reduce({0: 9.0, 1: 2.0})), good, tmp_path / "o")
    assert list(found[0]) == ["rank_0"]


def test_no_difference_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Net().write(tmp_path / "a")
    assert main(["compare", "-tp", str(path), "-gp", str(path), "-o", str(tmp_path / "o"), "-da"]) == 0
    assert "diff_analyze: no file, as no difference beyond rounding was found" in capsys.readouterr().out
    assert list((tmp_path / "o").glob("diff_analyze*")) == []


def test_the_elements_of_a_batch(tmp_path: Path) -> None:
    def dump(value: float) -> Json:
        elements: list[Any] = [p2p("isend", 1, tensor(3.0)), p2p("irecv", 1, tensor(0.5))]
        return {"Distributed.batch_isend_irecv.0.forward": api([elements], [[elements[0], p2p("irecv", 1, tensor(value))]])}

    target, golden = write_ranks(tmp_path / "t", {0: dump(5.0)}), write_ranks(tmp_path / "g", {0: dump(6.0)})
    analysed(target, golden, tmp_path / "o")
    (pair,) = (tmp_path / "o").glob("compare_result*.json")
    items = {item["NPU Name"]: item for item in json.loads(pair.read_text())["Distributed.batch_isend_irecv.0.forward"]["op_items"]}
    found = items["Distributed.batch_isend_irecv.0.forward.output.0.1.tensor"]
    assert [found[f"{side} P2POp {what}"] for what in ("op", "peer") for side in ("NPU", "Bench")] == ["irecv", "irecv", "1", "1"]
    assert items["Distributed.batch_isend_irecv.0.forward.input.0.0.op"]["NPU P2POp op"] == "None"


def test_parameters_and_tensor_files(tmp_path: Path) -> None:
    """Tensors are told by their statistics; a parameter is among the inputs of data_info."""
    name = "Module.fc.Linear.forward.0"
    for side, value in (("t", 3.0), ("g", 2.0)):
        records = [save_array(tmp_path / side, f"{name}.{place}.pt", [v]) for place, v in (("input.0", 1.0), ("output.0", value))]
        weight = save_array(tmp_path / side, f"{name}.parameters.weight.pt", [1.0])
        write_dump(tmp_path / side, {name: module([records[0]], [records[1]], weight=weight)}, task="tensor")
    _, (found,) = analysed(tmp_path / "t", tmp_path / "g", tmp_path / "o")
    assert set(found["rank_0"][0]["data_info"]["input"]) == {f"{name}.input.0", f"{name}.parameters.weight"}
    (pair,) = (tmp_path / "o").glob("compare_result*.json")
    item = json.loads(pair.read_text())[name]["op_items"][1]
    assert (item["Max diff"], item["MaxRelativeErr"], item["state"]) == ("1.0", "50.0%", "output")
