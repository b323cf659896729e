"""merge_result: the same column of the results of several ranks side by side."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from msprobe.comparison import report_csv
from msprobe.comparison.merge_config import MergeConfig
from msprobe.comparison.reports.new_file import new_file
from msprobe.comparison.result_tables import ResultFile, read_table, result_files
from msprobe.comparison.temporary import temporary_directory
from msprobe.errors import UsageError
from msprobe.format import layout

STEM = "multi_ranks_compare_merge"
_NAME = "NPU Name"
_BASIC_END, _VALUES = "Bench Requires_grad", ("NPU max", "Bench max")
_NO_NUMBER = frozenset({"N/A", "unsupported", "Nan", "nan", "shape unmatched", ""})
_CHECKSUMS = ("NPU MD5", "BENCH MD5", "Result")


@dataclass(frozen=True)
class Merged:
    """What was merged.

    Attributes:
        ranks: their numbers.
        names: the rows, in the order of the results: what only later ranks have stands behind what it follows there.
        tables: column -> row -> rank -> its cell; a rank that lacks the row has none.
        notes: what the reader should know, one sentence each.
    """

    ranks: tuple[int, ...]
    names: tuple[str, ...]
    tables: Mapping[str, Mapping[str, Mapping[int, str]]]
    notes: tuple[str, ...]


@dataclass
class _Table:
    rank: int
    path: Path
    header: list[str]
    rows: dict[str, list[str]] = field(default_factory=dict)


def merge_result(source: Path, output: Path, config: MergeConfig) -> list[tuple[Merged, list[Path]]]:
    """Merges the results in a directory, or of each step of a dump root's results, and writes the files.

    Args:
        source: holds `compare_result_rank*.csv` or `.xlsx`, or `step*` with these.
        output: gets `multi_ranks_compare_merge_{time}.xlsx` with one sheet for each column, and a CSV for each beside it (in `step{N}`
            for a root).
        config: which calls, which columns.

    Returns:
        For each directory what was merged, and the files.

    Raises:
        UsageError: there are fewer than two ranks, a file is no result, a column does not exist, or no row belongs to `api`.
        OSError: a file cannot be written.
    """
    if not source.exists():
        raise UsageError(f"{source} does not exist")
    files = result_files(source)
    steps = {} if files else layout.steps(source)
    if not steps:
        merged = merge(files, config, source)
        return [(merged, _write(merged, output))]
    done: list[tuple[Merged, list[Path]]] = []
    for step, directory in steps.items():
        merged = merge(result_files(directory), config, directory)
        done.append((merged, _write(merged, Path(layout.step_dir(output, step)))))
    return done


def merge(files: Sequence[ResultFile], config: MergeConfig, source: Path) -> Merged:
    """Reads the results and puts them side by side; `source` is for messages. Raises UsageError as merge_result does."""
    if len(files) < 2:
        have = f"there is only {files[0].path.name}" if files else "there is none"
        raise UsageError(f"{source} must hold the results of two ranks at least, compare_result_rank*.csv or .xlsx; {have}")
    tables = [_read(file, config) for file in files]
    columns = _columns(tables, config)
    names = _order([list(table.rows) for table in tables])
    if not names:
        raise UsageError(
            f"no row in {source} belongs to {', '.join(config.api) or 'any call'}; rows are called as in {tables[0].path.name}"
        )
    notes = [f"{file.path.name}: {file.older} older results of rank {file.rank} lie beside it" for file in files if file.older]
    seen = {config.takes(name) for name in names}
    notes += [f"no row belongs to {api!r}" for api in config.api if api not in seen]
    values = {
        column: {name: {table.rank: _cell(table, name, column) for table in tables if name in table.rows} for name in names}
        for column in columns
    }
    return Merged(tuple(table.rank for table in tables), tuple(names), values, tuple(notes))


def _read(file: ResultFile, config: MergeConfig) -> _Table:
    lines = read_table(file.path)
    table = _Table(file.rank, file.path, next(lines))
    for line in lines:
        name = line[0] if line[0] != "N/A" else line[1]  # a row that only the golden dump has
        if config.takes(name) is not None:
            table.rows.setdefault(name, line)
    return table


def _columns(tables: Sequence[_Table], config: MergeConfig) -> list[str]:
    if config.compare_index:
        for column in config.compare_index:
            for table in tables:
                if column not in table.header:
                    close = difflib.get_close_matches(column, table.header, n=1)
                    hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(table.header[8:])}"
                    raise UsageError(f"compare_index: {table.path} has no column {column!r}; {hint}")
        return list(config.compare_index)
    for table in tables[1:]:
        if list(_measured(table.header)) != list(_measured(tables[0].header)):
            raise UsageError(
                f"{tables[0].path.name} and {table.path.name} were compared by different means and have other columns;"
                " compare all ranks alike, or name columns that all have in compare_index"
            )
    return list(_measured(tables[0].header))


def _measured(header: Sequence[str]) -> Sequence[str]:
    """The columns with measurements: those between the basic columns and the recorded values; of checksums, these and the result."""
    if _CHECKSUMS[0] in header:
        return _CHECKSUMS
    start = header.index(_BASIC_END) + 1 if _BASIC_END in header else len(header)
    end = header.index(_VALUES[0]) if _VALUES[0] in header else len(header)
    return header[start:end]


def _order(orders: Sequence[Sequence[str]]) -> list[str]:
    seen = set(orders[0])
    behind: dict[str, list[str]] = {}
    for order in orders[1:]:
        previous = ""
        for name in order:
            if name not in seen:
                seen.add(name)
                behind.setdefault(previous, []).append(name)
            previous = name
    merged: list[str] = []
    waiting = [*reversed(orders[0]), *reversed(behind.get("", ()))]
    while waiting:
        name = waiting.pop()
        merged.append(name)
        waiting.extend(reversed(behind.get(name, ())))
    return merged


def _cell(table: _Table, name: str, column: str) -> str:
    """The cell; where it has no number, the largest values of both sides, so that something can be seen."""
    line = table.rows[name]
    cell = line[table.header.index(column)]
    if cell in _NO_NUMBER and all(value in table.header for value in _VALUES):
        target, golden = (line[table.header.index(value)] for value in _VALUES)
        return f"NPU:{target}  Bench:{golden}"
    return cell


def _lines(merged: Merged, column: str) -> Iterator[list[str]]:
    for name in merged.names:
        cells = merged.tables[column][name]
        yield [name, *(cells.get(rank, "") for rank in merged.ranks)]


def _write(merged: Merged, output: Path) -> list[Path]:
    stamp = report_csv.timestamp()
    header = [_NAME, *(f"rank{rank}" for rank in merged.ranks)]
    paths = [_write_xlsx(merged, output, f"{STEM}_{stamp}", header)]
    for column in merged.tables:
        name = column.replace(" ", "_").replace("/", "_")
        paths.append(report_csv.write(output, STEM, f"{stamp}_{name}", header, _lines(merged, column)))
    return paths


def _write_xlsx(merged: Merged, output: Path, name: str, header: Sequence[str]) -> Path:
    import xlsxwriter  # type: ignore[import-untyped]

    from msprobe.comparison.reports import xlsx

    options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with temporary_directory() as waiting, new_file(output, name, "xlsx") as (path, stream):
        book = xlsxwriter.Workbook(stream, options | {"tmpdir": waiting})
        bold = book.add_format({"bold": True})
        for column in merged.tables:
            lines = _lines(merged, column)
            for part in range(-(-len(merged.names) // (xlsx.MAX_ROWS - 1))):  # a sheet holds a million rows, the next one the rest
                sheet = book.add_worksheet(f"{column[:27]} {part + 1}" if part else column[:31])
                sheet.freeze_panes(1, 1)
                sheet.set_column(0, 0, 60)
                sheet.set_column(1, len(merged.ranks), 18)
                sheet.write_row(0, 0, header, bold)
                number = 0
                for number, line in enumerate(islice(lines, xlsx.MAX_ROWS - 1), 1):
                    sheet.write_row(number, 0, [xlsx.text_cell(line[0]), *map(_value, line[1:])])
                sheet.autofilter(0, 0, number, len(merged.ranks))
        book.close()
    return path


def _value(text: str) -> Any:
    """A number where the text is one, for sorting in a spreadsheet."""
    try:
        number = float(text)
    except ValueError:
        return text or None
    return number if math.isfinite(number) and not set(text) & set("_xXnN") else text
