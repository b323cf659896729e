"""Sixth stage: the CSV of one pair of dumps, and the summary of a dump root. Columns and spelling are a contract with scripts."""

from __future__ import annotations

import csv
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from msprobe.comparison.calls import MeasuredCall
from msprobe.comparison.compared import Compared
from msprobe.comparison.judge import Mode, Verdict
from msprobe.comparison.judging import reference
from msprobe.comparison.rows import Row
from msprobe.comparison.stacks import frames_of

_BASIC = (
    "NPU Name",
    "Bench Name",
    "NPU Dtype",
    "Bench Dtype",
    "NPU Tensor Shape",
    "Bench Tensor Shape",
    "NPU Requires_grad",
    "Bench Requires_grad",
)
_STATISTICS = ("NPU max", "NPU min", "NPU mean", "NPU l2norm", "Bench max", "Bench min", "Bench mean", "Bench l2norm")
_TAIL = ("Requires_grad Consistent", "Result", "Err_message")
_STACK = "NPU_Stack_Info"
_DATA_NAME = "Data_name"
_MISSING = ("N/A",) * 4
_FORMULA = frozenset("=+-@\t\r＝＋－＠")


def columns(mode: Mode, metrics: Sequence[str], stack: bool) -> tuple[str, ...]:
    """The columns of a mode, in order. `metrics`: those of the measurer. `stack`: whether the target has a stack.json."""
    return (
        *_BASIC,
        *metrics,
        *(() if mode == "md5" else _STATISTICS),
        *_TAIL,
        *((_STACK,) if stack else ()),
        *((_DATA_NAME,) if mode == "tensor" else ()),
    )


def header(compared: Compared) -> tuple[str, ...]:
    """The columns of the CSV of one pair of dumps."""
    appended = reference.COLUMNS if compared.truths is not None else ()
    return (*columns(compared.mode, compared.metrics, compared.stacks is not None), *appended)


def rows_of(compared: Compared) -> Iterator[list[Any]]:
    """The cells of the CSV of one pair of dumps."""
    found = rows(compared.calls, compared.verdicts, compared.mode, compared.metrics, compared.stacks)
    if compared.truths is None:
        return found
    return ([*line, *truth] for line, truth in zip(found, reference.cells(compared.truths), strict=True))


def rows(
    calls: Sequence[MeasuredCall],
    verdicts: Sequence[Sequence[Verdict]],
    mode: Mode,
    metrics: Sequence[str],
    stacks: Mapping[str, Sequence[str]] | None,
) -> Iterator[list[Any]]:
    """The cells of every row. `stacks`: stack.json of the target, None when there is none."""
    unmatched: tuple[str, ...] = ("unsupported" if mode == "tensor" else "N/A",) * len(metrics)
    stack_text: dict[int, str] = {}
    for call, group in zip(calls, verdicts, strict=True):
        stack = _stack_cell(call, stacks, stack_text) if stacks is not None else ""
        for ((ours, theirs), measure), verdict in zip(call.rows, group, strict=True):
            cells: list[Any] = [*_basic(ours, theirs)]
            if mode == "md5":
                cells += measure.cells if measure is not None else _checksums(ours, theirs)
            else:
                cells += unmatched if measure is None else map(_number, measure.cells) if mode == "tensor" else measure.cells
                cells += map(_value, ours.statistics) if ours is not None else _MISSING
                cells += map(_value, theirs.statistics) if theirs is not None else _MISSING
            cells.append(ours is not None and theirs is not None and ours.requires_grad == theirs.requires_grad)
            cells.append(verdict.result)
            cells.append(json.dumps(verdict.messages, ensure_ascii=False) if verdict.messages else "[]")
            if stacks is not None:
                cells.append(stack)
                stack = "N/A"
            if mode == "tensor":
                cells.append(str([_data_name(ours), _data_name(theirs)]))
            yield cells


def _basic(ours: Row | None, theirs: Row | None) -> tuple[str, ...]:
    if ours is None:
        ours = _NOTHING
    if theirs is None:
        theirs = _NOTHING
    return (
        _text(ours.name),
        _text(theirs.name),
        ours.dtype,
        theirs.dtype,
        ours.shape,
        theirs.shape,
        ours.requires_grad,
        theirs.requires_grad,
    )


_NOTHING = Row("N/A", "", "input", "null", "N/A", "N/A", "N/A", (None, None, None, None), None, None, None)


def _checksums(ours: Row | None, theirs: Row | None) -> tuple[str, str]:
    from msprobe.comparison.measure_md5 import checksum

    return checksum(ours) if ours is not None else "N/A", checksum(theirs) if theirs is not None else "N/A"


def _data_name(row: Row | None) -> str:
    return row.data_name if row is not None and row.data_name is not None else "N/A"


def _number(value: Any) -> Any:
    if type(value) is float and not math.isfinite(value):
        return "Nan" if value != value else " inf" if value > 0 else " -inf"
    return value


def _value(value: Any) -> Any:
    if type(value) is float:
        return value if math.isfinite(value) else _number(value)
    if value is None:
        return "None"
    return _text(value) if type(value) is str else value


def _text(text: str) -> str:
    """A recorded text as a cell. One that a spreadsheet would run as a formula gets an apostrophe in front."""
    return "'" + text if text and text[0] in _FORMULA else text


def _stack_cell(call: MeasuredCall, stacks: Mapping[str, Sequence[str]], texts: dict[int, str]) -> str:
    frames = frames_of(call.name, stacks) if call.pair.target is not None else ()
    if not frames:
        return "N/A"
    if id(frames) not in texts:
        texts[id(frames)] = repr(list(frames))
    return texts[id(frames)]


def timestamp() -> str:
    """`YYYYmmddHHMMSS` of now, as file names carry it."""
    return time.strftime("%Y%m%d%H%M%S")


def write(directory: Path, stem: str, suffix: str, header: Iterable[str], lines: Iterable[Sequence[Any]]) -> Path:
    """Writes `{stem}_{suffix}.csv` (UTF-8, LF) into `directory`, which is made if need be; an existing file is never overwritten.

    Returns the path written. Raises OSError; then no file is left.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path, stream = _create(directory, f"{stem}_{suffix}")
    try:
        with stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(header)
            writer.writerows([[_one_line(cell) for cell in line] for line in lines])
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _one_line(cell: Any) -> Any:
    """A cell without control characters: one line of the file is one row, and nothing in it commands a terminal."""
    if type(cell) is str and not cell.isprintable():
        return "".join(c if c.isprintable() or ord(c) > 159 else c.encode("unicode_escape").decode() for c in cell)
    return cell


def _create(directory: Path, name: str) -> tuple[Path, TextIO]:
    counter = 0
    while True:
        path = directory / (f"{name}_{counter}.csv" if counter else f"{name}.csv")
        try:
            # A dump may hold text that UTF-8 cannot spell (half of a surrogate pair).
            return path, open(path, "x", encoding="utf-8", errors="backslashreplace", newline="", buffering=1 << 20)
        except FileExistsError:
            counter += 1


__all__ = ["columns", "header", "rows", "rows_of", "timestamp", "write"]
