"""What a comparison notes beside its rows."""

from __future__ import annotations

import gc
from pathlib import Path

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe

from .dumps import api, tensor, write_dump
from .net import Net


def test_damaged_construct_json_is_noted(tmp_path: Path) -> None:
    for side in "tg":
        Net().write(tmp_path / side)
    (tmp_path / "g" / "construct.json").write_text("{")
    report = compare(tmp_path / "t", tmp_path / "g", tmp_path / "o").reports[0]
    (note,) = report.notes
    assert note.startswith(f"{tmp_path}/g/construct.json is cut off") and note.endswith(": modules around calls cannot be named")


def test_the_last_comparison_of_a_process_keeps_its_rows(tmp_path: Path) -> None:
    """The result is the same; only that nothing is freed before the process ends."""
    target, golden = (write_dump(tmp_path / f"{x}", {"Torch.a.0.forward": api([tensor(1.0)], [tensor(x)])}) for x in (1.0, 2.0))
    usual = compare(target, golden, tmp_path / "usual")
    before = gc.get_freeze_count()
    try:
        last = compare(target, golden, tmp_path / "last", last=True)
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
    for one, other in zip(usual.reports, last.reports, strict=True):
        assert one.csv is not None and other.csv is not None
        assert one.csv.read_text() == other.csv.read_text()
        assert one.counts == other.counts
    assert next(iter(describe(usual))) == next(iter(describe(last)))
