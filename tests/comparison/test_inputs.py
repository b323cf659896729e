from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe
from msprobe.comparison.inputs import make_plan
from msprobe.errors import DumpFormatError, UsageError

from .dumps import api, read_csv, tensor, tensor_call, write_dump

DATA = {"Torch.a.0.forward": api([tensor()], [tensor(2.0)])}
OTHER = {"Torch.a.0.forward": api([tensor()], [tensor(3.0)])}
XOR = "0x0123456789abcdef"


def bare(**fields: object) -> dict[str, object]:
    """A record without statistics."""
    return tensor(Max=None, Min=None, Mean=None, Norm=None, **fields)


def dump(directory: Path, data: object = DATA) -> Path:
    return write_dump(directory, data, stack={})  # type: ignore[arg-type]


def no_dump(path: Path) -> Path:
    path.write_text("import torch\n")
    return path


def test_two_files_and_two_directories(tmp_path: Path) -> None:
    target, golden = dump(tmp_path / "a" / "rank0"), dump(tmp_path / "b" / "rank0")
    assert re.fullmatch(r"compare_result_\d{14}\.csv", compare(target, golden, tmp_path / "o").reports[0].csv.name)
    outcome = compare(target.parent, golden.parent, tmp_path / "o")
    assert re.fullmatch(r"compare_result_rank0_\d{14}\.csv", outcome.reports[0].csv.name)
    assert compare(target, golden.parent, tmp_path / "o").exit_code == 0


def test_ranks_are_paired_by_id_and_not_by_position(tmp_path: Path) -> None:
    """F18."""
    for rank in (0, 1):
        dump(tmp_path / "a" / f"rank{rank}")
    for rank in (1, 10):
        dump(tmp_path / "b" / f"rank{rank}")
    outcome = compare(tmp_path / "a", tmp_path / "b", tmp_path / "o")
    assert [report.pair.label for report in outcome.reports] == ["rank1"]
    assert outcome.plan.one_sided == ("rank0 is in the target only", "rank10 is in the golden dump only")
    assert outcome.exit_code == 1


def test_a_single_process_on_each_side(tmp_path: Path) -> None:
    dump(tmp_path / "a" / "proc111")
    dump(tmp_path / "b" / "proc222")
    outcome = compare(tmp_path / "a", tmp_path / "b", tmp_path / "o")
    assert outcome.reports[0].csv.name.startswith("compare_result_proc111_")
    assert outcome.exit_code == 0


def test_several_processes_without_ranks_cannot_be_paired(tmp_path: Path) -> None:
    for pid in (1, 2):
        dump(tmp_path / "a" / f"proc{pid}")
        dump(tmp_path / "b" / f"proc{pid + 10}")
    outcome = compare(tmp_path / "a", tmp_path / "b", tmp_path / "o")
    assert outcome.exit_code == 2
    words = "proc* directories (that many processes, or runs into one dump_path)"
    assert outcome.plan.problems == (
        f"cannot be paired: {tmp_path}/a of the target side holds 2 {words}; {tmp_path}/b of the golden side holds 2 {words};"
        f" name one directory of each side, as in -tp {tmp_path}/a/proc1 -gp {tmp_path}/b/proc11",
    )


def test_only_the_side_with_several_processes_is_blamed(tmp_path: Path) -> None:
    for pid in (1, 2):
        dump(tmp_path / "a" / "step0" / f"proc{pid}")
    dump(tmp_path / "b" / "step0" / "proc7")
    (problem,) = compare(tmp_path / "a", tmp_path / "b", tmp_path / "o").plan.problems
    assert f"{tmp_path}/a/step0 of the target side holds 2 proc* directories" in problem and "golden side holds" not in problem
    dump(tmp_path / "c" / "step0" / "rank0")
    (problem,) = compare(tmp_path / "a", tmp_path / "c", tmp_path / "o").plan.problems
    assert problem.startswith("step0 has rank* directories on one side and not on the other; ")
    assert problem.endswith(f"as in -tp {tmp_path}/a/step0/proc1 -gp {tmp_path}/c/step0/rank0")


