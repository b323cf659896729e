"""The cells of the rows, in blocks of calls: the page unpacks a block when a call of it is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msprobe.comparison import report_csv
from msprobe.comparison.compared import Compared
from msprobe.comparison.reports.full_rows import STACK, full_rows
from msprobe.comparison.reports.report_html.packing import plain

BLOCK = 1024
"""Calls in a block: some thousand rows, which a browser unpacks in a few milliseconds."""


def blocks(compared: Compared, pictures: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    """Blocks of `BLOCK` calls: `cells`, a list for each column of the tree's header, and which of the rows has which picture.

    Args:
        pictures: number of a row -> number of its picture.
    """
    header = report_csv.header(compared)
    kept = [column for column, name in enumerate(header) if name != STACK]
    message = header.index("Err_message")
    cells: list[list[Any]] = [[] for _ in kept]
    drawn: dict[str, int] = {}
    in_block = begun = 0
    for number, row in enumerate(full_rows(compared)):
        while row.number >= begun + BLOCK:
            yield {"cells": cells, "pictures": drawn}
            cells, drawn = [[] for _ in kept], {}
            begun += BLOCK
            in_block = 0
        for place, column in enumerate(kept):
            cells[place].append(list(row.verdict.messages) if column == message else plain(row.cells[column]))
        if number in pictures:
            drawn[str(in_block)] = pictures[number]
        in_block += 1
    while begun < len(compared.calls):
        yield {"cells": cells, "pictures": drawn}
        cells, drawn = [[] for _ in kept], {}
        begun += BLOCK
