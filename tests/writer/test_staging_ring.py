"""Memory that is used again and again."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe.writer.staging_ring import Place, StagingRing


@given(st.lists(st.one_of(st.integers(1, 60), st.integers(-3, 0)), max_size=120))
def test_no_two_places_share_memory(moves: list[int]) -> None:
    """Positive: a place of that size is taken; others: one of the oldest is given back."""
    ring = StagingRing(100)
    held: list[tuple[int, Place]] = []
    for mark, move in enumerate(moves):
        if move > 0:
            place = ring.take(move)
            if place is not None:
                assert len(place.memory) == move
                place.memory[:] = bytes([mark % 251]) * move
                held.append((mark, place))
                del place
        elif held:
            held.pop(min(-move, len(held) - 1))
        for other, place in held:
            assert place.memory == bytes([other % 251]) * len(place.memory)
        place = None
    assert sum(len(place.memory) for _, place in held) <= 100
    held.clear()
    assert ring.take(100) is not None


def test_in_order_all_of_it_is_used() -> None:
    ring = StagingRing(100)
    first, second = ring.take(60), ring.take(40)
    assert first is not None and second is not None
    assert ring.take(1) is None
    del first
    third = ring.take(60)
    assert third is not None
    assert ring.take(1) is None
    del second
    assert ring.take(41) is None
    assert ring.take(40) is not None


def test_what_is_larger_has_no_place() -> None:
    ring = StagingRing(100)
    assert ring.take(101) is None
    assert StagingRing(0).take(1) is None


def test_without_memory_there_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("mmap.mmap", refuse)
    ring = StagingRing(100)
    assert ring.take(10) is None
    monkeypatch.undo()
    assert ring.take(10) is not None


def test_a_place_that_an_interruption_took_is_free() -> None:
    ring = StagingRing(100)
    try:
        place = ring.take(100)
        assert place is not None
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        place = None
    gc.collect()
    assert ring.take(100) is not None
