"""A cell's gradients are those of the cell alone: recorded in a net, and computed again from what it took in and what its outputs got."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.mindspore
NETS = ["Blocks", "Scaled", "States", "Outputs", "Attention", "Hooked"]


@pytest.fixture(scope="module")
def answers(run_mindspore: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_mindspore("dump/own_gradients.py", tmp_path_factory.mktemp("own_gradients"))


def test_every_net_is_tried(answers: Any) -> None:
    assert list(answers) == [name for net in NETS for name in (net, f"{net}_input")]


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("asks", ["", "_input"])
def test_gradients_are_those_of_the_cell_alone(answers: Any, net: str, asks: str) -> None:
    found = [far for entry in answers[net + asks]["far"].values() for far in entry if far is not None]
    assert found
    assert max(found) < 1e-5


@pytest.mark.parametrize(("net", "cell"), [("Blocks", "first"), ("Scaled", "block")])
def test_part_of_a_gradient_that_nobody_asks_for_is_not_shown_as_one(answers: Any, net: str, cell: str) -> None:
    """The kernel of the normalisation gives a gradient always, the sum beside it does not."""
    entry = f"Cell.{cell}.Residual.backward.0"
    assert answers[net]["far"][entry] == [None]
    (told,) = answers[net]["unread"].items()
    assert "only a part of it was computed" in told[0]
    assert told[1] == {"output.0": [entry]}
    assert answers[f"{net}_input"]["far"][entry] != [None]
    assert not answers[f"{net}_input"]["unread"]


def test_a_cell_with_a_call_of_its_own_is_one_call(answers: Any) -> None:
    entries = [name for name in answers["Attention"]["entries"] if name.startswith("Cell.attention.")]
    assert [name for name in entries if "MultiheadAttention" in name] == [
        "Cell.attention.MultiheadAttention.forward.0",
        "Cell.attention.MultiheadAttention.backward.0",
        "Cell.attention.MultiheadAttention.parameters_grad.0",
    ]


def test_what_carries_the_users_hooks_is_no_call(answers: Any) -> None:
    assert {"Cell.out.Dense.backward.0", "Cell.first.Dense.forward.0"} <= set(answers["Hooked"]["entries"])
    assert not [name for name in answers["Hooked"]["entries"] if "Hook" in name]
