"""Which checkpointed code is running."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
import torch.utils.checkpoint

from msprobe.pytorch.load.checkpoint_frames import checkpoints


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints(reentrant: bool) -> None:
    found: list[tuple[list[Any], Any]] = []

    def code(x: torch.Tensor) -> torch.Tensor:
        found.append(checkpoints(sys._getframe()))
        return x.exp().exp()

    def outer(x: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(code, x, use_reentrant=reentrant)

    assert checkpoints(sys._getframe()) == ([], None)
    x = torch.ones(2, requires_grad=True)
    first, second = outer(x), outer(x)
    (first + second).sum().backward(retain_graph=True)
    (first + second).sum().backward()
    (one, none), (other, also_none), *repeated = found
    assert (none, also_none, len(one), len(other)) == (None, None, 1, 1)
    assert one[0] is not other[0]
    assert [opened for opened, _ in repeated] == [[]] * 4
    assert [piece is one[0] for _, (piece, _) in repeated].count(True) == 2
    assert len({(id(piece), run) for _, (piece, run) in repeated}) == 4
