"""torch.split and torch.chunk behind a fused projection: the pieces are compared with what the golden run has of them."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from msprobe.comparison.compare import compare  # noqa: E402

from ..dumps import read_csv  # noqa: E402
from .fused_net import build, mapped, recorded  # noqa: E402


def sgd(parameters: object) -> object:
    return torch.optim.SGD(parameters, lr=0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_pieces_are_the_parts(tmp_path: Path, task: str) -> None:
    target, golden = (recorded(tmp_path / side, build(side == "t"), sgd, task=task, risk_level="ALL") for side in "tg")  # type: ignore[arg-type]
    (report,) = compare(target, golden, tmp_path / "o", mapped(tmp_path)).reports
    assert report.csv is not None
    rows = {row["NPU Name"]: row for row in read_csv(report.csv)}
    pieces = {
        "Torch.split.0.forward.output.1": "Module.blocks.0.k.Linear.forward.0.output.0",
        "Torch.split.1.backward.input.2": "Module.blocks.1.v.Linear.backward.0.input.0",
        "Torch.chunk.1.forward.output.0": "Module.blocks.1.gate.Linear.forward.0.output.0",
    }
    for name, partner in pieces.items():
        assert (rows[name]["Bench Name"], rows[name]["Result"]) == (partner, "pass")
    whole = rows["Torch.split.0.forward.input.0"]
    assert whole["Result"] == "pass" and whole["Bench Name"].count(";") == 2
    assert rows["Torch.split.0.backward.output.0"]["Result"] == "pass"
    said = rows["Torch.split.0.forward.input.1"]
    assert said["Result"] == "not compared" and "how the joined value is taken apart" in said["Err_message"]
    assert report.counts["unmatched"] == report.counts["error"] == 0


def test_pieces_in_another_order_are_found(tmp_path: Path) -> None:
    """A split that gives k and v in each other's place: it is named, and not the projection before it or the attention behind it."""
    wrong = build(True)
    split = torch.split

    def exchanged(value: object, width: int, dim: int) -> object:
        query, key, other = split(value, width, dim)  # type: ignore[arg-type]
        return query, other, key

    torch.split = exchanged  # type: ignore[assignment]
    try:
        target = recorded(tmp_path / "t", wrong, None, task="tensor", risk_level="ALL")
    finally:
        torch.split = split
    golden = recorded(tmp_path / "g", build(False), None, task="tensor", risk_level="ALL")
    (report,) = compare(target, golden, tmp_path / "o", mapped(tmp_path)).reports
    first = report.findings.leading
    assert first is not None and (first.call.name, first.kind) == ("Torch.split.0.forward", "output")
    assert [row.pair.target.key for row in first.rows if row.pair.target is not None] == ["output.1", "output.2"]
