"""Watching changes nothing: losses, gradients and parameters of two steps, bit for bit, over many nets and all levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore
NETS = ["Mlp", "Convolution", "Shared", "InPlace", "Containers", "ByHand", "WithJit", "JitWithWeights", "Split", "Half", "Dropped"]
NETS += ["Recurrent", "Tied", "Converted", "Hooked"]


@pytest.fixture(scope="module")
def answers(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_mindspore("dump/identical.py", tmp_path_factory.mktemp("identical"))


@pytest.mark.parametrize("net", NETS)
def test_training_is_the_same_to_the_bit(answers: Any, net: str) -> None:
    if "MindSpore itself" in answers[net]:
        pytest.skip(f"MindSpore cannot train it here: {answers[net]['MindSpore itself'][:200]}")
    assert answers[net] == {"L0": True, "L1": True, "mix": True}


def test_every_net_is_tried(answers: Any) -> None:
    assert list(answers) == NETS
