"""What two runs were made with is said where it differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe
from msprobe.comparison.surroundings import differing

from .dumps import api, tensor, write_dump

ALIKE = {
    "torch": "2.13.0",
    "python": "3.11.7",
    "cuda": None,
    "device": "cpu",
    "threads": 2,
    "deterministic_algorithms": False,
    "pid": 1,
    "step": 0,
}


def made_with(directory: Path, meta: Any) -> Path:
    dump = Path(write_dump(directory, {"Torch.exp.0.forward": api([tensor()], [tensor()])}))
    dump = dump if dump.suffix == ".json" else dump / "dump.json"
    (dump.parent / "meta.json").write_text(meta if isinstance(meta, str) else json.dumps(meta), encoding="utf-8")
    return dump


@pytest.mark.parametrize(
    ("golden", "said"),
    [
        ({}, None),
        ({"pid": 2, "torch_seed": 3}, None),
        ({"step": None}, None),
        ({"step": 1}, "the target is step 0 of its run, the golden dump step 1: other data, and other weights where it trains"),
        ({"torch": "2.6.0"}, "the target was made with torch 2.13.0; the golden run with torch 2.6.0"),
        ({"device": "H200", "cuda": "13.0"}, "the target was made with CUDA none, device cpu; the golden run with CUDA 13.0, device H200"),
        (
            {"threads": 1, "deterministic_algorithms": True},
            "the target was made with 2 threads, deterministic algorithms off; the golden run with 1 threads, deterministic algorithms on",
        ),
    ],
)
def test_what_differs_is_said(tmp_path: Path, golden: dict[str, Any], said: str | None) -> None:
    paths = made_with(tmp_path / "t", ALIKE), made_with(tmp_path / "g", {**ALIKE, **golden})
    assert differing(*paths) == ([said] if said else [])
    assert said is None or f"note: {said}" in [line.text for line in describe(compare(*paths, tmp_path / "o"))]


@pytest.mark.parametrize("golden", ["{", "[]", {"mindspore": "2.10.0", "python": "3.11.7"}])
def test_what_one_side_does_not_tell_is_not_compared(tmp_path: Path, golden: Any) -> None:
    assert differing(made_with(tmp_path / "t", ALIKE), made_with(tmp_path / "g", golden)) == []


def test_no_meta_json(tmp_path: Path) -> None:
    ours = made_with(tmp_path / "t", ALIKE)
    theirs = made_with(tmp_path / "g", ALIKE)
    (theirs.parent / "meta.json").unlink()
    assert differing(ours, theirs) == []
