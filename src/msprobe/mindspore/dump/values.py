"""Values -> records: what dump.json holds of an argument, a result or a gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import mindspore
import numpy as np

from msprobe import numerics
from msprobe.contain import let_through
from msprobe.format.unread import Note
from msprobe.mindspore.dump.plain_values import plain_record
from msprobe.mindspore.mindspore_internals import is_uninitialized
from msprobe.numerics.checksum import crc32_of
from msprobe.recording.plain_values import PLAIN

Record = Any
"""A JSON value in the shape of dump.json."""
Path = tuple[str, ...]
Array = np.ndarray[Any, Any]
Save = Callable[[Array, str, str, Path], str | None]
"""`save(array, entry, role, path)` keeps values; gives the file's name or None."""

RUNNING = object()
"""Stands for what a call gives that still runs when it returns."""

_Tensor = mindspore.Tensor
_MAX_DEPTH = 200
_MAX_CONTAINERS = 10_000
_WIDE = 1 << 4096
_SPARSE = {name: getattr(mindspore, name, None) for name in ("COOTensor", "CSRTensor", "RowTensor")}
_SPARSE_PARTS = ("indptr", "indices", "values")
_DTYPE_TEXT: dict[Any, str] = {}
_CODE_OF: dict[Any, int | None] = {}


class PendingError(BaseException):
    """What an earlier operation of the user's raised, and MindSpore reports to whoever looks at a tensor next: it belongs to the user.

    No Exception, so that it passes what contains our own errors; whoever called us raises `error` in its place.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def raise_failure(failure: Exception | None) -> None:
    """Hand on what an operation of the user's has raised, where one has."""
    if failure is not None:
        raise PendingError(failure)


def raise_if_pending(tensor: Any, error: Exception) -> None:
    """Looking at a tensor raised `error`: tell an operation that failed from a tensor that cannot be looked at in this way."""
    try:
        tensor.shape  # noqa: B018
    except Exception:
        raise PendingError(error) from None


def _of_bfloat16(tensor: Any) -> tuple[Array, Array]:
    """The elements of a tensor of bfloat16: as 16-bit numbers, and as the float32 that each of them is."""
    raw = np.frombuffer(tensor.get_bytes(), np.uint16)
    return raw, (raw.astype(np.uint32) << 16).view(np.float32).reshape(tensor.shape)


class Side:
    """One side of one call while it is being recorded: where its values belong, and the tensors met on the way."""

    __slots__ = ("containers", "entry", "open", "role", "save", "tensors", "wanted")

    def __init__(self, entry: str, role: str, save: bool, wanted: bool = True) -> None:
        self.entry = entry
        self.role = role
        """`input`, `kwargs`, `output` or `parameters`: the part of the tensor file's name after the entry."""
        self.save = save
        self.wanted = wanted
        """False: only the tensors are collected."""
        self.tensors: list[Any] = []
        self.containers = 0
        self.open: set[int] = set()


