"""Where gradients stand in the entries of debug.json: at the same place as the values they belong to."""

from __future__ import annotations

from typing import Any

from msprobe.writer.entry import Entry


def blank(record: Any) -> Any:
    """The same nesting with null for every value: what a gradient's entry holds before the gradient comes."""
    if type(record) is list:
        return [blank(item) for item in record]
    if type(record) is dict and not isinstance(record.get("type"), str):
        return {key: blank(item) for key, item in record.items()}
    return None


def put(entry: Entry, path: tuple[str, ...], record: Any) -> None:
    """Put a gradient into its place.

    Args:
        entry: holds the nesting.
        path: of keys, and of numbers in lists; empty where the value itself is the tensor.
        record: of the gradient.
    """
    if not path:
        entry.data = record
        return
    inside: Any = entry.data
    for key in path[:-1]:
        inside = inside[int(key)] if type(inside) is list else inside[key]
    if type(inside) is list:
        inside[int(path[-1])] = record
    else:
        inside[path[-1]] = record
