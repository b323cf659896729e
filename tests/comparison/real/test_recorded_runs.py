"""Runs that were recorded by processes of their own: two ranks that communicate, and one script several times."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import msprobe
import warm_python
from msprobe.comparison.repeated.runs import compare_runs
from msprobe.comparison.repeated.words import sentence

pytest.importorskip("torch")
HERE = Path(__file__).parent


def record(script: str, *arguments: object) -> None:
    source = str(HERE.parents[2] / "src")
    environment = os.environ | {"PYTHONPATH": source, "MSPROBE_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
    command = [*warm_python.command(), str(HERE / script), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_difference_of_one_rank_that_all_receive(tmp_path: Path) -> None:
    for name, factor in (("good", 1.0), ("bad", 1.5)):
        record("recording_ranks.py", tmp_path / name, factor)
    found = msprobe.compare(tmp_path / "bad", tmp_path / "good")
    first = found.first_difference
    assert first is not None
    assert (first.call, first.kind, first.step, first.rank) == ("Torch.mul.0.forward", "argument", 1, 1)
    assert first.file == str(HERE / "recording_ranks.py")
    other = next(report for report in found.outcome.reports if report.pair.title == "step1 rank0")
    assert other.findings.first is not None and other.findings.first.call.name == "Distributed.all_reduce.0.forward"
    assert msprobe.compare(tmp_path / "bad", tmp_path / "good", steps=0).passed


def test_a_dropout_that_nobody_seeded(tmp_path: Path) -> None:
    for name in "abc":
        record("recording_dropout.py", tmp_path / name)
    runs = compare_runs([tmp_path / name for name in "abc"])
    first = runs.units[0].first
    assert first is not None and first.call.name == "Functional.dropout.0.forward"
    assert "draws random numbers" in sentence(first)
    assert first.frame is not None and first.frame.path == str(HERE / "recording_dropout.py")