class Encoder:
    """Makes records; statistics are taken from host memory at once, accumulated in float64.

    Args:
        save: keeps values; None where none are kept.
        report: called as `report(entry, reason)` for what could not be recorded.
        md5: whether records hold a CRC-32.
        note: takes notes of nulls that stand for a value; see `format.unread`.
    """

    def __init__(self, save: Save | None, report: Callable[[str, str], None], md5: bool, note: Callable[[Note], None]) -> None:
        self._save = save
        self._report = report
        self._md5 = md5
        self._note = note

    def positional(self, values: tuple[Any, ...] | list[Any], side: Side) -> list[Record]:
        """Records of positional values, in order."""
        value = self.value
        return [value(item, (str(i),), side) for i, item in enumerate(values)]

    def keyword(self, values: Mapping[str, Any], side: Side) -> dict[str, Record]:
        """Records of keyword values."""
        return {key: self.value(item, (key,), side) for key, item in values.items()}

    def output(self, value: Any, side: Side) -> list[Record]:
        """Records of a result: a tuple is spread, everything else is one element."""
        if value is RUNNING:
            if side.wanted:
                self._report(side.entry, "output: the communication still runs when the call returns, and its result is not recorded")
                self._unread(("0",), side, "a result that was not there yet")
            return [None]
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return self.positional(value, side)
        return [self.value(value, ("0",), side)]

    def value(self, value: Any, path: Path, side: Side) -> Record:
        """The record of one value; never raises."""
        kind = type(value)
        if value is None:
            return None
        if kind in PLAIN and (kind is not int or -_WIDE < value < _WIDE):
            return {"type": kind.__name__, "value": value}
        try:
            if issubclass(kind, _Tensor):
                side.tensors.append(value)
                return self.tensor(value, path, side) if side.wanted else None
            return self._other(value, kind, path, side)
        except Exception as error:  # whatever a user's object does when looked at stays out of the user's run
            let_through(error)
            self._report(side.entry, f"{side.role} {'.'.join(path)}: {kind.__name__} could not be recorded: {error!r}")
            return self._unread(path, side, f"{kind.__name__} that could not be looked at ({type(error).__name__})")

    def tensor(self, tensor: Any, path: Path, side: Side) -> Record:
        """The record of a tensor: its dtype as MindSpore names it (`Float32`), shape, Max, Min, Mean, Norm, and md5 or data_name."""
        try:
            dtype, shape = tensor.dtype, list(tensor.shape)
        except Exception as error:
            raise PendingError(error) from None
        text = _DTYPE_TEXT.get(dtype)
        if text is None:
            text = _DTYPE_TEXT[dtype] = str(dtype)
        record: dict[str, Any] = {"type": "mindspore.Tensor", "dtype": text, "shape": shape}
        if is_uninitialized(tensor):
            record.update(Max=None, Min=None, Mean=None, Norm=None)
            self._unread(path, side, "a parameter whose values have not been made yet")
            return record
        raw = None
        try:
            array = tensor.asnumpy()
        except Exception as error:
            raise_if_pending(tensor, error)
            if text != "BFloat16":
                raise
            raw, array = _of_bfloat16(tensor)  # NumPy is of another major version than MindSpore was built with
        return self.array(array, record, path, side, raw)

    def array(self, array: Array, record: dict[str, Any], path: Path, side: Side, raw: Array | None = None) -> Record:
        """Put what `array` holds into the record of a tensor. `raw`: the tensor's own elements, where `array` is of another dtype."""
        kept = array.dtype
        if kept not in _CODE_OF:
            _CODE_OF[kept] = numerics.CODE.get(kept.name)  # the name of a dtype takes numpy longer than the statistics of a small tensor
        code = _CODE_OF[kept]
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array)
        if code is None:
            record.update(Max=None, Min=None, Mean=None, Norm=None)
            self._report(side.entry, f"{side.role} {'.'.join(path)}: dtype {record['dtype']} has no numbers to work with")
        else:
            address = array.ctypes.data
            record["Max"], record["Min"], record["Mean"], record["Norm"] = numerics.summarize(address, code, array.size)
        if self._md5:
            own = array if raw is None else raw
            record["md5"] = f"{crc32_of(own.ctypes.data, own.itemsize, (own.size,), (1,)):08x}"
        if side.save and array.size and self._save is not None:
            try:
                name = self._save(array, side.entry, side.role, path)
            except Exception as error:
                let_through(error)
                self._report(side.entry, f"{side.role} {'.'.join(path)}: values could not be kept: {error!r}")
            else:
                if name is not None:
                    record["data_name"] = name
        return record

    def _unread(self, path: Path, side: Side, what: str) -> None:
        self._note((side.entry, side.role, path, what))

    def _other(self, value: Any, kind: type, path: Path, side: Side) -> Record:
        if issubclass(kind, np.ndarray):
            return self._numpy(value, path, side)
        record = plain_record(value, kind)
        if record is not None:
            return record
        for name, sparse in _SPARSE.items():
            if sparse is not None and issubclass(kind, sparse):
                return self._sparse(name, value, path, side)
        is_fields = dataclasses.is_dataclass(kind)
        if not (issubclass(kind, list | tuple | Mapping) or is_fields):
            return self._unread(path, side, f"a {kind.__name__}")
        side.containers += 1
        if id(value) in side.open or len(path) > _MAX_DEPTH or side.containers > _MAX_CONTAINERS:
            why = "inside itself" if id(value) in side.open else "nested deeper or wider than is recorded"
            self._report(side.entry, f"{side.role} {'.'.join(path[:8])}: {kind.__name__} {why}: left out")
            return self._unread(path, side, f"a {kind.__name__} {why}")
        side.open.add(id(value))
        try:
            if issubclass(kind, Mapping):
                return {str(key): self.value(item, (*path, str(key)), side) for key, item in list(value.items())}
            if issubclass(kind, tuple) and hasattr(kind, "_fields"):
                return {key: self.value(item, (*path, key), side) for key, item in zip(kind._fields, value, strict=False)}
            if is_fields:
                names = [field.name for field in dataclasses.fields(value)]
                return {name: self.value(getattr(value, name, None), (*path, name), side) for name in names}
            return [self.value(item, (*path, str(i)), side) for i, item in enumerate(list(value))]
        finally:
            side.open.discard(id(value))

    def _sparse(self, name: str, value: Any, path: Path, side: Side) -> Record:
        record: dict[str, Any] = {"type": f"mindspore.{name}", "shape": [int(n) for n in value.shape]}
        for part in _SPARSE_PARTS:
            if hasattr(value, part):
                record[part] = self.value(getattr(value, part), (*path, part), side)
        return record

    def _numpy(self, array: Array, path: Path, side: Side) -> Record:
        if not side.wanted:
            return None
        record: dict[str, Any] = {"type": "numpy.ndarray", "dtype": str(array.dtype), "shape": list(array.shape)}
        if array.dtype.kind not in "biufc":
            record.update(Max=None, Min=None, Mean=None, Norm=None)
            return record
        return self.array(np.asarray(array, array.dtype.newbyteorder("=")), record, path, side)
