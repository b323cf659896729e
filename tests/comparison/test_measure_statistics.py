from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from msprobe.comparison import measure_statistics
from msprobe.comparison.measure import Agreement, rounding_of
from msprobe.comparison.measure_statistics import StatisticsMeasurer, difference_cells, relative_of_cell
from msprobe.comparison.rows import Row, calls_of

from .dumps import api, statistics

NAN, INF = math.nan, math.inf


def row(record: Any) -> Row:
    return calls_of({"Torch.op.0.forward": api([], [record])}, "dump.json")[0].rows[0]


def measure(target: Any, golden: Any) -> Any:
    return StatisticsMeasurer()(row(target), row(golden))


@pytest.mark.parametrize(
    ("target", "golden", "cells"),
    [
        (1.0, 1.0, ("0", "0")),
        (1, 1.0, ("0.0", "0.0%")),
        (1.1, 1.0, ("0.10000000000000009", "10.000000000000009%")),
        (-1.1, -1.0, ("-0.10000000000000009", "10.000000000000009%")),
        (0.0, 1.0, ("-1.0", "100.0%")),
        (0.5, 0.0, ("0.5", "inf")),
        (NAN, NAN, ("0", "0")),
        (NAN, 1.0, ("Nan", "Nan")),
        (1.0, NAN, ("Nan", "Nan")),
        (INF, NAN, ("Nan", "Nan")),
        (INF, INF, ("0", "0")),
        (INF, 1.0, ("inf", "inf")),
        (INF, -INF, ("inf", "inf")),
        (-INF, 1.0, ("-inf", "-inf")),
        (-INF, INF, ("-inf", "-inf")),
        (1.0, INF, ("-inf", "-inf")),
        (1.0, -INF, ("inf", "inf")),
        (None, None, ("0", "0")),
        (None, 1.0, ("Diff", "Diff")),
        (True, False, ("Diff", "Diff")),
        (True, True, ("0", "0")),
        ("a", "b", ("Diff", "Diff")),
        ("cpu", "cuda:0", ("N/A", "N/A")),
        ("npu:3", "cpu", ("N/A", "N/A")),
        (2, 3, ("-1.0", "33.33333333333333%")),
        (-0.0, 0.0, ("-0.0", "0.0%")),
        (2**62, 2**62 + 1, ("-1.0", "2.168404344971009e-17%")),
        (1e308, -1e308, ("inf", "200.0%")),
        (10**400, 10**400 + 1, ("-1.0", "0.0%")),
        (5e-324, 1e308, ("-1e+308", "100.0%")),
    ],
)
def test_cells_of_one_statistic(target: Any, golden: Any, cells: tuple[str, str]) -> None:
    assert difference_cells(target, golden) == cells


numbers = st.one_of(st.floats(), st.integers(-(2**70), 2**70))


@given(numbers, numbers)
def test_cells_mean_what_they_say(target: float | int, golden: float | int) -> None:
    difference, relative = difference_cells(target, golden)
    if (math.isnan(target) and math.isnan(golden)) or (type(target) is type(golden) and repr(target) == repr(golden)):
        assert (difference, relative) == ("0", "0")
    elif math.isnan(target) or math.isnan(golden):
        assert (difference, relative) == ("Nan", "Nan")
    elif math.isinf(target) or math.isinf(golden):
        assert difference == relative == ("inf" if target > golden else "-inf")
    else:
        exact = Fraction(target) - Fraction(golden)
        if abs(exact) < Fraction(2) ** 1023:
            assert float(difference) == pytest.approx(float(exact), rel=1e-12, abs=0)
        if golden == 0:
            assert relative == ("inf" if target != 0 else "0.0%")
        else:
            share = abs(exact / Fraction(golden)) * 100
            if share > Fraction(2) ** 1000:
                return  # beyond float64
            assert float(relative[:-1]) == pytest.approx(float(share), rel=1e-9, abs=1e-300)


@given(st.lists(st.one_of(st.none(), st.booleans(), numbers), min_size=4, max_size=4))
def test_a_value_agrees_with_itself(values: list[Any]) -> None:
    found = measure(statistics(*values), statistics(*values))
    assert found.cells == ("0",) * 8
    assert found.agreement is (Agreement.UNKNOWN if values.count(None) == 4 else Agreement.SAME)


@given(st.lists(numbers, min_size=4, max_size=4), st.lists(numbers, min_size=4, max_size=4))
def test_agreement_does_not_depend_on_the_side(one: list[Any], other: list[Any]) -> None:
    there, back = measure(statistics(*one), statistics(*other)), measure(statistics(*other), statistics(*one))
    assert there.agreement is back.agreement
    assert there.size == back.size or math.isclose(there.size, back.size)


