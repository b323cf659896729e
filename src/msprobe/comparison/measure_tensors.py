"""Measures pairs of a tensor dump: reads both tensor files and compares them element by element, in float64."""

from __future__ import annotations

import math
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe import numerics
from msprobe.comparison.contradiction import Facts, checked
from msprobe.comparison.measure import Agreement, Measure, rounding_of
from msprobe.comparison.measure_instead import by_statistics
from msprobe.comparison.measure_masked import have_other_fill, measure_masked
from msprobe.comparison.measure_statistics import StatisticsMeasurer
from msprobe.comparison.rows import Row
from msprobe.errors import DumpFormatError
from msprobe.format import tensor_file

if TYPE_CHECKING:
    from msprobe.numerics import PairMetrics
    from msprobe.numerics.pairs import TensorLike

COLUMNS = (
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandths Err Ratio",
)
UNSUPPORTED = ("unsupported",) * 6
SHAPE_UNMATCHED = ("shape unmatched",) * 6
NOT_AVAILABLE = ("N/A",) * 6
_EQUAL = (1.0, 0.0, 0.0, 0.0, 1.0, 1.0)
_LARGE = 8 << 20
"""Bytes of a file from which it is read in pieces."""

_SAME = Measure(_EQUAL, Agreement.SAME, norm_relative=0.0, cosine=1.0, thousandth=1.0, max_abs=0.0)


class TensorMeasurer:
    """Measures rows by their tensor files; what is no tensor by its recorded value.

    Args:
        target, golden: the directories that hold the tensor files.
    """

    columns: tuple[str, ...] = COLUMNS

    def __init__(self, target: Path, golden: Path) -> None:
        self._directories = (target, golden)
        self._values = StatisticsMeasurer()
        # One activation is output, input and argument at once, then its files are one file under several names.
        self._linked: dict[tuple[int, int, int, int], tuple[Measure, Facts]] = {}

    def __call__(self, target: Row, golden: Row) -> Measure:
        if target.kind != "tensor" or golden.kind != "tensor":
            return self._values(target, golden)._replace(cells=UNSUPPORTED)
        if target.value == 0 and golden.value == 0 and target.shape == golden.shape:
            return Measure(UNSUPPORTED, Agreement.SAME, max_abs=0.0)
        if target.shape != golden.shape:
            return Measure(UNSUPPORTED if target.value == 0 else SHAPE_UNMATCHED, Agreement.DIFFERENT, math.inf)
        if target.data_name is None and golden.data_name is None:
            unknown = Measure(UNSUPPORTED, Agreement.UNKNOWN, reason="neither side has a tensor file for this value")
            return by_statistics(target, golden, unknown)
        paths: list[str] = []
        for side, directory, row in zip(("target", "golden"), self._directories, (target, golden), strict=True):
            if row.data_name is None:
                return by_statistics(target, golden, _unknown(f"the {side} side has no tensor file for this value"))
            if os.path.basename(row.data_name) != row.data_name or row.data_name in ("", ".", "..") or "\0" in row.data_name:
                return _unknown(f"the {side} file name {row.data_name!r} leaves its directory; it was not read")
            paths.append(os.path.join(directory, row.data_name))
        key = _identity(paths)
        if key is not None and key in self._linked:
            return checked(self._linked[key][0], target, golden, self._linked[key][1])
        try:
            measured = _measure_files(*paths)
            if have_other_fill(target, golden) and measured[1].shapes[0] == measured[1].shapes[1]:
                files = tensor_file.read(paths[0]), tensor_file.read(paths[1])
                measured = measure_masked((target, golden), *files, measured[0]), measured[1]
        except DumpFormatError as error:
            return _unknown(str(error))
        except OSError as error:
            return _unknown(f"{error.filename} cannot be read: {error.strerror}")
        if key is not None:
            self._linked[key] = measured
        return checked(measured[0], target, golden, measured[1])


def _unknown(reason: str) -> Measure:
    return Measure(UNSUPPORTED, Agreement.UNKNOWN, reason=reason, lost=True)


def _identity(paths: list[str]) -> tuple[int, int, int, int] | None:
    try:
        ours, theirs = os.stat(paths[0]), os.stat(paths[1])
    except (OSError, ValueError):
        return None
    if ours.st_nlink < 2 or theirs.st_nlink < 2:
        return None
    return ours.st_dev, ours.st_ino, theirs.st_dev, theirs.st_ino


def _measure_files(target: str, golden: str) -> tuple[Measure, Facts]:
    ours, theirs = os.stat(target), os.stat(golden)
    if min(ours.st_size, theirs.st_size) >= _LARGE:
        measured = _in_pieces(target, golden)
        if measured is not None:
            return measured
    first = tensor_file.read(target)
    return _measured(first, first if os.path.samestat(ours, theirs) else tensor_file.read(golden))


