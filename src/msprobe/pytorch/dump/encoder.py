"""Values -> records: what dump.json holds of an argument, a result or a gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from msprobe import numerics
from msprobe.contain import let_through
from msprobe.format.unread import LEFT_OUT, Note
from msprobe.pytorch.dump import containers, summaries, unusual
from msprobe.pytorch.dump.distributed.operations import is_operation, operation_record
from msprobe.pytorch.dump.plain_values import class_name, plain_record
from msprobe.pytorch.dump.summaries import Holds
from msprobe.recording.plain_values import PLAIN

Record = Any
"""A JSON value in the shape of dump.json."""
Path = tuple[str, ...]

_MAX_DEPTH = 200  # four frames of ours each, of the thousand that Python allows by default
_MAX_CONTAINERS = 10_000
_WIDE = 1 << 4096
"""Integers beyond it are recorded as text."""
_describe = numerics.describe
_describe_each, _describe_items = numerics.describe_each, numerics.describe_items
_VOWELS = tuple("AEIOUaeiou")
_CLASSES = _Tensor, _Parameter = torch.Tensor, torch.nn.Parameter


def with_article(kind: type) -> str:
    """`a DynamicCache`, `an Engine`."""
    name = class_name(kind)
    return f"{'an' if name[:1] in _VOWELS else 'a'} {name}"


class Side:
    """One side of one call while it is being recorded: where its values belong, and the tensors met on the way."""

    __slots__ = ("entry", "leaves", "open", "ordinary", "role", "save", "tensors", "values")

    def __init__(self, entry: str, role: str, save: bool) -> None:
        self.entry = entry
        self.role = role
        """`input`, `kwargs`, `output` or `parameters`: the part of the tensor file's name after the entry."""
        self.save = save
        self.leaves: list[torch.Tensor] = []
        """Tensors that require grad, in order."""
        self.tensors = 0
        self.ordinary = not save
        """No record can hold NaN or an infinite number."""
        self.values = 0
        """Containers met so far."""
        self.open: set[int] | None = None
        """ids of the containers being walked."""


class NoResult:
    """Stands for the result of a call that has none. `what`: what meta.json says of its null, "" for nothing."""

    __slots__ = ("what",)

    def __init__(self, what: str) -> None:
        self.what = what


NO_RESULT = NoResult("the result of a call that did not come to its end")
CUT_SHORT = NoResult("")
"""torch ends a recomputation (activation checkpointing) as soon as it has what it needs: there never is a result, in no run."""

Save = Callable[[torch.Tensor, Side, Path], str | None]
"""`save(tensor, side, path)` keeps a tensor's values; gives the file's name or None."""


