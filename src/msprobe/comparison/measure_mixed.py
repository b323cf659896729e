"""Measures rows of two statistics dumps of which some have tensor files (`tensor_list`): those by their tensors, the rest by statistics."""

from __future__ import annotations

from pathlib import Path

from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.measure_statistics import COLUMNS, StatisticsMeasurer
from msprobe.comparison.measure_tensors import TensorMeasurer
from msprobe.comparison.rows import Row


class MixedMeasurer:
    """The cells are those of statistics; how well two values agree is read from their tensors where both sides have a file.

    Statistics cannot see another order of the same values; the tensors show it. A file that cannot be read leaves the row not compared:
    what was recorded of it was not seen. Where the statistics differ all the same, that stands.

    Args:
        target, golden: the directories that hold the tensor files.
    """

    columns: tuple[str, ...] = COLUMNS

    def __init__(self, target: Path, golden: Path) -> None:
        self._statistics = StatisticsMeasurer()
        self._tensors = TensorMeasurer(target, golden)

    def __call__(self, target: Row, golden: Row) -> Measure:
        measure = self._statistics(target, golden)
        if target.data_name is None or golden.data_name is None:
            return measure
        by_tensors = self._tensors(target, golden)
        if measure.agreement is Agreement.DIFFERENT and by_tensors.agreement in (Agreement.UNKNOWN, Agreement.SAME):
            return measure  # no file to see, or files that contradict what was recorded
        return by_tensors._replace(cells=measure.cells, norm_relative=measure.norm_relative)
