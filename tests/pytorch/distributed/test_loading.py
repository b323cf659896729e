"""load over two ranks: each loads its own data, the gradient is reduced as ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import tensors
from ranks import run_ranks, step_of


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    directory = tmp_path_factory.mktemp("loading")
    return directory, run_ranks("loading_ranks.py", 2, directory)


def seen(outcomes: list[Any], name: str) -> list[list[Any]]:
    """By rank, by step: what the module was called with."""
    return [[step["seen"] for step in outcome[name]] for outcome in outcomes]


def test_each_rank_and_step_has_its_own_data(outcomes: tuple[Path, list[Any]]) -> None:
    golden = seen(outcomes[1], "golden")
    assert len({str(each) for rank in golden for each in rank}) == 4
    assert seen(outcomes[1], "aligned") == golden


def test_the_gradient_is_that_of_all_ranks(outcomes: tuple[Path, list[Any]]) -> None:
    directory, ranks = outcomes
    for step in range(2):
        parts = []
        for rank in ranks:
            values, x = (torch.tensor(rank["aligned"][step][key]) for key in ("seen", "x"))
            parts.append((1 - values.tanh() ** 2).t() @ x)
        for number, rank in enumerate(ranks):
            torch.testing.assert_close(torch.tensor(rank["aligned"][step]["gradient"]), sum(parts) / 2)
            data = step_of(directory / "aligned", step, number).data
            assert list(tensors(data["Module.module.0.Linear.backward.0"]["input"]))
            (record,) = data["Module.module.1.Tanh.forward.0"]["input_args"]
            assert record["Max"] == max(rank["aligned"][step]["seen"][0])


def test_only_some_ranks(outcomes: tuple[Path, list[Any]]) -> None:
    golden, found = seen(outcomes[1], "golden"), seen(outcomes[1], "one rank")
    assert found[1] == golden[1]
    assert all(one != other for one, other in zip(found[0], golden[0], strict=True))


def test_one_rank_for_all(outcomes: tuple[Path, list[Any]]) -> None:
    golden = seen(outcomes[1], "golden")
    assert seen(outcomes[1], "from rank 1") == [golden[1], golden[1]]


def test_one_step_for_all(outcomes: tuple[Path, list[Any]]) -> None:
    golden = seen(outcomes[1], "golden")
    assert seen(outcomes[1], "from step 1") == [[rank[1], rank[1]] for rank in golden]


def test_only_some_steps(outcomes: tuple[Path, list[Any]]) -> None:
    golden, found = seen(outcomes[1], "golden"), seen(outcomes[1], "one step")
    assert [rank[1] for rank in found] == [rank[1] for rank in golden]
    assert all(one[0] != other[0] for one, other in zip(found, golden, strict=True))
