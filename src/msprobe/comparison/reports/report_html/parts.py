"""From one compared pair to its part of the page."""

from __future__ import annotations

from msprobe.comparison.compared import Compared
from msprobe.comparison.outcome import Page
from msprobe.comparison.reports.report_html.code import code
from msprobe.comparison.reports.report_html.packing import pack
from msprobe.comparison.reports.report_html.pictures import pictures
from msprobe.comparison.reports.report_html.tree import first_calls, tree
from msprobe.comparison.reports.report_html.values import blocks


def part(compared: Compared) -> Page:
    """Reads the tensor files of the rows that get a picture, and the user's source files; raises for neither."""
    drawn = pictures(compared)
    numbers = {row: number for number, row in enumerate(drawn)}
    return Page(
        tree=pack(tree(compared)),
        code=pack(code(compared)),
        blocks=tuple(map(pack, blocks(compared, numbers))),
        pictures=tuple(map(pack, drawn.values())),
        first=first_calls(compared),
    )
