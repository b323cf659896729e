"""Which calls draw random numbers, by their names; with their arguments: test_headline.py."""

from __future__ import annotations

import pytest

from msprobe.comparison.names import parse
from msprobe.comparison.random_calls import draws_random_numbers


@pytest.mark.parametrize(
    ("name", "random"), [("Torch.randn.0.forward", True), ("Tensor.uniform_.0.forward", True), ("Functional.dropout.0.backward", False)]
)
def test_random(name: str, random: bool) -> None:
    assert draws_random_numbers(parse(name)) is random
