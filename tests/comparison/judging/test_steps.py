"""An optimizer's step on gradients that are nothing but rounding."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.optim import AdamW  # noqa: E402

from msprobe.comparison.compare import compare  # noqa: E402

from ..mapping.fused_net import build, mapped, recorded  # noqa: E402


@pytest.mark.parametrize("foreach", [False, True])
def test_the_bias_of_a_key_has_no_gradient_and_moves_all_the_same(tmp_path: Path, foreach: bool) -> None:
    """Attention does not depend on it: Adam divides rounding by rounding."""
    paths = [
        recorded(tmp_path / side, build(side == "t", bias=True), lambda given: AdamW(given, lr=1e-2, foreach=foreach), task="tensor")
        for side in "tg"
    ]
    outcome = compare(*paths, tmp_path / "o", mapped(tmp_path))
    assert outcome.exit_code == 0 and outcome.reports[0].counts["warning"] == 0


def test_another_eps_is_no_rounding(tmp_path: Path) -> None:
    paths = [
        recorded(tmp_path / side, build(side == "t", bias=True), lambda given, eps=eps: AdamW(given, lr=1e-2, eps=eps), task="tensor")
        for side, eps in (("t", 1e-8), ("g", 1e-5))
    ]
    outcome = compare(*paths, tmp_path / "o", mapped(tmp_path))
    assert outcome.exit_code == 1 and outcome.reports[0].counts["error"] > 0
