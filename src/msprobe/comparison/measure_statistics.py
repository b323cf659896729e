"""Measures pairs of a statistics dump: the differences of Max, Min, Mean and Norm."""

from __future__ import annotations

import math
import re
from typing import Any

from msprobe.comparison.measure import Agreement, Measure, as_float, compare_values, relative_difference, rounding_of
from msprobe.comparison.rows import Row, Statistics

COLUMNS = (
    "Max diff",
    "Min diff",
    "Mean diff",
    "L2norm diff",
    "MaxRelativeErr",
    "MinRelativeErr",
    "MeanRelativeErr",
    "NormRelativeErr",
)
_EQUAL = ("0",) * 8
_FLOATS = [float] * 4
SAME = Measure(_EQUAL, Agreement.SAME, norm_relative=0.0, max_abs=0.0)
"""Of two tensors whose statistics are equal, and of two equal numbers."""
_SAME_TEXT = SAME._replace(max_abs=None)
_PLAIN = frozenset({float, int, str, bool, type(None)})
_DEVICE = re.compile(r"(cpu|cuda|npu|gpu|mps|xpu|meta|hpu|mlu|musa|privateuseone)(:[0-9]+|:None)?\Z")


def difference_cells(target: Any, golden: Any) -> tuple[str, str]:
    """The cells `... diff` and `...RelativeErr` of one statistic.

    target - golden, and |difference / golden| in per cent. `0` for equal values; `Nan` where one is NaN; `inf` or `-inf` where one is
    infinite; `Diff` for unequal values that are no numbers, `N/A` for two devices. A golden value of 0 gives `inf`.
    """
    if target is golden or _spelled_alike(target, golden):
        return "0", "0"
    if not (_is_number(target) and _is_number(golden)):
        if isinstance(target, str) and isinstance(golden, str) and _DEVICE.match(target) and _DEVICE.match(golden):
            return "N/A", "N/A"
        return "Diff", "Diff"
    if target != target or golden != golden:
        return "Nan", "Nan"
    if _is_infinite(target) or _is_infinite(golden):
        text = "inf" if target > golden else "-inf"
        return text, text
    difference, relative = _subtract(target, golden)
    return repr(difference), "inf" if golden == 0 and target != 0 else f"{relative * 100!r}%"


def _spelled_alike(target: Any, golden: Any) -> bool:
    if type(target) is not type(golden):
        return False
    if target != golden:
        return bool(target != target and golden != golden)
    # 0.0 and -0.0 are equal and not spelled alike.
    return target != 0 or type(target) is not float or math.copysign(1.0, target) == math.copysign(1.0, golden)


def _is_number(value: Any) -> bool:
    return type(value) is float or type(value) is int


def _is_infinite(value: int | float) -> bool:
    return type(value) is float and math.isinf(value)


def _subtract(target: int | float, golden: int | float) -> tuple[float, float]:
    """Difference and |difference / golden|. Integers are subtracted as integers: 2**62 and 2**62 + 1 differ by 1."""
    if type(target) is int and type(golden) is int:
        exact = target - golden
        return as_float(exact), _quotient(exact, golden)
    a, b = as_float(target), as_float(golden)
    difference = a - b
    if b == 0:
        return difference, 0.0 if a == 0 else math.inf
    if math.isinf(difference):  # of two finite numbers: the quotient need not overflow
        return difference, abs(a / b - 1)
    return difference, abs(difference / b)


def _quotient(top: int, bottom: int) -> float:
    if bottom == 0:
        return math.inf
    try:
        return abs(top / bottom)
    except OverflowError:
        return math.inf


