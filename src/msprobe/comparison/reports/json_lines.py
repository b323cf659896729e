"""The rows of one pair of dumps for machines: one JSON object a line, the first of them a header."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from msprobe import __version__
from msprobe.comparison import report_csv
from msprobe.comparison.compared import Compared
from msprobe.comparison.reports.full_rows import STACK, full_rows
from msprobe.comparison.reports.new_file import new_file
from msprobe.comparison.stacks import frames_of

FORMAT = "msprobe.compare.rows"
VERSION = 1
"""Of the format. It changes when a key changes its meaning or goes; keys may be added."""

_LEFT_OUT = frozenset({STACK, "Result", "Err_message"})  # these have keys of their own, with values instead of texts
_WORDS = {"Nan": "NaN", " inf": "Infinity", " -inf": "-Infinity", "inf": "Infinity", "-inf": "-Infinity", "N/A": None, "None": None}


def write(compared: Compared, directory: Path, name: str) -> Path:
    """Writes `{name}.jsonl`: UTF-8, strict JSON (RFC 8259). Returns its path; raises OSError."""
    with new_file(directory, name, "jsonl") as (path, stream):
        for line in lines(compared):
            stream.write(_encoded(line))
            stream.write(b"\n")
    return path


def lines(compared: Compared) -> Iterator[dict[str, Any]]:
    """The header, then the rows. Numbers that JSON cannot spell are "NaN", "Infinity" and "-Infinity"; what there is not is null."""
    pair, header = compared.pair, report_csv.header(compared)
    keys = [snake(name) for name in header]
    kept = [i for i, name in enumerate(header) if name not in _LEFT_OUT]
    spelled = compared.metrics if compared.mode != "md5" else ()  # numbers that the CSV spells as texts
    metrics = {header.index(name) for name in spelled}
    yield {
        "format": FORMAT,
        "version": VERSION,
        "msprobe": __version__,
        "target": str(pair.target),
        "golden": str(pair.golden),
        "step": pair.step,
        "rank": pair.label or None,
        "mode": compared.mode,
        "columns": [keys[i] for i in kept],
        "notes": list(compared.notes),
    }
    stacks = compared.stacks or {}
    for row in full_rows(compared):
        cells = row.cells
        line: dict[str, Any] = {
            "call": row.call.name,
            "direction": row.call.parts.direction or None,
            "role": row.role,
            "key": row.key,
            "result": row.verdict.result,
            "messages": row.verdict.messages,
            "step": pair.step,
            "rank": pair.label or None,
            "parent": (compared.parents if row.call.pair.target is not None else compared.golden_parents).get(row.call.name),
        }
        for i in kept:
            line[keys[i]] = _number(cells[i]) if i in metrics else _value(cells[i])
        line["stack"] = (frames_of(row.call.name, stacks) or None) if row.first and row.call.pair.target is not None else None
        yield line


def snake(column: str) -> str:
    """`MaxRelativeErr` and `Max Relative Err` as `max_relative_err`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[\s_]+", "_", column).lower()


def _value(cell: Any) -> Any:
    if type(cell) is float and not math.isfinite(cell):
        return "NaN" if cell != cell else "Infinity" if cell > 0 else "-Infinity"
    return None if cell == "N/A" else cell


def _number(cell: Any) -> Any:
    """A metric as a number; a relative error of statistics in per cent. What is none (`unsupported`, `Diff`) stays a text."""
    if type(cell) is not str:
        return _value(cell)
    if cell in _WORDS:
        return _WORDS[cell]
    text = cell.removesuffix("%")
    try:
        return int(text) if text.lstrip("-").isdigit() else _value(float(text))
    except ValueError:
        return cell


def _encoded(line: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(line)
    except (TypeError, orjson.JSONEncodeError):  # an integer beyond 64 bits; half of a surrogate pair
        return json.dumps(line, allow_nan=False, default=str).encode()
