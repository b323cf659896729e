"""What is measured in C, or as one array, is, to the last bit and letter, what is measured row by row."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import orjson
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


IN_C, AS_ARRAY, ONE_BY_ONE = None, 1, 10**9


def measured(ours: list[Any], theirs: list[Any], monkeypatch: pytest.MonkeyPatch, array_from: int | None) -> list[Measure | None]:
    with monkeypatch.context() as patch:
        if array_from is not None:
            patch.setattr(measure_many, "_measured", None)
            patch.setattr(measure_many, "_ARRAY_FROM", array_from)
        return _measured(ours, theirs)


def _measured(ours: list[Any], theirs: list[Any]) -> list[Measure | None]:
    sides = [calls_of({"Torch.a.0.forward": api(side, [])}, "") for side in (ours, theirs)]
    calls = measure_many.measure_calls(match(*sides), StatisticsMeasurer(), (), _INSTEAD)
    return [row.measure for row in calls[0].rows]


@settings(max_examples=100, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=20))
def test_as_one_by_one(rows: list[Any]) -> None:
    ours, theirs = [], []
    for *pairs, shape, dtype in rows:
        ours.append(statistics(*(pair[0] for pair in pairs), shape=list(shape)))
        theirs.append(statistics(*(pair[1] for pair in pairs), shape=list(shape), dtype=f"torch.{dtype}"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        expected = repr(measured(ours, theirs, monkeypatch, ONE_BY_ONE))
        assert repr(measured(ours, theirs, monkeypatch, AS_ARRAY)) == expected
        assert repr(measured(ours, theirs, monkeypatch, IN_C)) == expected


def test_values_of_all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [tensor(1.0), None, 3, 3.5, "cpu", "x", True, statistics(1, 2, 1.5, 2.5), statistics(None, None, None, None), [1, 2], math.nan]
    others = [tensor(2.0), 1, 4, 3.5, "cuda:0", "x", 1, statistics(1, 3, 1.5, 2.5), statistics(1.0, None, None, None), [1.0, 2], math.nan]
    for golden in (others, kinds):
        expected = repr(measured(kinds, golden, monkeypatch, ONE_BY_ONE))
        assert repr(measured(kinds, golden, monkeypatch, AS_ARRAY)) == expected
        assert repr(measured(kinds, golden, monkeypatch, IN_C)) == expected


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


def test_what_is_said_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agreements of a call, whose values are of all roles, and of which some do not count."""

    def entry(value: float, **more: Any) -> dict[str, Any]:
        return {**api([tensor(value), tensor(1.0), 3], [tensor(value * value, **more)]), "parameters": {"w": tensor(value, **more)}}

    names = ("Torch.add.0.forward", "Tensor.copy_.0.forward", "Torch.empty.0.forward", "Module.a.B.forward.0", "Torch.add.0.backward")
    changes: list[dict[str, Any]] = [{}, {"dtype": "float16"}, {"requires_grad": True}, {"requires_grad": None}, {"shape": (7,)}]
    for name in names:
        for change in changes:
            for value in (1.0, 1.0 + 1e-9, 2.0):
                sides = [calls_of({name: entry(1.0)}, ""), calls_of({name: entry(value, **change)}, "")]
                found = measure_many.measure_calls(match(*sides), StatisticsMeasurer(), (), _INSTEAD)
                with monkeypatch.context() as patch:
                    patch.setattr(measure_many, "_measured", None)
                    assert repr(found) == repr(measure_many.measure_calls(match(*sides), StatisticsMeasurer(), (), _INSTEAD))


def test_numbers_are_spelled_as_python_spells_them() -> None:
    spelled = pytest.importorskip("msprobe.comparison._measuring").respelled
    rng = random.Random(0)
    numbers = [
        float(f"{sign}{digits}e{power}")
        for sign in ("", "-")
        for digits in ("0", "1", "1.5", "9.999999999999999")
        for power in range(-330, 309)
    ]
    numbers += [struct.unpack("d", rng.randbytes(8))[0] for _ in range(20000)] + [
        rng.gauss(0, 1) * 10 ** rng.uniform(-8, 20) for _ in range(20000)
    ]
    numbers = [number for number in numbers if math.isfinite(number)]
    for number, text in zip(numbers, orjson.dumps(numbers)[1:-1].split(b","), strict=True):
        assert spelled(text) == repr(number)
        assert spelled(repr(number).encode()) == repr(number)
    for text, expected in (
        (b"1E5", "100000.0"),
        (b"100", "100.0"),
        (b"0.00001", "1e-05"),
        (b"1e+300", "1e+300"),
        (b"-0", "-0.0"),
        (b"12.50", "12.5"),
    ):
        assert spelled(text) == expected