def test_processes_beside_ranks_are_left_out(tmp_path: Path) -> None:
    for side in "ab":
        dump(tmp_path / side / "rank0")
        dump(tmp_path / side / f"proc{ord(side)}")
    plan = make_plan(tmp_path / "a", tmp_path / "b")
    assert [pair.label for pair in plan.pairs] == ["rank0"]
    (note,) = plan.notes
    assert note.startswith(f"{tmp_path}/a/proc97, {tmp_path}/b/proc98 lie beside rank* and are left out: ")


def test_two_processes_of_one_rank_are_paired_by_both_numbers(tmp_path: Path) -> None:
    """A process whose rank's directory another running one uses records beside it."""
    for side, data in (("a", OTHER), ("b", DATA)):
        dump(tmp_path / side / "step0" / "rank0")
        dump(tmp_path / side / "step0" / "rank0.proc12", data)
    outcome = compare(tmp_path / "a", tmp_path / "b", tmp_path / "o")
    assert [pair.label for pair in outcome.plan.pairs] == ["rank0", "rank0.proc12"]
    assert [report.counts["error"] for report in outcome.reports] == [0, 1] and outcome.exit_code == 1
    assert outcome.reports[1].csv.name.startswith("compare_result_rank0.proc12_")
    outcome = compare(*(tmp_path / side / "step0" / "rank0.proc12" for side in "ab"), tmp_path / "o")
    assert outcome.reports[0].csv.name.startswith("compare_result_rank0.proc12_")


def test_a_second_process_of_a_rank_on_one_side_is_told(tmp_path: Path) -> None:
    for name in ("a/step0/rank0", "a/step0/rank0.proc12", "b/step0/rank0"):
        dump(tmp_path / name)
    for sides, side in (("ab", "target"), ("ba", "golden dump")):
        outcome = compare(*(tmp_path / name for name in sides), tmp_path / "o")
        sentence = f"step0 rank0.proc12, where another process recorded as rank 0, is in the {side} only"
        assert outcome.plan.one_sided == (sentence,) and outcome.exit_code == 1
        told = [line.text for line in describe(outcome)]
        assert f"not in both: {sentence}" in told and told[-1] == f"Values agree; {sentence}"
        assert outcome.summary is not None and read_csv(outcome.summary)[-1]["Problem"] == sentence


def test_second_processes_of_a_rank_that_nothing_pairs_are_a_problem(tmp_path: Path) -> None:
    for name in ("a/rank0", "a/rank0.proc12", "a/rank0.proc13", "b/rank0", "b/rank0.proc13", "b/rank0.proc99"):
        dump(tmp_path / name)
    outcome = compare(tmp_path / "a", tmp_path / "b", tmp_path / "o")
    assert [pair.label for pair in outcome.plan.pairs] == ["rank0", "rank0.proc13"]
    assert outcome.plan.problems == (
        "rank0.proc12 of the target and rank0.proc99 of the golden dump: other processes recorded as rank 0, too, and which belong"
        f" together cannot be told; name one directory of each side, as in -tp {tmp_path}/a/rank0.proc12 -gp {tmp_path}/b/rank0.proc99",
    )
    assert outcome.exit_code == 2
    last = "Not compared: rank0.proc12 of the target and rank0.proc99 of the golden dump (standard error says why)"
    assert [line.text for line in describe(outcome)][-2:] == ["No difference in what could be compared.", last]


