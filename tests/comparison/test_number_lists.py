"""`0,2-3` and what is no such list."""

from __future__ import annotations

import pytest

from msprobe.comparison.number_lists import parse_numbers
from msprobe.errors import UsageError


@pytest.mark.parametrize(
    ("given", "numbers"),
    [("0", {0}), ("0,2-3", {0, 2, 3}), (" 1 , 1-2 ", {1, 2}), (3, {3}), ([0, "2-3"], {0, 2, 3}), ("5-5", {5})],
)
def test_lists(given: object, numbers: set[int]) -> None:
    assert parse_numbers(given, "--rank") == numbers  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "'' is no number"),
        ("a", "'a' is no number"),
        ("1,,2", "'' is no number"),
        ("-1", "'-1' is no number"),
        ("3-1", "the range 3-1 runs downwards; write 1-3"),
        ("0-1000001", "larger than 1000000"),
        ("1.5", "'1.5' is no number"),
        ("٣", "is no number"),
        ([], "at least one"),
    ],
)
def test_wrong_ones_name_the_option_and_the_part(given: object, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_numbers(given, "--rank")  # type: ignore[arg-type]
    assert "--rank" in str(caught.value)
    assert words in str(caught.value)
