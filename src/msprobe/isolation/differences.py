"""How a value differs from golden: by more than rounding, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msprobe import numerics
from msprobe.comparison.calls import Measured
from msprobe.comparison.measure import Agreement, Measure, slight_of
from msprobe.comparison.measure_tensors import from_metrics
from msprobe.comparison.rows import Row


@dataclass(frozen=True)
class Difference:
    """A value that differs from golden by more than rounding.

    Attributes:
        key: where it lies in its call: `input.0`, `output`, `parameters.weight`.
        how: by how much, in words.
        slight: no more than narrower arithmetic may give (thresholds.SLIGHT).
        missing: the golden run alone has a value there.
        may_not_matter: one run passes None and the other a tensor, which may well come to the same (a mask that says nothing).
        alone: one run alone has a value there.
    """

    key: str
    how: str
    slight: bool = False
    missing: bool = False
    may_not_matter: bool = False
    alone: bool = False


def difference_of(row: Measured) -> Difference | None:
    """None where the two agree up to rounding, and where nothing could be measured."""
    (ours, theirs), measure = row
    if ours is None and theirs is not None:
        return (
            None if theirs.kind == "null" else Difference(theirs.key, "the golden run has it, this one does not", missing=True, alone=True)
        )
    if theirs is None and ours is not None:
        return None if ours.kind == "null" else Difference(ours.key, "this run has it, the golden one does not", alone=True)
    if ours is None or theirs is None or measure is None or measure.agreement is not Agreement.DIFFERENT:
        return None
    if ours.kind != "tensor" or theirs.kind != "tensor":
        return Difference(
            ours.key, f"{_value(ours)}, golden {_value(theirs)}", missing=ours.kind == "null", alone="null" in (ours.kind, theirs.kind)
        )
    if ours.shape != theirs.shape:
        return Difference(ours.key, f"shape {ours.shape}, golden {theirs.shape}")
    return _of_tensors(ours.key, measure, ours.dtype, theirs.dtype)


def none_or_tensor(row: Measured) -> Difference | None:
    """An input that is None on one side and a tensor on the other; `msprobe compare` measures nothing there."""
    ours, theirs = row.pair
    if {ours.kind if ours else "null", theirs.kind if theirs else "null"} != {"null", "tensor"}:
        return None
    known = ours or theirs
    assert known is not None
    return Difference(known.key, f"{_value(ours)}, golden {_value(theirs)}", missing=_is_null(ours), may_not_matter=True, alone=True)


def _is_null(row: Row | None) -> bool:
    return row is None or row.kind == "null"


def _of_tensors(key: str, measure: Measure, dtype: str, golden_dtype: str) -> Difference:
    how = f"max abs diff {measure.max_abs:.3g}, relative {measure.size:.3g}"
    if math.isinf(measure.size):
        how = "NaN or infinities at other places"
    if dtype.removeprefix("torch.") != golden_dtype.removeprefix("torch."):
        how += f"; {dtype.removeprefix('torch.')}, golden {golden_dtype.removeprefix('torch.')}"
    return Difference(key, how, measure.size <= slight_of(dtype, golden_dtype))


def _value(row: Row | None) -> str:
    if row is None:
        return "None"
    if row.kind == "tensor":
        return f"a tensor {row.shape}"
    text = repr(row.value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def of_line(key: str, line: Mapping[str, Any]) -> Difference | None:
    """The same, of what a process wrote of an input that it was about to replace."""
    shape, golden_shape, dtype, golden_dtype = (line.get(name) for name in ("shape", "golden_shape", "dtype", "golden_dtype"))
    if shape != golden_shape:
        return Difference(key, f"shape {shape}, golden {golden_shape}")
    metrics = line.get("metrics")
    if not isinstance(metrics, dict):
        return None
    try:
        measure = from_metrics(numerics.PairMetrics(**metrics), str(dtype), str(golden_dtype))
    except TypeError:
        return None
    return _of_tensors(key, measure, str(dtype), str(golden_dtype)) if measure.agreement is Agreement.DIFFERENT else None


def beyond_slight(differences: Sequence[Difference]) -> tuple[Difference, ...]:
    """Without those that rounding adds up to on its way through a model."""
    return tuple(difference for difference in differences if not difference.slight)
