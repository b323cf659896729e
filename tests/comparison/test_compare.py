"""What a comparison notes beside its rows."""

from __future__ import annotations

from pathlib import Path

from msprobe.comparison.compare import compare

from .net import Net


def test_damaged_construct_json_is_noted(tmp_path: Path) -> None:
    for side in "tg":
        Net().write(tmp_path / side)
    (tmp_path / "g" / "construct.json").write_text("{")
    report = compare(tmp_path / "t", tmp_path / "g", tmp_path / "o").reports[0]
    (note,) = report.notes
    assert note.startswith(f"{tmp_path}/g/construct.json is cut off") and note.endswith(": modules around calls cannot be named")