def test_second_processes_belong_to_the_ranks_that_are_picked(tmp_path: Path) -> None:
    for name in ("a/rank0", "a/rank1", "a/rank0.proc12", "b/rank0", "b/rank1", "b/rank2.proc3"):
        dump(tmp_path / name)
    picked = [make_plan(tmp_path / "a", tmp_path / "b", None, frozenset({rank})) for rank in (0, 1)]
    assert [[pair.label for pair in plan.pairs] for plan in picked] == [["rank0"], ["rank1"]]
    assert [len(plan.one_sided) for plan in picked] == [1, 0]
    with pytest.raises(UsageError, match=r"rank2\.proc3, where another process recorded as rank 2, is in the golden dump only"):
        make_plan(tmp_path / "a", tmp_path / "b", None, frozenset({2}))


def test_a_step_may_hold_second_processes_alone(tmp_path: Path) -> None:
    for side in "ab":
        dump(tmp_path / side / "rank0.proc12")
    plan = make_plan(tmp_path / "a", tmp_path / "b")
    assert plan.level == "step" and [pair.label for pair in plan.pairs] == ["rank0.proc12"] and plan.problems == ()


@pytest.mark.parametrize("side", ["target", "golden dump"])
def test_a_rank_that_may_not_be_looked_into_costs_itself_only(side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/rank0", "a/rank1", "b/rank0", "b/rank1"):
        dump(tmp_path / name)
    closed = tmp_path / ("a" if side == "target" else "b") / "rank1"
    look = os.stat

    def stat(path: Any, *more: Any, **how: Any) -> os.stat_result:
        """As for somebody without permission; root may look everywhere."""
        if str(path).startswith(f"{closed}/"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return look(path, *more, **how)

    monkeypatch.setattr(os, "stat", stat)
    outcome = compare(tmp_path / "a", tmp_path / "b", tmp_path / "o")
    assert [report.pair.label for report in outcome.reports] == ["rank0"]
    assert outcome.plan.problems == (f"{closed} of the {side} cannot be read: Permission denied",) and outcome.exit_code == 2


def test_a_dump_root(tmp_path: Path) -> None:
    for step, data in ((0, DATA), (1, OTHER), (3, DATA)):
        for rank in (0, 1):
            dump(tmp_path / "a" / f"step{step}" / f"rank{rank}", data)
    for step in (0, 1, 2):
        for rank in (0, 1):
            dump(tmp_path / "b" / f"step{step}" / f"rank{rank}")
    outcome = compare(tmp_path / "a", tmp_path / "b", tmp_path / "o")
    found = sorted(re.sub(r"\d{14}", "T", str(path.relative_to(tmp_path / "o"))) for path in (tmp_path / "o").rglob("*.csv"))
    assert found == [
        "step0/compare_result_rank0_T.csv",
        "step0/compare_result_rank1_T.csv",
        "step1/compare_result_rank0_T.csv",
        "step1/compare_result_rank1_T.csv",
        "summary_T.csv",
    ]
    assert outcome.plan.one_sided == ("step2 is in the golden dump only", "step3 is in the target only")
    assert outcome.summary is not None
    lines = read_csv(outcome.summary)
    assert [(line["Step"], line["Rank"], line["Error"]) for line in lines[:4]] == [
        ("0", "rank0", "0"),
        ("0", "rank1", "0"),
        ("1", "rank0", "1"),
        ("1", "rank1", "1"),
    ]
    assert lines[2]["First difference"].startswith("Torch.a.0.forward (inputs equal, output differs)")
    assert [line["Problem"] for line in lines[4:]] == list(outcome.plan.one_sided)


def test_a_broken_rank_is_named_and_the_rest_compared(tmp_path: Path) -> None:
    """F18."""
    for side in "ab":
        for rank in (0, 1, 2):
            dump(tmp_path / side / f"rank{rank}")
    (tmp_path / "a" / "rank0" / "dump.json").write_text('{"task": "statistics", "data": {"x"')
    (tmp_path / "b" / "rank1" / "dump.json").unlink()
    outcome = compare(tmp_path / "a", tmp_path / "b", tmp_path / "o")
    assert [report.pair.label for report in outcome.reports] == ["rank2"]
    assert outcome.exit_code == 2
    assert "is cut off" in outcome.failures[0].message and outcome.failures[0].pair.label == "rank0"
    assert outcome.plan.problems == (f"{tmp_path}/b/rank1 of the golden dump has no dump.json or debug.json",)


def test_results_are_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msprobe.comparison.report_csv.timestamp", lambda: "20260101000000")
    path = dump(tmp_path / "a")
    names = [compare(path, path, tmp_path / "o").reports[0].csv.name for _ in range(3)]
    assert names == [f"compare_result_20260101000000{suffix}.csv" for suffix in ("", "_1", "_2")]


def test_any_path_works(tmp_path: Path) -> None:
    """F25."""
    path = dump(tmp_path / "mit Leerzeichen" / "数据 = @+;é")
    outcome = compare(path.parent, path, tmp_path / "aus gäbe" / "neu")
    assert outcome.exit_code == 0
    assert outcome.reports[0].csv.parent == tmp_path / "aus gäbe" / "neu"


def test_a_symbolic_link_to_a_dump(tmp_path: Path) -> None:
    path = dump(tmp_path / "a")
    (tmp_path / "link").symlink_to(tmp_path / "a", target_is_directory=True)
    (tmp_path / "file.json").symlink_to(path)
    outcome = compare(tmp_path / "link", tmp_path / "file.json", tmp_path / "o")
    assert outcome.exit_code == 0
    assert outcome.reports[0].notes == ()


def test_a_link_to_dump_json_finds_the_tensors_of_the_dump(tmp_path: Path) -> None:
    path = tensor_call(tmp_path / "a", [1.0])
    (tmp_path / "link.json").symlink_to(path)
    assert compare(tmp_path / "link.json", path, tmp_path / "o").reports[0].counts["pass"] == 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: (d / "nothing", dump(d / "b")), "the target path .*/nothing does not exist"),
        (lambda d: (dump(d / "a"), d / "nothing"), "the golden path .*/nothing does not exist"),
        (
            lambda d: (dump(d / "a" / "rank0").parent.parent, dump(d / "b")),
            "not of one kind: .*/a is a step directory, .* is a dump file",
        ),
        (
            lambda d: (no_dump(d / "mlp.py"), dump(d / "b" / "rank0").parent.parent),
            "mlp.py is a file that is called neither dump.json nor debug.json, .*/b is a step directory",
        ),
        (
            lambda d: (dump(d / "a"), write_dump(d / "b", {"Torch.a.0.forward": api([bare()], [])}, task="tensor")),
            "the tasks differ: .* holds statistics, .* holds tensor",
        ),
        (lambda d: (write_dump(d / "a", {}, task="structure"), dump(d / "b")), "a/dump.json holds no calls: neither construct.json nor"),
        (lambda d: (write_dump(d / "a", DATA, task="nan_check"), dump(d / "b")), "'nan_check', .*: record both runs with task statistics"),
        (lambda d: (dump(d / "a", {}), dump(d / "b")), "holds no data: nothing was recorded"),
        (
            lambda d: (dump(d / "a", {"Torch.x.0.forward": api([tensor()], [])}), dump(d / "b")),
            "no value of .* has a partner in ",
        ),
        (
            lambda d: (dump(d / "a", {"Torch.a.0.forward": api([bare(md5=XOR)], [])}), dump(d / "b")),
            r"/a/dump.json holds checksums \(summary_mode xor\) and .*/b/dump.json does not",
        ),
        (
            lambda d: (dump(d / "a"), dump(d / "b", {"Torch.a.0.forward": api([bare(md5=XOR)], [])})),
            r"/b/dump.json holds checksums \(summary_mode xor\) and .*/a/dump.json does not",
        ),
        (
            lambda d: (
                dump(d / "a", {"Torch.a.0.forward": api([bare(md5=XOR)], [])}),
                dump(d / "b", {"Torch.a.0.forward": api([tensor(md5="0a1b2c3d")], [])}),
            ),
            r"/a/dump.json holds xor, .*/b/dump.json holds md5: two kinds of checksums; record both alike",
        ),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_sentence(make: object, message: str, tmp_path: Path) -> None:
    target, golden = make(tmp_path)  # type: ignore[operator]
    with pytest.raises(UsageError, match=message) as caught:
        compare(target, golden, tmp_path / "o")
    assert "\n" not in str(caught.value)


def test_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(UsageError, match=r"holds no dump: no dump\.json, debug\.json, rank\*, proc\* or step\* in it"):
        make_plan(tmp_path / "a", tmp_path / "a")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"task": "statistics"}', b'{"data": {}}', b"\xff\xfe", b'{"task":"statistics","data":{"a":3}}']
)
def test_a_damaged_file_is_an_error_that_names_it(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "dump.json").write_bytes(content)
    with pytest.raises(DumpFormatError, match=r"a/dump\.json"):
        compare(tmp_path / "a" / "dump.json", dump(tmp_path / "b"), tmp_path / "o")


