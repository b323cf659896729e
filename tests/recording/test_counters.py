from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msprobe.recording.counters import Counters


def test_each_name_counts_from_zero() -> None:
    counters = Counters()
    assert [counters.take(name) for name in ("a", "a", "b", "a", "b")] == [0, 1, 0, 2, 1]


def test_peeking_takes_nothing() -> None:
    counters = Counters()
    assert counters.peek("a") == counters.peek("a") == 0
    counters.take("a")
    assert counters.peek("a") == 1 and counters.take("a") == 1


def test_a_number_given_back_is_the_next_one() -> None:
    counters = Counters()
    number = counters.take("a")
    assert counters.give_back("a", number)
    assert counters.take("a") == number


def test_only_the_last_number_can_be_given_back() -> None:
    counters = Counters()
    first = counters.take("a")
    counters.take("a")
    assert not counters.give_back("a", first)
    assert counters.take("a") == 2
    assert not counters.give_back("never taken", 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_no_two_calls_that_count_have_one_number(calls: list[tuple[str, bool]]) -> None:
    """A call that fails at once gives its number back; those that stay have 0, 1, 2 … each."""
    counters = Counters()
    kept: dict[str, list[int]] = {}
    for name, fails in calls:
        number = counters.take(name)
        if fails:
            assert counters.give_back(name, number)
        else:
            kept.setdefault(name, []).append(number)
    assert all(numbers == list(range(len(numbers))) for numbers in kept.values())
