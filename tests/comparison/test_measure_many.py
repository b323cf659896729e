"""What is measured as one array is, to the last bit and letter, what is measured row by row."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comparison.dumps import api, statistics, tensor
from msprobe.comparison import measure_many
from msprobe.comparison.match import match
from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.measure_statistics import StatisticsMeasurer
from msprobe.comparison.rows import Builder, calls_of

_INSTEAD = Measure(("N/A",) * 8, Agreement.UNKNOWN)
NUMBER = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.5, 1e308, -1e308, 1e-308, 5e-324, 1e-300, 1e-5, 3e-5, math.nan, math.inf, -math.inf]),
    st.floats(),
)
PAIR = st.one_of(st.tuples(NUMBER, NUMBER), NUMBER.map(lambda x: (x, x)), st.floats(-10, 10).map(lambda x: (x, x * (1 + 1e-7))))
ROW = st.tuples(PAIR, PAIR, PAIR, PAIR, st.sampled_from([(), (2, 3)]), st.sampled_from(["float32", "bfloat16"]))


def measured(ours: list[Any], theirs: list[Any], monkeypatch: pytest.MonkeyPatch, array_from: int) -> list[Measure | None]:
    monkeypatch.setattr(measure_many, "_ARRAY_FROM", array_from)
    sides = [calls_of({"Torch.a.0.forward": api(side, [])}, "") for side in (ours, theirs)]
    calls = measure_many.measure_calls(match(*sides), StatisticsMeasurer(), (), _INSTEAD)
    return [row.measure for row in calls[0].rows]


@settings(max_examples=300, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=20))
def test_as_one_by_one(rows: list[Any]) -> None:
    ours, theirs = [], []
    for *pairs, shape, dtype in rows:
        ours.append(statistics(*(pair[0] for pair in pairs), shape=list(shape)))
        theirs.append(statistics(*(pair[1] for pair in pairs), shape=list(shape), dtype=f"torch.{dtype}"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert repr(measured(ours, theirs, monkeypatch, 1)) == repr(measured(ours, theirs, monkeypatch, 10**9))


def test_values_of_all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [tensor(1.0), None, 3, 3.5, "cpu", "x", True, statistics(1, 2, 1.5, 2.5), statistics(None, None, None, None), [1, 2], math.nan]
    others = [tensor(2.0), 1, 4, 3.5, "cuda:0", "x", 1, statistics(1, 3, 1.5, 2.5), statistics(1.0, None, None, None), [1.0, 2], math.nan]
    assert repr(measured(kinds, others, monkeypatch, 1)) == repr(measured(kinds, others, monkeypatch, 10**9))
    assert repr(measured(kinds, kinds, monkeypatch, 1)) == repr(measured(kinds, kinds, monkeypatch, 10**9))


def test_shared_rows_are_equal() -> None:
    data = {"Torch.a.0.forward": api([tensor(1.0), 2], [tensor(3.0)])}
    first = calls_of(data, "")
    second = Builder("", {call.name: call for call in first}).calls(data)
    shared = measure_many.measure_calls(match(first, second), StatisticsMeasurer(), (), _INSTEAD)
    apart = measure_many.measure_calls(match(first, calls_of(data, "")), StatisticsMeasurer(), (), _INSTEAD)
    assert shared == apart


def test_outputs_that_stand_elsewhere() -> None:
    sides = [calls_of({"Torch.a.0.backward": {"input": [tensor(1.0)], "output": [tensor(value)]}}, "") for value in (1.0, 2.0)]
    calls = measure_many.measure_calls(match(*sides), StatisticsMeasurer(), {"Torch.a.0.backward"}, _INSTEAD)
    assert [row.measure is _INSTEAD for row in calls[0].rows] == [False, True]
