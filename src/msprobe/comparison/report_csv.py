"""Sixth stage: the CSV of one pair of dumps, and the summary of a dump root. Columns and spelling are a contract with scripts."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from msprobe.comparison.calls import Measured, MeasuredCall
from msprobe.comparison.compared import Compared
from msprobe.comparison.csv_text import cell, dumped_floats, harmless, joined, lines_of, spell
from msprobe.comparison.judge import Mode, Verdict
from msprobe.comparison.judging import reference
from msprobe.comparison.reports.new_file import new_file
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
_lines: Callable[..., list[str]] | None
try:
    from msprobe.comparison._csv_rows import lines as _lines
except ImportError:  # installed without a compiler
    _lines = None
_AT_ONCE = 2000
_CALLS_AT_ONCE = 500
_KEPT_STACKS = 4000
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


def columns(mode: Mode, metrics: Sequence[str], stack: bool) -> tuple[str, ...]:
    """The columns of a mode, in order. `metrics`: those of the measurer. `stack`: whether the target has a stack.json."""
    return (
        *_BASIC,
        *metrics,
        *(() if mode in ("md5", "structure") else _STATISTICS),
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
    unmatched = _unmatched(mode, metrics)
    stack_text: dict[int, str] = {}
    for call, group in zip(calls, verdicts, strict=True):
        stack = _stack_cell(call, stacks, stack_text) if stacks is not None else None
        for row, verdict in zip(call.rows, group, strict=True):
            yield _cells(row, verdict, mode, unmatched, stack)
            stack = None if stack is None else "N/A"


def _unmatched(mode: Mode, metrics: Sequence[str]) -> tuple[str, ...]:
    return ("unsupported" if mode == "tensor" else "N/A",) * len(metrics)


def _cells(row: Measured, verdict: Verdict, mode: Mode, unmatched: tuple[str, ...], stack: str | None) -> list[Any]:
    """The cells of one row. `stack`: None where there is no such column."""
    (ours, theirs), measure = row
    cells: list[Any] = [*_basic(ours, theirs)]
    if mode == "md5":
        cells += measure.cells if measure is not None else _checksums(ours, theirs)
    elif mode != "structure":
        cells += unmatched if measure is None else map(_number, measure.cells) if mode == "tensor" else measure.cells
        cells += map(_value, ours.statistics) if ours is not None else _MISSING
        cells += map(_value, theirs.statistics) if theirs is not None else _MISSING
    cells.append(ours is not None and theirs is not None and ours.requires_grad == theirs.requires_grad)
    cells.append(verdict.result)
    cells.append(_messages(verdict))
    if stack is not None:
        cells.append(stack)
    if mode == "tensor":
        cells.append(_data_names(ours, theirs))
    return cells


def _messages(verdict: Verdict) -> str:
    return json.dumps(verdict.messages, ensure_ascii=False) if verdict.messages else "[]"


def _data_names(ours: Row | None, theirs: Row | None) -> str:
    return str([_data_name(ours), _data_name(theirs)])


def text_of(compared: Compared) -> Iterator[str]:
    """What `rows_of` gives, as the text of the file, some thousand rows at a time."""
    if compared.mode == "structure" or compared.truths is not None:
        yield from lines_of(rows_of(compared))
        return
    maker = _Lines(compared)
    if _lines is not None and compared.mode == "statistics":
        for start in range(0, len(compared.calls), _CALLS_AT_ONCE):
            stop = start + _CALLS_AT_ONCE
            yield from _lines([*compared.calls[start:stop]], [*map(tuple, compared.verdicts[start:stop])], maker.context)
        return
    count = 0
    for call, group in zip(compared.calls, compared.verdicts, strict=True):
        maker.add(call, group)
        count += len(group)
        if count >= _AT_ONCE:
            yield maker.take()
            count = 0
    yield maker.take()


class _Lines:
    """Text of rows: what recurs is kept, and numbers are spelled many at once."""

    def __init__(self, compared: Compared) -> None:
        self._mode: Mode = compared.mode
        self._unmatched = _unmatched(compared.mode, compared.metrics)
        self._stacks = compared.stacks
        self._stack_text: dict[int, str] = {}
        self._kinds: dict[tuple[str, ...], str] = {}
        self._ends: dict[tuple[bool, Verdict], str] = {}
        # Of each row: what stands before its numbers, what behind them, and whether it has any.
        self._rows: list[tuple[str, str, bool]] = []
        self._numbers: list[tuple[Any, ...]] = []
        self._metrics: list[Sequence[Any]] = []
        # What the twin in C needs to know.
        self.context = (self._kinds, _middle, self._ends, _end, self._stacks, self._stack, self._line, dumped_floats)

    def add(self, call: MeasuredCall, verdicts: Sequence[Verdict]) -> None:
        """Takes the rows of one call."""
        mode, kinds, ends, numbers = self._mode, self._kinds, self._ends, self._numbers
        stack = self._stack(call)
        later = stack and ",N/A"
        for row, verdict in zip(call.rows, verdicts, strict=True):
            (ours, theirs), measure = row
            if measure is None or ours is None or theirs is None:
                self._rows.append((self._line(call, row, verdict, stack is not later), "", False))
                stack = later
                continue
            kind = (ours.dtype, theirs.dtype, ours.shape, theirs.shape, ours.requires_grad, theirs.requires_grad)
            middle = kinds.get(kind)
            if middle is None:
                middle = kinds[kind] = _middle(kind)
            same = ours.requires_grad == theirs.requires_grad
            end = ends.get((same, verdict))
            if end is None:
                end = ends[same, verdict] = _end((same, verdict))
            name = _name_cell(ours.name)
            other = name if ours.name == theirs.name else _name_cell(theirs.name)
            if mode == "statistics":
                self._rows.append((f"{name},{other},{middle},{joined(measure.cells)},", f"{end}{stack}\n", True))
                numbers.append(ours.statistics + theirs.statistics)
            elif mode == "tensor":
                self._rows.append((f"{name},{other},{middle},", f"{end}{stack},{cell(_data_names(ours, theirs))}\n", True))
                numbers.append(ours.statistics + theirs.statistics)
                self._metrics.append(measure.cells)
            else:
                self._rows.append((f"{name},{other},{middle},{','.join(map(cell, measure.cells))}{end}{stack}\n", "", False))
            stack = later

    def take(self) -> str:
        """The text of all rows since the last time."""
        numbers = iter(zip(spell(self._numbers), self._numbers, strict=True))
        metrics = iter(zip(spell(self._metrics), self._metrics, strict=True))
        parts: list[str] = []
        for head, end, has_numbers in self._rows:
            if not has_numbers:
                parts.append(head)
                continue
            text, values = next(numbers)
            if text is None:
                text = ",".join([_field(_value(value)) for value in values])
            if self._mode == "tensor":
                measured, cells = next(metrics)
                head = f"{head}{measured if measured is not None else ','.join([_field(_number(value)) for value in cells])},"
            parts.append(f"{head}{text}{end}")
        self._rows, self._numbers, self._metrics = [], [], []
        return "".join(parts)

    def _line(self, call: MeasuredCall, row: Measured, verdict: Verdict, is_first: bool) -> str:
        """The line of any row, as `rows` has it."""
        stack = None if self._stacks is None else _stack_cell(call, self._stacks, {}) if is_first else "N/A"
        return ",".join(map(_field, _cells(row, verdict, self._mode, self._unmatched, stack))) + "\n"

    def _stack(self, call: MeasuredCall) -> str:
        """The field of the first row of a call, with the comma before it; "" without such a column."""
        if self._stacks is None:
            return ""
        frames = frames_of(call.name, self._stacks) if call.pair.target is not None else ()
        found = self._stack_text.get(id(frames))
        if found is None:
            if len(self._stack_text) > _KEPT_STACKS:
                self._stack_text.clear()
            found = self._stack_text[id(frames)] = "," + (cell(repr(list(frames))) if frames else "N/A")
        return found


def _middle(kind: tuple[str, ...]) -> str:
    """dtype, shape and requires_grad of both sides."""
    return ",".join(map(cell, kind))


def _end(key: tuple[bool, Verdict]) -> str:
    """What stands behind the numbers. `key`: whether requires_grad is consistent, and the verdict."""
    same, verdict = key
    return f",{same},{verdict.result},{cell(_messages(verdict))}"


def _name_cell(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) is not None else cell(harmless(name))


def _field(value: Any) -> str:
    return repr(value) if type(value) is float else cell(value) if type(value) is str else str(value)


def _basic(ours: Row | None, theirs: Row | None) -> tuple[str, ...]:
    if ours is None:
        ours = _NOTHING
    if theirs is None:
        theirs = _NOTHING
    return (
        harmless(ours.name),
        harmless(theirs.name),
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
    return harmless(value) if type(value) is str else value


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

    Returns the path written; until the file is complete its name ends in `.part`. Raises OSError; then no file is left.
    """
    return write_text(directory, f"{stem}_{suffix}", chain(lines_of(iter([tuple(header)])), lines_of(iter(lines))))


def write_pair(directory: Path, stem: str, suffix: str, compared: Compared) -> Path:
    """`write` for the rows of one pair of dumps."""
    return write_text(directory, f"{stem}_{suffix}", chain(lines_of(iter([header(compared)])), text_of(compared)))


def write_text(directory: Path, name: str, parts: Iterable[str]) -> Path:
    """Writes text into a new file `{name}.csv`; see `write`."""
    with new_file(directory, name, "csv") as (path, stream):
        # A dump may hold text that UTF-8 cannot spell (half of a surrogate pair).
        stream.writelines(part.encode("utf-8", "backslashreplace") for part in parts)
    return path


__all__ = ["columns", "header", "rows", "rows_of", "text_of", "timestamp", "write", "write_pair"]
