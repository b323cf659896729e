"""What a dump recorded of each call, in numbers that are equal exactly when the records are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import xxhash

from msprobe.comparison.calls import is_overwritten, overwritten_input, returns_memory
from msprobe.comparison.judge import Mode
from msprobe.comparison.measure_md5 import checksum
from msprobe.comparison.rows import Call, Row
from msprobe.errors import DumpFormatError
from msprobe.format import tensor_file

_KEEPS_SOME = frozenset({"__setitem__", "batch_isend_irecv"})


class Fingerprint(NamedTuple):
    """Of one call. Two are equal exactly when the recorded values are equal in every bit.

    Attributes:
        inputs, parameters, outputs: of the rows of a role; memory that the call overwrites, or that nobody has set, is left out.
        not_compared: how many values have nothing to be compared by.
    """

    inputs: int
    parameters: int
    outputs: int
    not_compared: int


class Fingerprints:
    """Makes them for the calls of one dump.

    Args:
        mode: by what values are compared: the bytes of tensor files, checksums, or Max, Min, Mean and Norm, all four equal.
        directory: where the tensor files lie.
    """

    def __init__(self, mode: Mode, directory: Path) -> None:
        self._mode = mode
        self._directory = directory
        self._files: dict[tuple[int, int], str] = {}

    def of(self, call: Call) -> Fingerprint:
        written = overwritten_input(call.parts) if call.parts.api not in _KEEPS_SOME else None
        inputs: list[str] = []
        parameters: list[str] = []
        outputs: list[str] = []
        not_compared = 0
        for row in call.rows:
            if row.role == "input" and written is not None and is_overwritten(row, written):
                continue
            if row.role not in ("input", "parameters") and returns_memory(call.parts):
                continue
            identity = self._identity(row)
            if identity is None:
                not_compared += 1
                identity = ""
            where = inputs if row.role == "input" else parameters if row.role == "parameters" else outputs
            where.append(f"{row.key}\0{row.dtype}\0{row.shape}\0{row.requires_grad}\0{identity}")
        return Fingerprint(_number(inputs), _number(parameters), _number(outputs), not_compared)

    def _identity(self, row: Row) -> str | None:
        """The value as text; None where nothing tells one value from another."""
        if row.kind != "tensor":
            return repr(row.value)
        if row.value == 0:
            return "empty"
        if self._mode == "md5":
            found = checksum(row)
            if found != "N/A":
                return found
        elif self._mode == "tensor" and row.data_name is not None:
            return self._of_file(row)
        return None if row.statistics.count(None) == 4 else repr(row.statistics)

    def _of_file(self, row: Row) -> str | None:
        name = row.data_name
        if name is None or os.path.basename(name) != name or name in ("", ".", "..") or "\0" in name:
            return None
        path = self._directory / name
        try:
            status = path.stat()
            key = status.st_dev, status.st_ino
            if key not in self._files:
                data = tensor_file.read(path)
                self._files[key] = f"{data.dtype} {data.shape} {xxhash.xxh3_128_hexdigest(data.data)}"
            return self._files[key]
        except (OSError, ValueError, DumpFormatError):
            return None


def _number(texts: Sequence[str]) -> int:
    return xxhash.xxh3_128_intdigest("\1".join(texts).encode("utf-8", "surrogatepass")) if texts else 0


def groups(values: Iterable[object | None]) -> tuple[int, ...]:
    """For each value the number of its group, equal values in one, numbered from 0 in the order in which they come; -1 for None."""
    numbers: dict[object, int] = {}
    return tuple(-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values)