class Encoder:
    """Makes records; statistics are taken from the tensor's memory at once.

    Args:
        save: called for each tensor whose values are kept.
        report: called as `report(entry, reason)` for what could not be recorded.
        holds: what the record of a tensor holds.
        complex_statistics: False: complex tensors have four nulls.
        md5_last: `md5` stands behind `data_name`.
        note: takes notes of nulls that stand for a value; see `format.unread`.
    """

    def __init__(
        self,
        save: Save | None,
        report: Callable[[str, str], None],
        holds: Holds = Holds.STATISTICS,
        complex_statistics: bool = True,
        md5_last: bool = False,
        note: Callable[[Note], None] | None = None,
    ) -> None:
        self._save = save
        self._report = report
        self._holds = holds
        self._note = note
        self._md5_last = md5_last and holds is Holds.MD5
        self.table = summaries.table(holds, complex_statistics)

    def positional(self, values: tuple[Any, ...], side: Side) -> list[Record]:
        """Records of positional values, in order."""
        if side.save:
            encode = self.value
            return [encode(value, (str(i),), side) for i, value in enumerate(values)]
        records, tensors, ordinary = _describe_each(
            values, _CLASSES, self.table, side.leaves, lambda value, i: self.value(value, (str(i),), side)
        )
        side.tensors += tensors
        if not ordinary:
            side.ordinary = False
        return records

    def keyword(self, values: dict[str, Any], side: Side) -> dict[str, Record]:
        """Records of keyword values; the keys `dtype` and `device` keep their kind whatever spelled them."""
        if not values:
            return {}
        if side.save:
            return {key: self._keyword_value(key, value, side) for key, value in values.items()}
        records, tensors, ordinary = _describe_items(
            values, _CLASSES, self.table, side.leaves, lambda value, key: self._keyword_value(key, value, side)
        )
        side.tensors += tensors
        if not ordinary:
            side.ordinary = False
        return records

    def output(self, value: Any, side: Side) -> list[Record]:
        """Records of a result: a tuple is spread, everything else is one element."""
        kind = type(value)
        if kind is NoResult:
            return [self.no_result(value, side)]
        if kind is not _Tensor and issubclass(kind, tuple):
            if hasattr(kind, "_fields"):
                return [self.value(value, ("0",), side)]
            return self.positional(containers.spread(value, kind), side)
        return self.positional((value,), side)

    def value(self, value: Any, path: Path, side: Side) -> Record:
        """The record of one value; never raises."""
        side.ordinary = False
        kind = type(value)
        if kind is _Tensor or kind is _Parameter:
            return self.tensor(value, path, side)
        if value is None:
            return None
        if kind in PLAIN and (kind is not int or -_WIDE < value < _WIDE):
            return {"type": kind.__name__, "value": value}
        try:
            return self._other(value, kind, path, side)
        except Exception as error:  # whatever a user's object does when looked at stays out of the user's run
            let_through(error)
            self._report(side.entry, f"{side.role} {'.'.join(path)}: {class_name(kind)} could not be recorded: {class_name(type(error))}")
            return self.unread(path, side, f"{with_article(kind)} that could not be looked at ({class_name(type(error))})")

    def gradient(self, gradient: Any, slot: int | str, side: Side) -> Record:
        """The record of one gradient: of a call's input or output, or of a parameter."""
        if type(gradient) is _Tensor and not side.save:
            record = _describe(gradient, self.table)
            if record is not None:
                side.tensors += 1
                return record
        return self.value(gradient, (str(slot),), side)

    def tensor(self, tensor: torch.Tensor, path: Path, side: Side) -> Record:
        """The record of a tensor of torch's own two classes."""
        record = _describe(tensor, self.table)
        if record is None:
            return self._unusual(tensor, path, side)
        if record["requires_grad"]:
            side.leaves.append(tensor)
        side.tensors += 1
        if side.save and tensor.numel():
            self._keep(tensor, record, path, side)
        return record

    def unread(self, path: Path, side: Side, what: str) -> Record:
        """Null, for a value that nobody has looked at.

        Args:
            path, side: where the null will stand.
            what: what stands there, in words: `a DynamicCache`.
        """
        if self._note is not None:
            self._note((side.entry, side.role, path, what))

    def no_result(self, result: NoResult, side: Side) -> Record:
        """Null, for the result of a call that has none."""
        return self.unread(("0",), side, result.what) if result.what else None

    def left_out(self, path: Path, side: Side) -> Record:
        """Null, for a value that a rule leaves out."""
        return self.unread(path, side, LEFT_OUT)

    def _no_record(self, kind: type, path: Path, side: Side) -> Record:
        """Null, for a value of a class that has no record."""
        return self.unread(path, side, with_article(kind))

    def settle(self) -> None:
        """The step ends: nothing may be outstanding afterwards."""

    def _keep(self, tensor: torch.Tensor, record: dict[str, Any], path: Path, side: Side) -> None:
        """Have the values saved, and name their file in the record."""
        if self._save is None:
            return
        try:
            name = self._save(tensor, side, path)
        except Exception as error:
            let_through(error)
            self.not_kept(side.entry, side.role, ".".join(path), error)
        else:
            if name is not None:
                record["data_name"] = name
                if self._md5_last and "md5" in record:
                    record["md5"] = record.pop("md5")

    def not_kept(self, entry: str, role: str, place: str, error: Exception) -> None:
        """Tell of a tensor whose values could not be kept."""
        self._report(entry, f"{role} {place}: values could not be kept: {error!r}")

    def _unusual(self, tensor: torch.Tensor, path: Path, side: Side) -> Record:
        described = self._described(tensor, side)
        side.tensors += 1
        try:
            if tensor.requires_grad:
                side.leaves.append(tensor)
        except Exception as caught:
            let_through(caught)
        if described.reason:
            self._report(side.entry, f"{side.role} {'.'.join(path)}: {described.reason}")
        record = described.record
        if side.save and described.plain is not None and described.plain.numel():
            self._keep(described.plain, record, path, side)
        return record

    def _described(self, tensor: torch.Tensor, side: Side) -> unusual.Described:
        return unusual.describe(tensor, self._holds)

    def _keyword_value(self, key: str, value: Any, side: Side) -> Record:
        kind = type(value)
        if key == "device" and kind in (str, int):
            return {"type": "torch.device", "value": value}
        if key in ("dtype", "output_dtype") and kind in (str, type):
            return {"type": "torch.dtype", "value": str(value)}
        return self.value(value, (key,), side)

    def _other(self, value: Any, kind: type, path: Path, side: Side) -> Record:
        # issubclass of the type, not isinstance: that would ask the object for its __class__, which may be anything.
        if issubclass(kind, torch.Tensor):
            return self._unusual(value, path, side)
        if issubclass(kind, np.ndarray):
            return self._array(value, path, side)
        if is_operation(kind):
            tensor_path = (*path, "tensor")
            return operation_record(
                value, side.role, lambda tensor: self.value(tensor, tensor_path, side), lambda: self.left_out(tensor_path, side)
            )
        record = plain_record(value, kind)
        if record is not None:
            return record
        if not (issubclass(kind, list | tuple) or containers.is_mapping(kind) or dataclasses.is_dataclass(kind)):
            return self._no_record(kind, path, side)
        identity = id(value)
        if side.open is None:
            side.open = set()
        if identity in side.open:
            self._report(side.entry, f"{side.role} {'.'.join(path[:8])}: contains itself")
            return self.unread(path, side, f"{with_article(kind)} inside itself")
        side.values += 1
        if len(path) > _MAX_DEPTH or side.values > _MAX_CONTAINERS:
            limit = f"{_MAX_DEPTH} levels" if len(path) > _MAX_DEPTH else f"{_MAX_CONTAINERS} containers"
            self._report(side.entry, f"{side.role}: nested deeper or wider than {limit}: the rest is left out")
            return self.unread(path, side, f"what is nested deeper or wider than {limit}")
        side.open.add(identity)
        try:
            return self._container(value, kind, path, side)
        finally:
            side.open.discard(identity)

    def _container(self, value: Any, kind: type, path: Path, side: Side) -> Record:
        if containers.is_mapping(kind):
            items = containers.items(value, kind)
            if items is None:
                return self._no_record(kind, path, side)
            records: dict[str, Record] = {}
            for key, item in items:
                # The text of a tensor is its values: no two runs would have a key in common.
                text = f"{class_name(type(key))}#{len(records)}" if issubclass(type(key), _Tensor) else str(key)
                if text in records:  # 1 and "1"
                    text = f"{text}#{class_name(type(key))}{len(records)}"
                records[text] = self.value(item, (*path, text), side)
            return records
        if issubclass(kind, list):
            return [self.value(v, (*path, str(i)), side) for i, v in enumerate(containers.elements(value, kind))]
        if issubclass(kind, tuple):
            spread = containers.spread(value, kind)
            if hasattr(kind, "_fields"):
                return {k: self.value(v, (*path, k), side) for k, v in zip(kind._fields, spread, strict=False)}
            return [self.value(v, (*path, str(i)), side) for i, v in enumerate(spread)]
        return {name: self._field(value, kind, name, path, side) for name in containers.field_names(kind)}

    def _field(self, value: Any, kind: type, name: str, path: Path, side: Side) -> Record:
        try:
            item = containers.field(value, kind, name)
        except containers.RunsCode:
            return self.unread((*path, name), side, "a field that is a property")
        return self.value(item, (*path, name), side)

    def _array(self, array: np.ndarray[Any, Any], path: Path, side: Side) -> Record:
        high, low, mean, norm = (None,) * 4
        numeric = array.dtype.kind in "biufc"
        if numeric:
            high, low, mean, norm = numerics.summarize_array(array)
        record = {
            "type": "numpy.ndarray",
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "Max": high,
            "Min": low,
            "Mean": mean,
            "Norm": norm,
        }
        if numeric and array.size and side.save:
            try:
                tensor = torch.from_numpy(np.array(array, subok=False, order="C"))
            except TypeError:
                return record  # a dtype that torch does not have
            self._keep(tensor, record, path, side)
        return record
