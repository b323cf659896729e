from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from msprobe.config.values import LARGEST_ID, nearest, one_of, parse_ids

ids = st.integers(0, LARGEST_ID)
spaces = st.text(" \t", max_size=3)

NOT_A_NUMBER = 'must be a whole number such as 3, or a range such as "4-6"'
NOT_IN_BOUNDS = "must be from 0 to 1000000"


def reason(value: object) -> str:
    with pytest.raises(PydanticCustomError) as caught:
        parse_ids(value)
    return caught.value.message()


@given(ids)
def test_a_number_is_itself(number: int) -> None:
    assert list(parse_ids(number)) == list(parse_ids(str(number))) == [number]


@given(ids, ids, spaces, spaces, spaces, spaces)
def test_a_range_holds_both_ends_and_only_runs_upwards(first: int, last: int, a: str, b: str, c: str, d: str) -> None:
    text = f"{a}{first}{b}-{c}{last}{d}"
    if first <= last:
        assert parse_ids(text) == range(first, last + 1)
    else:
        assert reason(text) == f'the range is reversed, write "{last}-{first}"'


@given(st.integers().filter(lambda number: not 0 <= number <= LARGEST_ID))
def test_numbers_out_of_bounds(number: int) -> None:
    assert reason(number) == NOT_IN_BOUNDS
    assert reason(str(number)) == (NOT_IN_BOUNDS if number > 0 else NOT_A_NUMBER)


@given(st.text())
def test_any_text_gives_a_range_or_an_error_of_ours(text: str) -> None:
    try:
        found = parse_ids(text)
    except PydanticCustomError:
        return
    assert 0 <= found.start < found.stop <= LARGEST_ID + 1


@pytest.mark.parametrize("value", [True, False, None, 1.0, 1.5, [1], {}])
def test_not_a_number(value: object) -> None:
    assert reason(value) == NOT_A_NUMBER


@pytest.mark.parametrize("value", ["", "-", "-1", "4-", "1-2-3", "a", "1,2", "0x1", "１", "1_0", "+1", "1.0"])
def test_text_that_is_not_a_range(value: str) -> None:
    assert reason(value) == NOT_A_NUMBER


@pytest.mark.parametrize("value", ["0-5000000", "5000000-0", "9" * 5000, "1-" + "9" * 5000])
def test_ranges_out_of_bounds(value: str) -> None:
    assert reason(value) == NOT_IN_BOUNDS


def test_leading_zeros_are_harmless() -> None:
    assert parse_ids("007-0000000000010") == range(7, 11)
    assert parse_ids("000") == range(1)


def test_nearest() -> None:
    assert nearest("summry_mode", ("scope", "summary_mode")) == "summary_mode"
    assert nearest("LISTS", ("scope", "list")) == "list"
    assert nearest("xyz", ("scope", "list")) is None


def test_one_of() -> None:
    assert one_of(("a",)) == '"a"'
    assert one_of(("a", "b", "c")) == '"a", "b" or "c"'
