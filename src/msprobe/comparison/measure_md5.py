"""Measures pairs of a dump that holds checksums (`summary_mode` md5 or xor): equal or not, nothing else."""

from __future__ import annotations

import math
import zlib

from msprobe.comparison.measure import Agreement, Measure
from msprobe.comparison.measure_instead import by_statistics
from msprobe.comparison.rows import Row

COLUMNS = ("NPU MD5", "BENCH MD5")


def checksum(row: Row) -> str:
    """The recorded checksum; for what is no tensor the CRC-32 of its text; `N/A` for a tensor that has none."""
    if row.md5 is not None:
        return str(row.md5)
    if row.kind == "tensor":
        return "N/A"
    return f"{zlib.crc32(str(row.value).encode('utf-8', 'surrogatepass')):08x}"


class Md5Measurer:
    """Measures rows by their checksums."""

    columns: tuple[str, ...] = COLUMNS

    def __call__(self, target: Row, golden: Row) -> Measure:
        ours, theirs = checksum(target), checksum(golden)
        cells = (ours, theirs)
        if ours == theirs == "N/A":
            if target.value == 0 and golden.value == 0:
                return Measure(cells, Agreement.SAME if target.shape == golden.shape else Agreement.DIFFERENT)
            unknown = Measure(cells, Agreement.UNKNOWN, reason="neither side recorded a checksum of this tensor")
            return by_statistics(target, golden, unknown)
        if "N/A" in cells:
            side = "target" if ours == "N/A" else "golden"
            unknown = Measure(cells, Agreement.UNKNOWN, reason=f"the {side} side recorded no checksum of this tensor", lost=True)
            return by_statistics(target, golden, unknown)
        if ours == theirs and target.shape == golden.shape and target.dtype == golden.dtype:
            return Measure(cells, Agreement.SAME)
        return Measure(cells, Agreement.DIFFERENT, math.inf)
