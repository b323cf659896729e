"""A third dump that stands for the truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ..commands import Ran, compare
from ..dumps import Json, api, read_csv, tensor, tensor_call, write_dump

COLUMNS = ["NPU Reference Err", "Bench Reference Err", "Reference Verdict"]
OUTPUT = "Torch.op.0.forward.output.0"


def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], target: float, golden: float, truth: float = 1.0) -> Ran:
    def data(value: float) -> Json:
        return {"Torch.op.0.forward": api([tensor()], [tensor(value), {"type": "int", "value": 3}])}

    paths = [write_dump(tmp_path / side, data(value), stack={}) for side, value in (("t", target), ("g", golden), ("r", truth))]
    return compare(capsys, *paths[:2], tmp_path / "out", "--reference", str(paths[2]))


@pytest.mark.parametrize(
    ("target", "golden", "verdict"),
    [
        (1.0, 1.0 + 1e-6, "both are within rounding of the truth"),
        (1.0, 1.5, "target is closer to the truth than golden"),
        (1.1, 1.5, "target is closer to the truth than golden"),
        (1.5, 1.0, "target is farther from the truth than golden"),
        (1.5, 0.5, "both are equally far from the truth"),
    ],
)
def test_verdicts(target: float, golden: float, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(tmp_path, capsys, target, golden)
    assert ran.row(OUTPUT)["Reference Verdict"] == verdict
    assert f": {verdict}" in ran.out


def test_columns_stand_behind_all_others_and_only_with_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(tmp_path, capsys, 1.5, 1.0)
    header = list(ran.rows[0])
    assert header[-3:] == COLUMNS and header[-4] == "NPU_Stack_Info"
    without = compare(capsys, tmp_path / "t" / "dump.json", tmp_path / "g" / "dump.json", tmp_path / "without")
    assert list(read_csv(without.csvs[0])[0]) == header[:-3]
    cells = [ran.row("Torch.op.0.forward.output.1")[column] for column in COLUMNS]
    assert cells == ["N/A", "N/A", "not compared with the truth"]


def test_the_conclusion_takes_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(tmp_path / "1", capsys, 1.0, 1.5)
    assert "  the reference says: target is closer to the truth than golden (target 0, golden 0." in ran.out
    assert "The reference speaks for the target: it is closer to the truth than golden in 1 rows, farther in 0" in ran.out
    assert "The reference speaks against the target" in run(tmp_path / "2", capsys, 1.5, 1.0).out
    assert "Both are within rounding of the truth" in run(tmp_path / "3", capsys, 1.0, 1.0).out


def test_tensors_in_higher_precision(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = np.linspace(0.1, 1, 50)
    sides = (("t", truth.astype(np.float32)), ("g", (truth * (1 + 1e-2)).astype(np.float32)), ("r", truth))
    paths = [tensor_call(tmp_path / side, array) for side, array in sides]
    ran = compare(capsys, *paths[:2], tmp_path / "out", "--reference", str(paths[2]))
    row = ran.row(OUTPUT)
    assert row["Reference Verdict"] == "target is closer to the truth than golden"
    assert 0 < float(row["NPU Reference Err"]) < 1e-7 and float(row["Bench Reference Err"]) == pytest.approx(1e-2, rel=0.02)


def test_steps_and_ranks_of_roots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, value in (("t", 1.0), ("g", 1.5), ("r", 1.0)):
        for step in (0, 1):
            write_dump(tmp_path / side / f"step{step}" / "rank0", {"Torch.op.0.forward": api([tensor()], [tensor(value)])})
    ran = compare(capsys, tmp_path / "t", tmp_path / "g", tmp_path / "out", "--reference", str(tmp_path / "r"))
    assert [row["Reference Verdict"] for row in ran.rows].count("target is closer to the truth than golden") == 2


def test_a_reference_that_lacks_a_rank_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, ranks in (("t", (0, 1)), ("g", (0, 1)), ("r", (0,))):
        for rank in ranks:
            write_dump(tmp_path / side / f"rank{rank}", {"Torch.op.0.forward": api([], [tensor()])})
    ran = compare(capsys, tmp_path / "t", tmp_path / "g", tmp_path / "out", "--reference", str(tmp_path / "r"))
    assert ran.code == 2 and "has no dump of rank1" in ran.err
    ran = compare(capsys, tmp_path / "t", tmp_path / "g", tmp_path / "out", "--reference", str(tmp_path / "nowhere"))
    assert ran.code == 2 and "does not exist" in ran.err
