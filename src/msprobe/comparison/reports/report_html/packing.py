"""JSON for the page: compressed where the page unpacks it, escaped where it stands in the page as it is."""

from __future__ import annotations

import gzip
import json
import math
from typing import Any

import orjson

_EXACT = 1 << 53  # the largest integer up to which JavaScript's numbers are exact
_LEVEL = 4  # a third of the time of level 6, and a tenth more bytes


def pack(value: Any) -> bytes:
    """gzip-compressed JSON."""
    try:
        text = orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError):  # half of a surrogate pair
        text = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    return gzip.compress(text, _LEVEL, mtime=0)


def inline(value: Any) -> str:
    """JSON that can stand in a script element: nothing in it ends the element, opens another or breaks a line."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 and the like are escaped
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def plain(cell: Any) -> Any:
    """A cell as JSON and JavaScript can hold it exactly: else as text."""
    kind = type(cell)
    if kind is str or kind is bool or cell is None:
        return cell
    if kind is int:
        return cell if -_EXACT <= cell <= _EXACT else str(cell)
    if kind is float:
        if math.isfinite(cell):
            # JavaScript has one kind of number: 2.0 would come out as 2, and the reader could not see that it was no integer.
            return cell if not cell.is_integer() else repr(cell)
        return "NaN" if cell != cell else "Inf" if cell > 0 else "-Inf"
    return str(cell)
