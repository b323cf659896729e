"""Which pairs of tensors get a picture of their errors, and what it is drawn from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from msprobe.comparison.calls import Measured
from msprobe.comparison.compared import Compared
from msprobe.comparison.measure import Agreement
from msprobe.comparison.reports.histograms import distribution
from msprobe.comparison.rows import Row
from msprobe.comparison.thresholds import ROUNDING
from msprobe.errors import DumpFormatError
from msprobe.format import tensor_file

LIMIT = 40
"""Pictures for each pair of dumps: those of the first difference, then the largest differences."""

ELEMENTS = 1 << 27
"""Elements looked at for the pictures of one pair of dumps; what would exceed it gets none. About five seconds."""


def pictures(compared: Compared) -> dict[int, dict[str, Any]]:
    """Number of a row -> its picture, in the order of importance. A file that cannot be read gives none."""
    if compared.tensor_dirs is None:
        return {}
    found: dict[int, dict[str, Any]] = {}
    left = ELEMENTS
    for number, row in _candidates(compared):
        ours, theirs = row.pair
        assert ours is not None and theirs is not None
        if not isinstance(ours.value, int) or ours.value > left:
            continue
        left -= ours.value
        picture = _picture(ours, theirs, *compared.tensor_dirs)
        if picture is not None:
            found[number] = picture
        if len(found) == LIMIT:
            break
    return found


def _candidates(compared: Compared) -> list[tuple[int, Measured]]:
    first = compared.findings.first
    blamed = {id(row.pair) for row in first.rows} if first is not None else set()
    found: list[tuple[bool, float, int, Measured]] = []
    number = 0
    for call in compared.calls:
        for row in call.rows:
            (ours, theirs), measure = row
            if measure is not None and measure.agreement >= Agreement.ROUNDING and _has_file(ours) and _has_file(theirs):
                found.append((id(row.pair) not in blamed, -measure.size, number, row))
            number += 1
    found.sort(key=lambda item: item[:3])
    return [(number, row) for _, _, number, row in found]


def _has_file(row: Row | None) -> bool:
    return row is not None and row.kind == "tensor" and row.data_name is not None


def _picture(ours: Row, theirs: Row, target: Path, golden: Path) -> dict[str, Any] | None:
    try:
        a, b = (_read(directory, row) for directory, row in ((target, ours), (golden, theirs)))
        told = distribution(a, b)
    except (DumpFormatError, OSError, ValueError, KeyError):  # the row itself tells what is wrong with the file
        return None
    coarser = max((ROUNDING.get(dtype, 0.0) for dtype in (a.dtype, b.dtype)), default=0.0)
    return {
        "numel": told.numel,
        "equal": told.equal,
        "nonfinite": told.nonfinite,
        "sizes": sorted(told.sizes.items()),
        "grid": sorted([column, row, count] for (column, row), count in told.grid.items()),
        "zeros": sorted(told.zeros.items()),
        "worst": [[list(index), _text(x), _text(y)] for index, x, y in told.worst],
        "rounding": coarser,
    }


def _read(directory: Path, row: Row) -> tensor_file.TensorData:
    name = row.data_name or ""
    if os.path.basename(name) != name or name in ("", ".", "..") or "\0" in name:
        raise DumpFormatError(f"the file name {name!r} leaves its directory")
    return tensor_file.read(os.path.join(directory, name))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
