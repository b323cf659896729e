"""All pairs of rows of two dumps measured: most of a statistics dump at once, as one array, the rest one by one.

The numbers, and their spelling, are those of `StatisticsMeasurer`: the same operations on the same float64, so that a row does not depend
on which of the two ways measured it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from msprobe.comparison.calls import OVERWRITTEN, UNINITIALISED, Measured, MeasuredCall, summarise
from msprobe.comparison.csv_text import Cells, dumped_floats, spell_array
from msprobe.comparison.match import CallPair
from msprobe.comparison.measure import Agreement, Measure, Measurer, rounding_of
from msprobe.comparison.measure_statistics import SAME, StatisticsMeasurer
from msprobe.comparison.rows import Row

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_measured: Callable[..., list[MeasuredCall]] | None
try:
    from msprobe.comparison._measuring import measured as _measured
except ImportError:  # installed without a compiler
    _measured = None
_SPECIAL = frozenset(OVERWRITTEN) | UNINITIALISED  # whose agreements not all rows count for
_CALLS_AT_ONCE = 1000
_ARRAY_FROM = 256
_AT_ONCE = 5000
_NUMBERS = frozenset({float, int})
_ALL_FLOATS = [float] * 8
_SAME, _ROUNDING, _DIFFERENT = Agreement.SAME, Agreement.ROUNDING, Agreement.DIFFERENT
_new = tuple.__new__


def measure_calls(pairs: Sequence[CallPair], measurer: Measurer, elsewhere: Collection[str], instead: Measure) -> list[MeasuredCall]:
    """The measured calls, in their order.

    Args:
        pairs: calls and their rows, paired.
        measurer: that of the mode.
        elsewhere: names of calls whose outputs must not be measured against each other; `instead`: what is said of these.
    """
    if _measured is not None and isinstance(measurer, StatisticsMeasurer):
        types = (Measure, Measured, MeasuredCall, Cells)
        context = (measurer, elsewhere, instead, SAME, rounding_of, dumped_floats, summarise, _SPECIAL, tuple(Agreement), types)
        calls: list[MeasuredCall] = []
        for start in range(0, len(pairs), _CALLS_AT_ONCE):
            calls += _measured([*pairs[start : start + _CALLS_AT_ONCE]], context)
        return calls
    later = _Later(measurer) if isinstance(measurer, StatisticsMeasurer) else None
    measures: list[list[Measure | None]] = []
    for pair in pairs:
        found: list[Measure | None] = []
        shifted = pair.name in elsewhere if elsewhere else False
        for ours, theirs in pair.rows:
            if ours is None or theirs is None:
                found.append(None)
            elif shifted and ours.role == "output":
                found.append(instead)
            elif later is None:
                found.append(measurer(ours, theirs))
            elif ours is theirs and ours.kind == "tensor" and ours.value != 0 and _NUMBERS.issuperset(map(type, ours.statistics)):
                found.append(SAME)
            elif ours.kind == theirs.kind == "tensor" and ours.shape == theirs.shape:
                later.add(found, ours, theirs)
            else:
                found.append(measurer(ours, theirs))
        measures.append(found)
        if later is not None and len(later) >= _AT_ONCE:
            later.measure()
    if later is not None:
        later.measure()
    return [summarise(pair, found) for pair, found in zip(pairs, measures, strict=True)]


class _Later:
    """Pairs of tensors that wait until they are many."""

    def __init__(self, measurer: StatisticsMeasurer) -> None:
        self._measurer = measurer
        self._waiting: list[tuple[list[Measure | None], int, Row, Row]] = []
        self._numbers: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, found: list[Measure | None], ours: Row, theirs: Row) -> None:
        """Measures the pair, or keeps it for later; its measure will stand at the end of `found`."""
        numbers = ours.statistics + theirs.statistics
        if [*map(type, numbers)] == _ALL_FLOATS:
            self._waiting.append((found, len(found), ours, theirs))
            self._numbers.append(numbers)
            found.append(None)
        else:
            found.append(self._measurer(ours, theirs))

    def measure(self) -> None:
        """Fills in what waits."""
        if len(self._waiting) < _ARRAY_FROM:
            for found, index, ours, theirs in self._waiting:
                found[index] = self._measurer(ours, theirs)
        else:
            for (found, index, ours, theirs), measure in zip(self._waiting, self._measured(), strict=True):
                found[index] = measure if measure is not None else self._measurer(ours, theirs)
        self._waiting, self._numbers = [], []

    def _measured(self) -> list[Measure | None]:
        """A measure for each, None for those that need the general way: anything not finite, and 0.0 against -0.0."""
        import numpy as np

        numbers = np.array(self._numbers)
        ours, theirs = np.ascontiguousarray(numbers[:, :4]), np.ascontiguousarray(numbers[:, 4:])
        scalars = np.fromiter((row.shape == "[]" for _, _, row, _ in self._waiting), bool, len(self._waiting))
        with np.errstate(all="ignore"):
            equal = ours == theirs
            differences = ours - theirs
            relatives = np.where(equal, 0.0, np.abs(differences / theirs))
            percents = relatives * 100
            sizes = _sizes(ours, theirs, equal, scalars)
            total = sum(ours.T) + sum(theirs.T)
        zero = (theirs == 0) & ~equal
        odd = ~np.isfinite(total) | ~np.isfinite(differences).all(1) | ~np.isfinite(np.where(zero, 0.0, percents)).all(1)
        odd |= (equal & (ours == 0) & (np.signbit(ours) != np.signbit(theirs))).any(1)
        plain = ~(equal | zero).any(1)
        differences[odd] = percents[odd] = 0.0
        percents[zero] = 0.0
        cells = zip(spell_array(differences), spell_array(percents, "%"), strict=True)
        columns = (odd.tolist(), equal.all(1).tolist(), plain.tolist(), sizes.tolist(), relatives[:, 3].tolist())
        largest = np.abs(differences).max(1).tolist()
        measures: list[Measure | None] = []
        for (_, _, target, golden), (first, second), special, same, simple, size, relative, most in zip(
            self._waiting, cells, *columns, largest, strict=True
        ):
            if special:
                measures.append(None)
                continue
            one_dtype = target.dtype == golden.dtype
            if same and one_dtype:
                measures.append(SAME)
                continue
            texts: Sequence[str] = Cells(f"{first},{second}")
            if not simple:
                texts = _with_equal(texts, target, golden)
            if size > rounding_of(target.dtype, golden.dtype):
                agreement = _DIFFERENT
            else:
                agreement = _SAME if size == 0.0 and one_dtype else _ROUNDING
            # What Measure(texts, agreement, size, "", relative, max_abs=most) makes, several times as fast.
            measures.append(_new(Measure, (texts, agreement, size, "", relative, None, None, most, False, 0.0, False)))
        return measures


def _sizes(
    ours: npt.NDArray[np.float64], theirs: npt.NDArray[np.float64], equal: npt.NDArray[np.bool_], scalars: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    """measure.relative_difference of each statistic, the largest of the four. The Norm of a 0-d tensor counts without its sign."""
    import numpy as np

    a, b = ours.copy(), theirs.copy()
    a[scalars, 3], b[scalars, 3] = np.abs(a[scalars, 3]), np.abs(b[scalars, 3])
    scale = np.zeros_like(a)
    scale[:, :3] = np.maximum(np.abs(a[:, :2]), np.abs(b[:, :2])).max(1)[:, None]
    largest = np.maximum(np.maximum(np.abs(a), np.abs(b)), scale)
    sizes = np.where(largest > 1e-300, np.abs(a / 2 - b / 2) / (largest / 2), np.abs(a - b) / largest)
    most: npt.NDArray[np.float64] = np.where(equal | (a == b), 0.0, sizes).max(1)
    return most


def _with_equal(texts: Sequence[str], target: Row, golden: Row) -> tuple[str, ...]:
    """`0` where two statistics are equal, `inf` relative to 0."""
    cells = list(texts)
    for index, (a, b) in enumerate(zip(target.statistics, golden.statistics, strict=True)):
        if a == b:
            cells[index] = cells[index + 4] = "0"
        elif b == 0:
            cells[index + 4] = "inf"
    return tuple(cells)
