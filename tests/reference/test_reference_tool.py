"""The reference tool, run as a black box: it compares our dumps, and we compare its.

Needs its interpreter in MSPROBE_REFERENCE_PYTHON; skipped without it.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from msprobe.comparison.compare import compare
from msprobe.format import layout

THEIRS = os.environ.get("MSPROBE_REFERENCE_PYTHON", "")
pytestmark = [
    pytest.mark.reference,
    pytest.mark.skipif(not THEIRS, reason="MSPROBE_REFERENCE_PYTHON does not name the interpreter of the reference tool"),
]
TRAINING = Path(__file__).with_name("training.py")
SOURCE = Path(__file__).parents[2] / "src"


def record(python: str, path: Path, task: str, level: str, gain: float = 1.0) -> Path:
    """Record with the tool that `python` has; gives the first step's directory."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if python == sys.executable:
        environment["PYTHONPATH"] = str(SOURCE)
    done = subprocess.run([python, str(TRAINING), str(path), task, level, str(gain)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return path / "step0"


def compare_with_theirs(target: Path, golden: Path, output: Path) -> list[dict[str, str]]:
    tool = Path(THEIRS).with_name("msprobe")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(tool), "compare", "-tp", str(target), "-gp", str(golden), "-o", str(output)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = output.glob("compare_result*.csv")
    with open(result, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A directory whose name the reference tool accepts."""
    path = tmp_path / "d"
    path.mkdir()
    return path


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_it_compares_our_dumps(plain: Path, task: str, level: str) -> None:
    good = record(sys.executable, plain / "good", task, level)
    bad = record(sys.executable, plain / "bad", task, level, gain=3.0)
    same = compare_with_theirs(good, good, plain / "same")
    assert len(same) > 30 and {row["Result"] for row in same} == {"pass"}
    different = compare_with_theirs(bad, good, plain / "different")
    assert len(different) == len(same)
    assert Counter(row["Result"] for row in different)["pass"] < len(different)


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_we_compare_its_dumps(plain: Path, task: str, level: str) -> None:
    good = record(THEIRS, plain / "good", task, level)
    bad = record(THEIRS, plain / "bad", task, level, gain=3.0)
    assert compare(good, good, plain / "same").exit_code == 0
    outcome = compare(bad, good, plain / "different")
    assert outcome.exit_code == 1
    first = outcome.reports[0].findings.first
    assert first is not None and first.call.name.startswith("Module.blocks.0." if level == "L0" else "Tensor.__mul__")


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_dump_of_each_tool_line_up(plain: Path, level: str) -> None:
    """Every forward row of theirs has a partner in ours and agrees, but for what their notes call faults."""
    theirs = record(THEIRS, plain / "theirs", "tensor", level)
    ours = record(sys.executable, plain / "ours", "tensor", level)
    outcome = compare(ours, theirs, plain / "out")
    (report,) = outcome.reports
    with open(report.csv, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    forward = [row for row in rows if ".forward" in (row["NPU Name"] + row["Bench Name"]) and row["Bench Name"] != "N/A"]
    assert len(forward) > 20
    assert [row["Bench Name"] for row in forward if row["NPU Name"] == "N/A"] == []
    assert {row["MaxAbsErr"] for row in forward} <= {"0", "0.0", "unsupported", "N/A"}  # both tools saved the same bits
    assert (ours / f"proc{next(iter(layout.procs(ours)))}" / layout.DUMP).is_file()