def test_no_common_step(tmp_path: Path) -> None:
    dump(tmp_path / "a" / "step0" / "rank0")
    dump(tmp_path / "b" / "step1" / "rank0")
    with pytest.raises(UsageError, match="step0 is in the target only"):
        compare(tmp_path / "a", tmp_path / "b", tmp_path / "o")


def test_only_some_steps_and_ranks(tmp_path: Path) -> None:
    for side in ("a", "b"):
        for step in range(3):
            for rank in range(3):
                dump(tmp_path / side / f"step{step}" / f"rank{rank}")
    plan = make_plan(tmp_path / "a", tmp_path / "b", frozenset({0, 2}), frozenset({1}))
    assert [pair.title for pair in plan.pairs] == ["step0 rank1", "step2 rank1"]
    assert (plan.one_sided, plan.problems) == ((), ())
    assert [pair.title for pair in make_plan(tmp_path / "a" / "step0", tmp_path / "b" / "step1", None, frozenset({0, 2})).pairs] == [
        "rank0",
        "rank2",
    ]


def test_a_step_or_rank_that_is_nowhere_is_named(tmp_path: Path) -> None:
    for side in ("a", "b"):
        dump(tmp_path / side / "step0" / "rank0")
    with pytest.raises(UsageError, match=r"--step 3: there is no such step on either side; there are: 0"):
        make_plan(tmp_path / "a", tmp_path / "b", frozenset({0, 3}))
    with pytest.raises(UsageError, match=r"--rank 1: no such rank in .*; there are: 0"):
        make_plan(tmp_path / "a", tmp_path / "b", None, frozenset({1}))


def test_a_rank_that_one_side_lacks_is_told(tmp_path: Path) -> None:
    for name in ("a/step0/rank0", "a/step0/rank1", "b/step0/rank0", "a/step1/rank1", "b/step1/rank1"):
        dump(tmp_path / name)
    plan = make_plan(tmp_path / "a", tmp_path / "b", None, frozenset({1}))
    assert [pair.title for pair in plan.pairs] == ["step1 rank1"]
    assert plan.one_sided == ("step0 rank1 is in the target only",)


def test_steps_and_ranks_of_what_has_none(tmp_path: Path) -> None:
    target, golden = dump(tmp_path / "a" / "rank0"), dump(tmp_path / "b" / "rank0")
    with pytest.raises(UsageError, match=r"--step picks steps of a dump root, and .* is a step directory"):
        make_plan(tmp_path / "a", tmp_path / "b", frozenset({0}))
    with pytest.raises(UsageError, match=r"--rank picks ranks of a dump root or a step directory, and .* is a dump file"):
        make_plan(target, golden, None, frozenset({0}))