@pytest.mark.parametrize(
    ("target", "golden", "agreement"),
    [
        (statistics(2.0, 1.0, 1.5, 4.0), statistics(2.0, 1.0, 1.5, 4.0), Agreement.SAME),
        (statistics(2.0, 1.0, 1.5, 4.000001), statistics(2.0, 1.0, 1.5, 4.0), Agreement.ROUNDING),
        (statistics(2.0, 1.0, 1.5, 4.01), statistics(2.0, 1.0, 1.5, 4.0), Agreement.DIFFERENT),
        (statistics(2.0, -1.0, 0.5, 4.0), statistics(1.0, -2.0, -0.5, 4.0), Agreement.DIFFERENT),  # negated
        (statistics(2.0, 1.0, 1.5, 4.0, dtype="bfloat16"), statistics(2.0, 1.0, 1.5, 4.02), Agreement.ROUNDING),
        (statistics(2.0, 1.0, 1.5, 4.0, dtype="bfloat16"), statistics(2.0, 1.0, 1.5, 4.0), Agreement.ROUNDING),  # other dtype
        (statistics(NAN, NAN, NAN, NAN), statistics(NAN, NAN, NAN, NAN), Agreement.SAME),
        (statistics(NAN, NAN, NAN, NAN), statistics(1.0, 1.0, 1.0, 1.0), Agreement.DIFFERENT),
        (statistics(1.0, 1.0, 1.0, 1.0), statistics(NAN, NAN, NAN, NAN), Agreement.DIFFERENT),
        (statistics(INF, 0.0, INF, INF), statistics(0.0, -INF, -INF, INF), Agreement.DIFFERENT),
        (statistics(2**62, 1, None, None, dtype="int64"), statistics(2**62 + 1, 1, None, None, dtype="int64"), 3),
        (statistics(7, 1, None, None, dtype="int64"), statistics(7, 1, 3.0, 9.0, dtype="int64"), Agreement.SAME),
        (statistics(True, False, None, None, dtype="bool"), statistics(True, True, None, None, dtype="bool"), 3),
        (statistics(None, None, None, None), statistics(None, None, None, None), Agreement.UNKNOWN),
        (statistics(None, None, None, None), statistics(1.0, 1.0, 1.0, 1.0), Agreement.UNKNOWN),
        (statistics(None, None, None, None, shape=[0]), statistics(None, None, None, None, shape=[0]), Agreement.SAME),
        (statistics(None, None, None, None, shape=[0]), statistics(1.0, 1.0, 1.0, 1.0, shape=[3]), Agreement.DIFFERENT),
        # The existing tool signs the Norm of a 0-d tensor, and overflows the Norm of float16.
        (statistics(-2.5, -2.5, -2.5, -2.5, shape=[]), statistics(-2.5, -2.5, -2.5, 2.5, shape=[]), Agreement.SAME),
        (statistics(6e4, 6e4, 6e4, INF, dtype="float16"), statistics(6e4, 6e4, 6e4, 2.7e6, dtype="float16"), 1),
        (statistics(1e308, 1e308, 1e308, 1e308), statistics(-1e308, -1e308, -1e308, 1e308), Agreement.DIFFERENT),
        (statistics("NaN", "NaN", "NaN", "NaN"), statistics(NAN, NAN, NAN, NAN), Agreement.SAME),
    ],
)
def test_agreement_of_tensors(target: Any, golden: Any, agreement: Agreement) -> None:
    assert measure(target, golden).agreement == agreement


def test_a_side_that_recorded_nothing_is_named() -> None:
    found = measure(statistics(None, None, None, None), statistics(1.0, 1.0, 1.0, 1.0))
    assert found.reason == "the target side recorded no statistics of this tensor"
    assert found.lost
    assert not measure(statistics(None, None, None, None), statistics(None, None, None, None)).lost


@pytest.mark.parametrize(("cell", "value"), [("0", 0.0), ("50.0%", 0.5), ("inf", INF), ("-inf", INF), ("Nan", None), ("Diff", None)])
def test_relative_error_behind_a_cell(cell: str, value: float | None) -> None:
    assert relative_of_cell(cell) == value


def test_rounding_is_that_of_the_coarser_dtype() -> None:
    assert rounding_of("torch.float32", "torch.bfloat16") == rounding_of("torch.bfloat16", "torch.bfloat16")
    assert rounding_of("torch.int64", "torch.int64") == 0.0


finite = st.floats(-1e300, 1e300, allow_nan=False)


@example([0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 4.004182464960138e-307], ())
@given(st.lists(finite, min_size=4, max_size=4), st.lists(finite, min_size=4, max_size=4), st.sampled_from([(), (2, 3)]))
def test_the_short_way_for_common_tensors_gives_what_the_long_way_gives(one: list[Any], other: list[Any], shape: tuple[int, ...]) -> None:
    target, golden = row(statistics(*one, shape=list(shape))), row(statistics(*other, shape=list(shape)))
    found = StatisticsMeasurer()(target, golden)
    cells, norm = measure_statistics._cells(target.statistics, golden.statistics)
    agreement, size, _ = measure_statistics.compare_statistics(target, golden)
    assert found.cells == cells
    assert found.norm_relative == norm or found.norm_relative == pytest.approx(norm, rel=1e-12)
    assert (found.agreement, found.size) == (agreement, size)
    assert found.max_abs == measure_statistics._largest(target.statistics, golden.statistics)
