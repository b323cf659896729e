"""Which nulls of an entry stand for a value that was there; dump.json has no other word for None."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, cast

import numpy as np
import torch

from msprobe.format import unread
from msprobe.format.unread import LEFT_OUT, Note
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump import summaries, unusual
from msprobe.pytorch.dump.encoder import Encoder, NoResult, Path, Record, Save, Side
from msprobe.pytorch.dump.summaries import Holds

_LABELS = {"input_args": "input", "input_kwargs": "input", "input": "input", "output": "output", "parameters": "parameters"}
_LARGEST = float(np.finfo(np.float64).max)


class Unread(Enum):
    """Stands in a record, while it is looked at, where dump.json gets null."""

    OBJECT = "a value that cannot be recorded"
    """An object, a set, something nested too deep: another run that has anything but null there had another value."""
    LEFT_OUT = "a value that is left out"
    """Nothing is known of it."""


class UnreadPlaces:
    """The places of such nulls, of the entries that have not ended."""

    def __init__(self) -> None:
        self._places: dict[str, dict[tuple[str, Path], Unread]] = {}

    def note(self, side: Side, path: Path, what: Unread) -> None:
        """A null is about to stand at `path` of one side of a call."""
        self._places.setdefault(side.entry, {}).setdefault((side.role, path), what)

    def take(self, entry: str) -> dict[tuple[str, Path], Unread]:
        """Role and path of each in an entry that ends."""
        return self._places.pop(entry, {})


def marked(data: dict[str, Any], places: dict[tuple[str, Path], Unread]) -> dict[str, Any]:
    """An entry with `Unread` in these places; `data`, which is written, stays as it is."""
    for (role, path), what in places.items():
        if role == "input" and "input_args" in data:
            role = "input_args"
        data = _put(data, ("input_kwargs" if role == "kwargs" else role, *path), what)
    return data


def kind_of(what: str) -> Unread:
    """What meta.json says of such a null, in words, as one of the two kinds."""
    return Unread.LEFT_OUT if what == LEFT_OUT else Unread.OBJECT


def marked_as_listed(name: str, data: dict[str, Any], listed: unread.Unread) -> dict[str, Any]:
    """An entry of an earlier dump with `Unread` where its meta.json lists one.

    Args:
        name, data: the entry.
        listed: what meta.json lists.
    """
    if name not in listed.entries and listed.complete:
        return data
    return {part: _marked(f"{name}.{_LABELS[part]}", record, listed) if part in _LABELS else record for part, record in data.items()}


def _marked(name: str, record: Any, listed: unread.Unread) -> Any:
    if record is None:
        what = listed.what(name)
        return None if what is None else kind_of(what)
    if type(record) is list:
        return [_marked(f"{name}.{i}", item, listed) for i, item in enumerate(record)]
    if type(record) is dict and not isinstance(record.get("type"), str):
        return {key: _marked(f"{name}.{key}", item, listed) for key, item in record.items()}
    return record


def _put(record: Any, path: Path, what: Unread) -> Any:
    """A copy as far as `path` leads; the record itself where that leads to no null."""
    if not path:
        return what if record is None else record
    copy = record
    if type(record) is dict and path[0] in record:
        copy = dict(record)
        copy[path[0]] = _put(record[path[0]], path[1:], what)
    elif type(record) is list and path[0].isdecimal() and int(path[0]) < len(record):
        copy = list(record)
        copy[int(path[0])] = _put(record[int(path[0])], path[1:], what)
    return copy


class CheckedEncoder(Encoder):
    """Notes what it makes null of.

    Args:
        save, report, holds: of `Encoder`.
        places: where it is noted.
        note: of `Encoder`.
    """

    def __init__(
        self,
        save: Save | None,
        report: Callable[[str, str], None],
        holds: Holds,
        places: UnreadPlaces,
        note: Callable[[Note], None] | None = None,
    ) -> None:
        super().__init__(save, report, holds, note=note)
        self._places = places

    def unread(self, path: Path, side: Side, what: str) -> Record:
        """See `Encoder.unread`."""
        self._places.note(side, path, kind_of(what))
        return super().unread(path, side, what)

    def no_result(self, result: NoResult, side: Side) -> Record:
        """See `Encoder.no_result`."""
        self._places.note(side, ("0",), Unread.OBJECT)
        return super().no_result(result, side)


class PartsEncoder(CheckedEncoder):
    """For who looks for infinities in statistics: there is none where all parts of all numbers are finite.

    The magnitude of a finite complex128 number can be beyond float64, and so can a long double of numpy.
    """

    def __init__(
        self,
        save: Save | None,
        report: Callable[[str, str], None],
        holds: Holds,
        places: UnreadPlaces,
        note: Callable[[Note], None] | None = None,
    ) -> None:
        super().__init__(save, report, holds, places, note)
        # What is not in the table is handed to `_described`.
        self.table = {dtype: row for dtype, row in summaries.table(holds).items() if dtype is not torch.complex128}

    def _described(self, tensor: torch.Tensor, side: Side) -> unusual.Described:
        described = super()._described(tensor, side)
        if _is_infinite(described.record) and described.record["dtype"] == "torch.complex128" and described.plain is not None:
            with torch_internals.NoTorchFunction(), torch.no_grad(), torch_internals.no_dispatch_modes():
                plain = described.plain.detach().resolve_conj()
                if plain.layout is torch.sparse_coo:
                    plain = plain.coalesce()
                stored = plain if plain.layout is torch.strided else plain.values()
                if bool(torch.isfinite(torch.view_as_real(stored)).all()):
                    _make_finite(described.record)
        return described

    def _array(self, array: np.ndarray[Any, Any], path: Path, side: Side) -> Record:
        record = cast(dict[str, Any], super()._array(array, path, side))
        if _is_infinite(record) and array.dtype.itemsize > 8 and bool(np.isfinite(np.asarray(array)).all()):
            _make_finite(record)
        return record


def _is_infinite(record: dict[str, Any]) -> bool:
    return any(type(record.get(key)) is float and abs(record[key]) == np.inf for key in ("Max", "Min"))


def _make_finite(record: dict[str, Any]) -> None:
    for key in ("Max", "Min"):
        record[key] = min(max(record[key], -_LARGEST), _LARGEST)
