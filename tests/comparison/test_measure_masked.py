"""Masks with another fill value on each side in a tensor dump: the positions and the other elements count."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msprobe.comparison import measure_masked
from msprobe.comparison.inputs import DumpPair
from msprobe.comparison.judge import FILL_ELSEWHERE, FILL_OF_ELEMENTS
from msprobe.comparison.one_pair import examine

from .dumps import tensor_call

LOWEST = float(np.finfo(np.float32).min)
HALF = -65504.0
ABOVE = np.triu(np.ones((6, 6), bool), 1)
SCORES = np.random.default_rng(0).normal(size=(6, 6)).clip(-2, 2)
SCORES[5, 0] = 3.0


def masked(values: Any, where: Any, fill: float, dtype: Any = np.float32) -> Any:
    return np.where(where, fill, values).astype(dtype)


def verdict(tmp_path: Path, target: Any, golden: Any) -> tuple[str, tuple[str, ...]]:
    """Result and messages of the one output."""
    sides = [tensor_call(tmp_path / side, array) for side, array in (("target", target), ("golden", golden))]
    found = examine(DumpPair(*sides, None, ""))
    return found.verdicts[0][-1]


@pytest.mark.parametrize("piece", [7, 1 << 18])
@pytest.mark.parametrize(("ours", "theirs"), [(-math.inf, LOWEST), (LOWEST, -math.inf), (HALF, LOWEST), (-math.inf, HALF)])
def test_the_same_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: float, theirs: float, piece: int) -> None:
    monkeypatch.setattr(measure_masked, "_PIECE", piece)
    rounded = SCORES * (1 + 1e-7)
    assert verdict(tmp_path, masked(rounded, ABOVE, ours), masked(SCORES, ABOVE, theirs)) == ("warning", (FILL_OF_ELEMENTS,))


@pytest.mark.parametrize("piece", [7, 1 << 18])
@pytest.mark.parametrize("where", [ABOVE.T, np.triu(np.ones((6, 6), bool), 2)])
def test_other_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, piece: int) -> None:
    monkeypatch.setattr(measure_masked, "_PIECE", piece)
    word, messages = verdict(tmp_path, masked(0 * SCORES, where, -math.inf), masked(0 * SCORES, ABOVE, LOWEST))
    assert word == "error" and FILL_ELSEWHERE in messages


def test_other_values_below_the_same_maximum(tmp_path: Path) -> None:
    negated = -SCORES
    negated[5, 0] = SCORES[5, 0]
    word, messages = verdict(tmp_path, masked(negated, ABOVE, -math.inf), masked(SCORES, ABOVE, LOWEST))
    assert word == "error" and FILL_OF_ELEMENTS in messages


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_on_one_side_only(tmp_path: Path, value: float) -> None:
    odd = SCORES.copy()
    odd[4, 0] = value
    word, _ = verdict(tmp_path, masked(odd, ABOVE, -math.inf), masked(SCORES, ABOVE, LOWEST))
    assert word == "error"


def test_two_dtypes(tmp_path: Path) -> None:
    """Each fills with the lowest number of its own; the error is that of the coarser."""
    target, golden = masked(SCORES, ABOVE, HALF, np.float16), masked(SCORES, ABOVE, LOWEST)
    word, messages = verdict(tmp_path, target, golden)
    assert word == "error" and FILL_OF_ELEMENTS in messages and not any("output differs" in text for text in messages)  # the dtypes differ
