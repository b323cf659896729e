"""Which tool made a dump. It matters for statistics: each tool adds up in its own way, so that those of two never agree to the last bit."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from msprobe.comparison.rows import Call
from msprobe.format import layout

_NARROW = frozenset({"torch.float32", "torch.float16", "torch.bfloat16"})


def are_of_two_tools(target: Path, golden: Path, calls: tuple[Sequence[Call], Sequence[Call]], notes: list[str]) -> bool:
    """Whether the two dump.json were made by different tools.

    Only msprobe writes a meta.json. Where one side lacks it, what its statistics look like decides: msprobe accumulates in float64, the
    existing tool in the dtype of the tensor, so that its Mean and Norm of a float32 tensor are float32 numbers.

    Args:
        target, golden: the two files; `calls`: what they hold.
        notes: gets a sentence where one side has no meta.json.
    """
    known = [(path.parent / layout.META).is_file() for path in (target, golden)]
    if known[0] == known[1]:
        return False
    side = known.index(False)
    if not _accumulated_in_float64(calls[side]):
        notes.append("the two dumps were made by different tools, whose statistics are rounded differently")
        return True
    notes.append(f"{(target, golden)[side].parent} has no {layout.META}; its statistics look like those of msprobe and are taken as such")
    return False


def _accumulated_in_float64(calls: Sequence[Call]) -> bool:
    """Whether a Mean or a Norm of a narrow tensor has more digits than float32 holds."""
    for call in calls:
        for row in call.rows:
            if row.kind == "tensor" and row.dtype in _NARROW and any(_is_wide(value) for value in row.statistics[2:]):
                return True
    return False


def _is_wide(value: object) -> bool:
    if type(value) is not float or value != value:
        return False
    try:
        return bool(struct.unpack("f", struct.pack("f", value))[0] != value)
    except OverflowError:
        return True