def _in_pieces(target: str, golden: str) -> tuple[Measure, Facts] | None:
    """The measure of two large files, of which only a piece is in memory at a time; None for those that must be read as a whole."""
    from msprobe.numerics.pairs import compare_pieces

    with ExitStack() as stack:
        sides: list[tensor_file.OpenTensor] = []
        for path in (target, golden):
            side = tensor_file.open_tensor(path)
            if side is None:
                return None
            sides.append(stack.enter_context(side))
        ours, theirs = sides
        numel = math.prod(ours.shape)
        if ours.shape != theirs.shape or not numel:
            return None
        try:
            metrics = compare_pieces((ours.dtype, theirs.dtype), numel, (ours.read_into, theirs.read_into))
        except ValueError:  # a dtype without numbers: told by the other way
            return None
        if metrics is None:
            return None
        facts = Facts((ours.dtype, theirs.dtype), (tuple(ours.shape), tuple(theirs.shape)), metrics)
        return from_metrics(metrics, ours.dtype, theirs.dtype), facts


def measure_tensors(target: TensorLike, golden: TensorLike) -> Measure:
    """The six metrics of two tensors.

    Cosine: dot / (norm * norm). EucDist: norm of the difference. MaxAbsErr and MaxRelativeErr: largest |t - g| and |t - g| / |g| of an
    element; where g is 0 the machine epsilon (of float32 for pairs no finer than float32, else of float64) is added to both, so that the
    quotient stays finite. The ratios: the share of elements whose relative error is below 0.001 and 0.005. Complex elements count by
    their magnitude. Elements that are the same NaN or infinity on both sides count as equal; where one side has another, no metric has a
    value and the pair differs.
    """
    return _measured(target, golden)[0]


def _measured(target: TensorLike, golden: TensorLike) -> tuple[Measure, Facts]:
    facts = Facts((target.dtype, golden.dtype), (tuple(target.shape), tuple(golden.shape)), None)
    if facts.shapes[0] != facts.shapes[1]:
        return Measure(SHAPE_UNMATCHED, Agreement.DIFFERENT, math.inf), facts
    if math.prod(target.shape) == 0:
        return Measure(UNSUPPORTED, Agreement.SAME, max_abs=0.0), facts
    try:
        metrics = numerics.compare_arrays(target, golden)
    except (LookupError, ValueError) as error:
        return _unknown(str(error)), facts
    return from_metrics(metrics, target.dtype, golden.dtype), facts._replace(metrics=metrics)


def from_metrics(metrics: PairMetrics, target_dtype: str, golden_dtype: str) -> Measure:
    """As `measure_tensors`, of tensors that have been compared already; they have one shape and at least one element."""
    if metrics.nan_differ or metrics.inf_differ:
        return Measure(NOT_AVAILABLE, Agreement.DIFFERENT, math.inf, max_abs=math.inf)
    if metrics.equal == metrics.numel and target_dtype == golden_dtype:
        return _SAME
    # Equal infinities and NaN are not among the compared positions, and agree.
    thousandth = (metrics.within_1e3 + metrics.nonfinite_equal) / metrics.numel
    five_thousandths = (metrics.within_5e3 + metrics.nonfinite_equal) / metrics.numel
    cosine = 1.0 if metrics.compared == 0 else metrics.cosine
    cells = (
        "Nan" if math.isnan(cosine) else _cosine_cell(cosine),
        metrics.distance,
        _decimals(metrics.max_abs_diff),
        _decimals(metrics.max_rel_diff),
        _decimals(thousandth),
        _decimals(five_thousandths),
    )
    size = _relative_size(metrics)
    different = size > rounding_of(target_dtype, golden_dtype)
    return Measure(
        cells,
        Agreement.DIFFERENT if different else Agreement.ROUNDING,
        size,
        cosine=None if math.isnan(cosine) else cosine,
        thousandth=thousandth,
        max_abs=metrics.max_abs_diff,
    )


def _relative_size(metrics: PairMetrics) -> float:
    norm = max(metrics.norm_a, metrics.norm_b)
    if math.isfinite(norm) and math.isfinite(metrics.distance):
        return metrics.distance / norm if norm else 0.0
    largest = max(metrics.max_abs_a, metrics.max_abs_b)  # the norms lie beyond float64
    return metrics.max_abs_diff / largest if math.isfinite(metrics.max_abs_diff) else 2.0


def _cosine_cell(cosine: float) -> float:
    return round(cosine, 6) if cosine > 0.9999 else round(cosine, 12)


def _decimals(value: float) -> Any:
    """12 decimals, as the existing tool writes them; four significant digits where fewer than three would be left."""
    return round(value, 12) if value == 0.0 or value >= 1e-9 else float(f"{value:.4g}")