class StatisticsMeasurer:
    """Measures rows by what dump.json itself holds."""

    columns: tuple[str, ...] = COLUMNS

    def __call__(self, target: Row, golden: Row) -> Measure:
        ours, theirs = target.statistics, golden.statistics
        # The common case, decided without arithmetic. Zeros take the long way: 0.0 equals -0.0 and is spelled otherwise.
        if (
            ours == theirs
            and 0 not in ours
            and None not in ours
            and target.dtype == golden.dtype
            and target.shape == golden.shape
            and target.kind == golden.kind == "tensor"
            and [*map(type, ours)] == [*map(type, theirs)]
        ):
            return SAME
        if target.kind == golden.kind == "scalar" and type(target.value) in _PLAIN and _spelled_alike(target.value, golden.value):
            return SAME if _is_number(target.value) else _SAME_TEXT
        if target.kind == golden.kind == "tensor" and target.shape == golden.shape and _all_finite_floats(ours, theirs):
            return _measure_floats(target, golden)
        cells, norm_relative = _cells(ours, theirs)
        if target.kind != "tensor" or golden.kind != "tensor":
            agreement, size = _compare_other(target, golden)
            return Measure(cells, agreement, size, norm_relative=norm_relative, max_abs=_largest(ours, theirs))
        agreement, size, reason = compare_statistics(target, golden)
        lost = agreement is Agreement.UNKNOWN and not ours.count(None) == theirs.count(None) == 4
        return Measure(cells, agreement, size, reason, norm_relative, max_abs=_largest(ours, theirs), lost=lost)


def _all_finite_floats(ours: Statistics, theirs: Statistics) -> bool:
    return [*map(type, ours)] == _FLOATS == [*map(type, theirs)] and math.isfinite(sum(ours) + sum(theirs))


def _measure_floats(target: Row, golden: Row) -> Measure:
    """What the general way gives, four times as fast, for the most common case: two tensors with eight finite statistics."""
    ours, theirs = target.statistics, golden.statistics
    differences: list[str] = []
    relatives: list[str] = []
    size = largest = relative = 0.0
    scale = max(abs(ours[0]), abs(ours[1]), abs(theirs[0]), abs(theirs[1]))
    for index in (0, 1, 2, 3):
        a, b = ours[index], theirs[index]
        relative = 0.0
        if a == b:
            first, second = difference_cells(a, b) if a == 0 else ("0", "0")
            differences.append(first)
            relatives.append(second)
            continue
        difference = a - b
        differences.append(repr(difference))
        if b == 0:
            relative = math.inf
            relatives.append("inf")
        else:
            relative = abs(difference / b)
            percent = relative * 100
            relatives.append(f"{percent!r}%")
            relative = relative if percent < math.inf else math.inf  # as the cell says, from which others read it
        if index == 3:
            scale = 0.0
            if target.shape == "[]":
                a, b = abs(a), abs(b)
        size = max(size, relative_difference(a, b, scale))
        largest = max(largest, abs(difference))
    if size > rounding_of(target.dtype, golden.dtype):
        agreement = Agreement.DIFFERENT
    else:
        agreement = Agreement.SAME if size == 0.0 and target.dtype == golden.dtype else Agreement.ROUNDING
    return Measure((*differences, *relatives), agreement, size, "", relative, max_abs=largest)


def _cells(ours: Statistics, theirs: Statistics) -> tuple[tuple[str, ...], float | None]:
    pairs = [difference_cells(a, b) for a, b in zip(ours, theirs, strict=True)]
    cells = tuple([pair[0] for pair in pairs] + [pair[1] for pair in pairs])
    return cells, relative_of_cell(pairs[3][1])


def relative_of_cell(cell: str) -> float | None:
    """The number behind a `...RelativeErr` cell: 0.5 for `50.0%`; None for `Nan`, `Diff` and `N/A`."""
    if cell == "0":
        return 0.0
    if cell.endswith("%"):
        return float(cell[:-1]) / 100
    return math.inf if cell in ("inf", "-inf") else None


