from __future__ import annotations

import math

import pytest

from msprobe.isolation.halving import at_most, smallest


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 24, 100])
def test_the_smallest_is_found_in_time(count: int) -> None:
    for wanted in range(1, count + 1):
        asked: list[int] = []

        def holds(k: int, wanted: int = wanted, asked: list[int] = asked) -> bool:
            asked.append(k)
            return k >= wanted

        assert smallest(count, holds) == wanted
        assert len(asked) + 2 <= at_most(count) == math.ceil(math.log2(count)) + 2
        assert not {0, count} & set(asked)
