"""The rows of a comparison as a machine wants them: the cells of the CSV, with recorded texts and numbers as they were recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from msprobe.comparison import report_csv
from msprobe.comparison.calls import MeasuredCall
from msprobe.comparison.compared import Compared
from msprobe.comparison.judge import Verdict
from msprobe.comparison.rows import Row

NAMES = ("NPU Name", "Bench Name")
STATISTICS = ("NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm")
STACK = "NPU_Stack_Info"


class FullRow(NamedTuple):
    """One row. `number`: of its call; `first`: it is the first of its call; `cells`: as report_csv.header names them."""

    number: int
    call: MeasuredCall
    first: bool
    target: Row | None
    golden: Row | None
    verdict: Verdict
    cells: list[Any]

    @property
    def role(self) -> str:
        row = self.target or self.golden
        return row.role if row is not None else ""

    @property
    def key(self) -> str:
        row = self.target or self.golden
        return row.key if row is not None else ""


def full_rows(compared: Compared) -> Iterator[FullRow]:
    """All rows in the order of the CSV. A text that the CSV marks with an apostrophe stands here as it is; a missing name is None."""
    header = report_csv.header(compared)
    at = header.index(STATISTICS[0]) if STATISTICS[0] in header else None
    lines = report_csv.rows_of(compared)
    for number, (call, verdicts) in enumerate(zip(compared.calls, compared.verdicts, strict=True)):
        first = True
        for measured, verdict in zip(call.rows, verdicts, strict=True):
            ours, theirs = measured.pair
            cells = list(next(lines))
            cells[0] = ours.name if ours is not None else None
            cells[1] = theirs.name if theirs is not None else None
            if at is not None:
                cells[at : at + 4] = ours.statistics if ours is not None else (None,) * 4
                cells[at + 4 : at + 8] = theirs.statistics if theirs is not None else (None,) * 4
            yield FullRow(number, call, first, ours, theirs, verdict, cells)
            first = False
