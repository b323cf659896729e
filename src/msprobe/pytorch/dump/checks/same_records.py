"""Whether two records say that values were the same, bit for bit as far as they can tell."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum
from typing import Any

from msprobe.pytorch.dump.checks.unread import Unread

STATISTICS = ("Max", "Min", "Mean", "Norm")


class Verdict(Enum):
    """Of two records; what was not compared is never the same."""

    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"


def verdict(ours: Any, theirs: Any, *, plain: bool, statistics: tuple[str, ...] = STATISTICS) -> Verdict:
    """Compare two records of any nesting.

    Tensors are compared by dtype, shape and checksum, and by their statistics where one of them has no checksum of the other's kind.

    Args:
        ours, theirs: records, with `Unread` where null stands for a value, as far as that is known.
        plain: numbers, texts and so on count too, not only tensors.
        statistics: those that are worth comparing.
    """
    for one, other in ((ours, theirs), (theirs, ours)):
        if isinstance(one, Unread):
            return Verdict.OTHER if one is Unread.OBJECT and other is not None and not isinstance(other, Unread) else Verdict.UNKNOWN
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return Verdict.OTHER
        return together(verdict(a, b, plain=plain, statistics=statistics) for a, b in zip(ours, theirs, strict=True))
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return Verdict.SAME if ours is None and theirs is None else Verdict.OTHER
    if is_tensor(ours) and is_tensor(theirs):
        return _tensors(ours, theirs, statistics)
    if is_value(ours) and is_value(theirs):
        return Verdict.SAME if not plain or _same_value(ours, theirs) else Verdict.OTHER
    if is_tensor(ours) or is_tensor(theirs) or is_value(ours) or is_value(theirs) or ours.keys() != theirs.keys():
        return Verdict.OTHER
    return together(verdict(ours[key], theirs[key], plain=plain, statistics=statistics) for key in ours)


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """Of several: one that is other makes all so, and all must be the same for them to be so."""
    seen = set(verdicts)
    return next((one for one in (Verdict.OTHER, Verdict.UNKNOWN) if one in seen), Verdict.SAME)


def _tensors(ours: dict[str, Any], theirs: dict[str, Any], statistics: tuple[str, ...]) -> Verdict:
    if ours["dtype"] != theirs["dtype"] or ours.get("shape") != theirs.get("shape"):
        return Verdict.OTHER
    if 0 in ours.get("shape", ()):
        return Verdict.SAME
    a, b = ours.get("md5"), theirs.get("md5")
    # CRC-32 is hexadecimal digits, XOR has 0x in front of them.
    if isinstance(a, str) and isinstance(b, str) and a.startswith("0x") == b.startswith("0x"):
        return Verdict.SAME if a == b else Verdict.OTHER
    if ours.get("Max") is None or theirs.get("Max") is None:
        return Verdict.UNKNOWN
    pairs = [(ours.get(key), theirs.get(key)) for key in statistics]
    return Verdict.SAME if all(_same_number(x, y) for x, y in pairs if x is not None and y is not None) else Verdict.OTHER


def is_tensor(record: dict[str, Any]) -> bool:
    """Whether a record is that of a tensor."""
    # A dict of the user's may have any keys, but none of them leads to a text.
    return isinstance(record.get("dtype"), str)


def is_value(record: dict[str, Any]) -> bool:
    """Whether a record is that of a number, a text or the like."""
    return isinstance(record.get("type"), str) and "dtype" not in record


def _same_value(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return ours.keys() == theirs.keys() and all(_same_number(ours[key], theirs[key]) for key in ours)


def _same_number(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return bool(a == b)
