"""Dumps of task structure: calls without values."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe
from msprobe.comparison.outcome import PairReport
from msprobe.errors import UsageError

from .dumps import api, frame, read_csv, tensor, write_dump

A, B = "Module.a.A.forward.0", "Module.b.B.forward.0"
CALLS: dict[str, str | None] = {
    A: None,
    "Functional.linear.0.forward": A,
    "Torch.relu.0.forward": A,
    B: None,
    "Functional.linear.1.forward": B,
    "Functional.linear.1.backward": "Module.b.B.backward.0",
    "Module.b.B.backward.0": None,
}


def structure(directory: Path, calls: dict[str, str | None] = CALLS, lines: dict[str, str] | None = None, task: str = "structure") -> Path:
    stack = {name: [frame("/home/me/model.py", 3, "forward", (lines or {}).get(name, "y = f(x)"))] for name in calls if "forward" in name}
    data = {} if task == "structure" else {name: api([tensor()], [tensor()]) for name in calls}
    return write_dump(directory, data, task=task, construct=calls, stack=stack)


def report(target: Path, golden: Path, output: Path) -> PairReport:
    return compare(target, golden, output).reports[0]


def results(found: PairReport) -> dict[tuple[str, str], tuple[str, str]]:
    assert found.csv is not None
    return {(row["NPU Name"], row["Bench Name"]): (row["Result"], row["Err_message"]) for row in read_csv(found.csv)}


def test_the_same_calls(tmp_path: Path) -> None:
    outcome = compare(structure(tmp_path / "t"), structure(tmp_path / "g"), tmp_path / "o")
    assert outcome.exit_code == 0
    assert results(outcome.reports[0]) == {(name, name): ("pass", "[]") for name in CALLS}
    assert "No difference in what both sides recorded." in [line.text for line in describe(outcome)]
    assert outcome.reports[0].mode == "structure"
    assert outcome.reports[0].csv is not None
    header = outcome.reports[0].csv.read_text(encoding="utf-8").splitlines()[0]
    assert "NPU max" not in header and header.endswith("Requires_grad Consistent,Result,Err_message,NPU_Stack_Info")


def test_a_call_that_one_side_lacks(tmp_path: Path) -> None:
    fewer = {name: parent for name, parent in CALLS.items() if name != "Torch.relu.0.forward"}
    outcome = compare(structure(tmp_path / "t"), structure(tmp_path / "g", fewer), tmp_path / "o")
    assert outcome.exit_code == 1
    found = results(outcome.reports[0])
    assert found["Torch.relu.0.forward", "N/A"][0] == "unmatched"
    assert sum(word == "pass" for word, _ in found.values()) == len(fewer)
    text = [line.text for line in describe(outcome)]
    assert any(line.startswith("Calls agree; 1 row stands on one side only") for line in text)
    assert "  First call without partner: Torch.relu.0.forward, in the target only, at /home/me/model.py:3 in forward: y = f(x)" in text


def test_a_call_that_was_added_shifts_no_other(tmp_path: Path) -> None:
    more: dict[str, str | None] = {A: None, "Functional.linear.0.forward": A, "Functional.linear.1.forward": A, B: None}
    more["Functional.linear.2.forward"] = B
    fewer: dict[str, str | None] = {A: None, "Functional.linear.0.forward": A, B: None, "Functional.linear.1.forward": B}
    found = results(report(structure(tmp_path / "t", more), structure(tmp_path / "g", fewer), tmp_path / "o"))
    assert found["Functional.linear.2.forward", "Functional.linear.1.forward"] == ("pass", "[]")
    assert [names for names, (word, _) in found.items() if word == "unmatched"] == [("Functional.linear.1.forward", "N/A")]


def test_another_order_and_another_line(tmp_path: Path) -> None:
    order = [A, "Torch.relu.0.forward", "Functional.linear.0.forward", *list(CALLS)[3:]]
    target = structure(tmp_path / "t", {name: CALLS[name] for name in order}, {"Functional.linear.1.forward": "y = g(x)"})
    outcome = compare(target, structure(tmp_path / "g"), tmp_path / "o")
    found = results(outcome.reports[0])
    moved = [names[0] for names, (_, message) in found.items() if "another order" in message]
    assert len(moved) == 1 and moved[0] in ("Torch.relu.0.forward", "Functional.linear.0.forward")
    word, message = found["Functional.linear.1.forward", "Functional.linear.1.forward"]
    assert word == "warning" and "y = g(x) / /home/me/model.py:3 in forward: y = f(x)" in message
    assert outcome.exit_code == 1


def test_against_a_dump_with_values(tmp_path: Path) -> None:
    found = report(structure(tmp_path / "t"), structure(tmp_path / "g", task="statistics"), tmp_path / "o")
    assert found.counts["pass"] == len(CALLS)
    told = "the target was recorded with task structure, the golden run with task statistics"
    assert found.notes[0] == f"{told}: the calls are compared, no values"


def test_nothing_to_compare(tmp_path: Path) -> None:
    empty = write_dump(tmp_path / "t", {}, task="structure", construct={}, stack={})
    with pytest.raises(UsageError, match=r"holds no calls: neither construct.json nor stack.json beside it names any"):
        compare(empty, structure(tmp_path / "g"), tmp_path / "o")


def test_without_modules_the_stack_names_the_calls(tmp_path: Path) -> None:
    """L1 of the existing tool: construct.json is empty."""
    stack = {name: [frame("m.py", 1, "f", "x")] for name in ("Torch.a.0.forward", "Torch.b.0.forward")}
    paths = [write_dump(tmp_path / side, {}, task="structure", level="L1", construct={}, stack=stack) for side in "tg"]
    assert report(*paths, tmp_path / "o").counts["pass"] == 2
