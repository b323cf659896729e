"""The result files of a comparison, read back: CSV, and xlsx where openpyxl is installed."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msprobe.errors import UsageError

_NAME = re.compile(r"compare_result_rank(?P<rank>[0-9]+)_(?P<stamp>[0-9]+)(?:_(?P<counter>[0-9]+))?\.(?P<suffix>csv|xlsx)")
_FIRST_COLUMN = "NPU Name"


class ResultFile(NamedTuple):
    """A result file. `older`: how many others of that rank lie beside it."""

    rank: int
    path: Path
    older: int


def result_files(directory: Path) -> list[ResultFile]:
    """The newest result of each rank in a directory, by rank; a CSV before the xlsx of the same time.

    Raises:
        UsageError: it is no directory, or cannot be listed.
    """
    try:
        names = sorted(path.name for path in directory.iterdir())
    except NotADirectoryError:
        raise UsageError(f"{directory} is a file; give the directory with the results of several ranks") from None
    except OSError as error:
        raise UsageError(f"{directory} cannot be read: {error.strerror}") from None
    found: dict[int, list[tuple[str, int, bool, str]]] = {}
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None:
            found.setdefault(int(match["rank"]), []).append((match["stamp"], int(match["counter"] or 0), match["suffix"] == "csv", name))
    files: list[ResultFile] = []
    for rank in sorted(found):
        *_, newest = sorted(found[rank])
        older = {(stamp, counter) for stamp, counter, _, _ in found[rank]} - {newest[:2]}
        files.append(ResultFile(rank, directory / newest[3], len(older)))
    return files


def read_table(path: Path) -> Iterator[list[str]]:
    """Header and rows as texts.

    Raises:
        UsageError: it is no result of a comparison, or needs openpyxl and that is not installed.
    """
    yield from _xlsx(path) if path.suffix == ".xlsx" else _csv(path)


def _csv(path: Path) -> Iterator[list[str]]:
    limit = csv.field_size_limit(1 << 30)  # a stack may have more than 128 KiB
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            lines = csv.reader(stream, strict=True)  # else a file that was cut off in a quoted cell looks whole
            header = next(lines, [])
            _check(header, path)
            yield header
            for line in lines:
                if len(line) != len(header):
                    raise UsageError(f"{path}, line {lines.line_num}: {len(line)} cells under {len(header)} columns; the file was cut off")
                yield line
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        cut = "; the file was cut off" if "unexpected end" in str(error) else ""
        raise UsageError(f"{path} is no CSV of a comparison: {error}{cut}") from None
    finally:
        csv.field_size_limit(limit)


def _xlsx(path: Path) -> Iterator[list[str]]:
    try:
        import openpyxl  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise UsageError(
            f"{path} is an xlsx, and reading it needs openpyxl (pip install openpyxl); or compare without --xlsx, the CSV is read as it is"
        ) from None
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # openpyxl raises what it meets: zipfile's, its own, KeyError
        raise UsageError(f"{path} is no xlsx file: {error}") from None
    header: list[str] = []
    try:
        for sheet in book.worksheets:
            lines = (["" if cell is None else str(cell) for cell in line] for line in sheet.iter_rows(values_only=True))
            first = next(lines, [])
            if first[:1] != [_FIRST_COLUMN]:
                continue  # a summary
            if not header:
                header = first
                yield header
            for line in lines:
                yield [*line, *[""] * (len(header) - len(line))]
    finally:
        book.close()
    _check(header, path)


def _check(header: list[str], path: Path) -> None:
    if header[:1] != [_FIRST_COLUMN]:
        raise UsageError(f"{path} is no result of a comparison: its first column is not {_FIRST_COLUMN!r}")