def _compare_other(target: Row, golden: Row) -> tuple[Agreement, float]:
    if target.kind != golden.kind:
        return Agreement.DIFFERENT, math.inf
    if isinstance(target.value, str) and isinstance(golden.value, str) and _DEVICE.match(target.value) and _DEVICE.match(golden.value):
        return Agreement.SAME, 0.0  # another device is no other value
    return compare_values(target.value, golden.value)


def compare_statistics(target: Row, golden: Row) -> tuple[Agreement, float, str]:
    """Agreement, relative size and, where nothing can be said, the reason, for two tensors of which the statistics are known."""
    if target.shape != golden.shape:
        return Agreement.DIFFERENT, math.inf, ""
    if target.value == 0 and golden.value == 0:
        return Agreement.SAME, 0.0, ""
    ours, theirs = target.statistics, golden.statistics
    if ours.count(None) == 4 or theirs.count(None) == 4:
        return Agreement.UNKNOWN, 0.0, _missing(ours, theirs)
    sizes = _sizes(target, golden)
    if not sizes:
        return Agreement.UNKNOWN, 0.0, "the two sides recorded no statistic in common"
    size = max(sizes)
    if size > rounding_of(target.dtype, golden.dtype):
        return Agreement.DIFFERENT, size, ""
    if [v is None for v in ours] != [v is None for v in theirs] and _is_inexact(target.dtype):
        return Agreement.UNKNOWN, size, "one side lacks some of Max, Min, Mean and Norm; those that both have agree"
    if size == 0.0 and target.dtype == golden.dtype:
        return Agreement.SAME, 0.0, ""
    return Agreement.ROUNDING, size, ""


def _is_inexact(dtype: str) -> bool:
    """Whether Max and Min alone say too little: the existing tool gives integers no Mean and no Norm, and loses nothing by it."""
    return "float" in dtype or "complex" in dtype


def _missing(ours: Statistics, theirs: Statistics) -> str:
    if ours.count(None) == theirs.count(None) == 4:
        return "neither side recorded statistics of this tensor"
    side = "target" if ours.count(None) == 4 else "golden"
    return f"the {side} side recorded no statistics of this tensor"


def _sizes(target: Row, golden: Row) -> list[float]:
    """Relative difference of each statistic that both sides have."""
    ours, theirs = target.statistics, golden.statistics
    ends = [abs(as_float(v)) for v in (*ours[:2], *theirs[:2]) if _is_number(v) and v == v and not _is_infinite(v)]
    finite = len(ends) == 4
    scale = max(ends, default=0.0)
    sizes: list[float] = []
    for index in range(4):
        a, b = ours[index], theirs[index]
        if a is None or b is None:
            continue
        if not (_is_number(a) and _is_number(b)):
            sizes.append(0.0 if a == b else math.inf)
            continue
        if index == 3:
            if target.shape == "[]":  # the existing tool gives the Norm of a 0-d tensor the sign of its value
                a, b = abs(a), abs(b)
            sizes.append(0.0 if finite and _one_overflowed(a, b) else relative_difference(a, b, 0.0))
        elif index == 2:
            sizes.append(0.0 if finite and _one_overflowed(a, b) else relative_difference(a, b, scale))
        else:
            sizes.append(relative_difference(a, b, scale))
    return sizes


def _one_overflowed(a: int | float, b: int | float) -> bool:
    """Mean or Norm infinite on one side though every element is finite: that side added up in a narrow type, the values do not differ."""
    return _is_infinite(a) != _is_infinite(b) and a == a and b == b


def _largest(ours: Statistics, theirs: Statistics) -> float | None:
    """Largest absolute difference of the four; None where no two are numbers."""
    found: float | None = None
    for a, b in zip(ours, theirs, strict=True):
        if _is_number(a) and _is_number(b):
            step = _absolute(a, b)
            found = step if found is None or step > found else found
    return found


def _absolute(a: int | float, b: int | float) -> float:
    if a == b or (a != a and b != b):
        return 0.0
    if a != a or b != b:
        return math.inf
    return abs(_subtract(a, b)[0])
