"""Recordings beside those that are compared: nothing is left out in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe
from msprobe.comparison.inputs import make_plan
from msprobe.comparison.options import Options
from msprobe.comparison.repeated import words
from msprobe.comparison.repeated.runs import compare_runs

from .dumps import api, tensor, write_dump

DATA = {"Torch.a.0.forward": api([tensor()], [tensor(2.0)])}
NAMES = "not that of a step, a rank or a process (step0, rank0, proc123); name it to compare it"


def roots(directory: Path, *more: str) -> tuple[Path, Path]:
    """Two roots of one step and one rank; the target has `more` dumps."""
    for name in ("t/step0/rank0", "g/step0/rank0", *(f"t/{name}" for name in more)):
        write_dump(directory / name, DATA)
    return directory / "t", directory / "g"


@pytest.mark.parametrize(
    ("dump", "named"),
    [
        ("step01/rank0", "step01"),
        ("stepfoo/rank0", "stepfoo"),
        ("step0_old/proc7", "step0_old"),
        ("step-1", "step-1"),
        ("step0/rank00", "step0/rank00"),
        ("step0/rankx", "step0/rankx"),
        ("step0/rank0.bak", "step0/rank0.bak"),
        ("step0/proc", "step0/proc"),
    ],
)
def test_a_directory_that_is_nearly_called_as_ours(dump: str, named: str, tmp_path: Path) -> None:
    outcome = compare(*roots(tmp_path, dump), tmp_path / "o")
    note = f"{tmp_path}/t/{named} holds a dump and is left out: its name is {NAMES}"
    assert outcome.plan.notes == (note,) and outcome.exit_code == 0
    assert f"note: {note}" in [line.text for line in describe(outcome)]


def test_what_holds_no_dump_or_has_another_name_is_nobodys_business(tmp_path: Path) -> None:
    target, golden = roots(tmp_path, "notes/rank0", "step0/old")
    for name in ("step_pictures", "step0/rank_pictures", "stepfoo/rank0"):
        (target / name).mkdir(parents=True)
    assert make_plan(target, golden).notes == ()


def test_of_many_some_are_named(tmp_path: Path) -> None:
    target, golden = roots(tmp_path, *(f"step0/rank0_{letter}" for letter in "abcde"))
    (note,) = make_plan(target / "step0", golden / "step0").notes
    shown = ", ".join(f"{target}/step0/rank0_{letter}" for letter in "abc")
    assert note.startswith(f"{shown} and 2 more hold dumps and are left out: their names are not that of")


def test_who_picks_knows_what_else_there_is(tmp_path: Path) -> None:
    target, golden = roots(tmp_path, "step01/rank0", "step0/rankx", "step0/proc7")
    assert len(make_plan(target, golden).notes) == 2
    assert make_plan(target, golden, frozenset({0}), frozenset({0})).notes == ()


def test_processes_beside_ranks(tmp_path: Path) -> None:
    target, golden = roots(tmp_path, "step0/proc7")
    (target / "step0" / "proc8").mkdir()
    outcome = compare(target, golden, tmp_path / "o")
    assert outcome.plan.notes == (
        f"{target}/step0/proc7 lies beside rank* and is left out: such a process prepares data; name one to compare it",
    )
    assert [pair.label for pair in outcome.plan.pairs] == ["rank0"] and outcome.exit_code == 0
    (golden / "step0" / "rank0").rename(golden / "step0" / "proc9")
    assert [pair.golden.parent.name for pair in make_plan(target, golden).pairs] == ["proc9"]


def test_a_second_process_of_a_rank_is_named_with_what_it_can_be_compared_with(tmp_path: Path) -> None:
    target, golden = roots(tmp_path, "step0/rank0.proc12")
    note = f"{target}/step0/rank0.proc12 was not compared; to compare it, name it and a directory of the other side"
    assert make_plan(target, golden).notes == (f"{note}, such as {golden}/step0/rank0",)
    write_dump(target / "step0" / "rank1", DATA)
    (golden / "step0" / "rank0").rename(golden / "step0" / "rank1")
    assert make_plan(target, golden).notes == (note,)


def test_the_page_has_it(tmp_path: Path) -> None:
    outcome = compare(*roots(tmp_path, "step0/rankx"), tmp_path / "o", Options(reports=frozenset({"html"})))
    assert outcome.html is not None and f"step0/rankx holds a dump and is left out: its name is {NAMES}" in outcome.html.read_text()


def test_several_runs(tmp_path: Path) -> None:
    runs = compare_runs(roots(tmp_path, "step0/rankx"))
    note = f"{tmp_path}/t/step0/rankx holds a dump and is left out: its name is {NAMES}"
    assert runs.notes == (note,) and runs.exit_code == 0
    assert f"note: {note}" in [line.text for line in words.describe(runs, ())]
