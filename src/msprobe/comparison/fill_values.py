"""Which tensors are masks, by what was recorded of them: their lowest number stands for "not allowed"."""

from __future__ import annotations

import math
from typing import Any

from msprobe.comparison.measure import is_fill
from msprobe.comparison.rows import Row


def scale_of(target: Row, golden: Row) -> float:
    """What sizes are relative to, of two tensors whose Max is no fill value."""
    return float(max(1.0, abs(target.statistics[0]), abs(golden.statistics[0])))


def both_filled(target: Row, golden: Row) -> bool:
    """Whether the Min of both is a fill value, and the Max of both is none."""
    return has_fill(target) and has_fill(golden)


def has_fill(row: Row) -> bool:
    """Whether the Min of a floating-point tensor is a fill value and its Max is none."""
    highest, lowest = row.statistics[:2]
    return is_fill(lowest) and _is_ordinary(highest)


def _is_ordinary(value: Any) -> bool:
    return type(value) is float and math.isfinite(value) and not is_fill(value)
