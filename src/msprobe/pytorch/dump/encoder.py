"""Values -> records: what dump.json holds of an argument, a result or a gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from msprobe import numerics
from msprobe.pytorch.dump import unusual
from msprobe.pytorch.dump.plain_values import PLAIN, plain_record

Record = Any
"""A JSON value in the shape of dump.json."""
Path = tuple[str, ...]

_MAX_DEPTH = 400
_describe = numerics.describe
_TABLE = {
    getattr(torch, name): ("torch.Tensor", code, f"torch.{name}") for name, code in numerics.CODE.items() if hasattr(torch, name)
}
_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter


class Side:
    """One side of one call while it is being recorded: where its values belong, and the tensors met on the way."""

    __slots__ = ("entry", "leaves", "role", "save", "tensors")

    def __init__(self, entry: str, role: str, save: bool) -> None:
        self.entry = entry
        self.role = role
        """`input`, `kwargs`, `output` or `parameters`: the part of the tensor file's name after the entry."""
        self.save = save
        self.leaves: list[torch.Tensor] = []
        """Tensors that require grad, in order."""
        self.tensors = 0


class Encoder:
    """Makes records; statistics are taken from the tensor's memory at once.

    Args:
        save: called as `save(tensor, side, path)` for each tensor whose values are kept; gives the file's name or None.
        report: called as `report(entry, reason)` for what could not be recorded.
    """

    def __init__(
        self, save: Callable[[torch.Tensor, Side, Path], str | None] | None, report: Callable[[str, str], None], precision: str = "low"
    ) -> None:
        self._save = save
        self._report = report

    def positional(self, values: tuple[Any, ...], side: Side) -> list[Record]:
        """Records of positional values, in order."""
        encode = self.value
        return [encode(value, (str(i),), side) for i, value in enumerate(values)]

    def keyword(self, values: Mapping[str, Any], side: Side) -> dict[str, Record]:
        """Records of keyword values; the keys `dtype` and `device` keep their kind whatever spelled them."""
        return {key: self._keyword_value(key, value, side) for key, value in values.items()}

    def output(self, value: Any, side: Side) -> list[Record]:
        """Records of a result: a tuple is spread, everything else is one element."""
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return self.positional(value, side)
        return [self.value(value, ("0",), side)]

    def value(self, value: Any, path: Path, side: Side) -> Record:
        """The record of one value; never raises."""
        kind = type(value)
        if kind is _Tensor or kind is _Parameter:
            return self.tensor(value, path, side)
        if value is None:
            return None
        if kind in PLAIN:
            return {"type": kind.__name__, "value": value}
        try:
            return self._other(value, path, side)
        except Exception as error:  # whatever a user's object does when looked at stays out of the user's run
            self._report(side.entry, f"{side.role} {'.'.join(path)}: {kind.__name__} could not be recorded: {error!r}")
            return None

    def tensor(self, tensor: torch.Tensor, path: Path, side: Side) -> Record:
        """The record of a tensor of torch's own two classes."""
        record = _describe(tensor, _TABLE)
        if record is None:
            return self._unusual(tensor, path, side)
        if record["requires_grad"]:
            side.leaves.append(tensor)
        side.tensors += 1
        if side.save and self._save is not None and tensor.numel():
            name = self._save(tensor, side, path)
            if name is not None:
                record["data_name"] = name
        return record

    def _unusual(self, tensor: torch.Tensor, path: Path, side: Side) -> Record:
        described = unusual.describe(tensor)
        side.tensors += 1
        try:
            if tensor.requires_grad:
                side.leaves.append(tensor)
        except Exception:
            pass
        if described.reason:
            self._report(side.entry, f"{side.role} {'.'.join(path)}: {described.reason}")
        record = described.record
        if side.save and self._save is not None and described.plain is not None and described.plain.numel():
            name = self._save(described.plain, side, path)
            if name is not None:
                record["data_name"] = name
        return record

    def _keyword_value(self, key: str, value: Any, side: Side) -> Record:
        if value is not None and not isinstance(value, torch.Tensor):
            if key in ("dtype", "output_dtype"):
                return {"type": "torch.dtype", "value": str(value)}
            if key == "device":
                return {"type": "torch.device", "value": value if isinstance(value, int) else str(value)}
        return self.value(value, (key,), side)

    def _other(self, value: Any, path: Path, side: Side) -> Record:
        if isinstance(value, torch.Tensor):
            return self._unusual(value, path, side)
        if isinstance(value, np.ndarray):
            return self._array(value)
        if len(path) > _MAX_DEPTH:
            self._report(side.entry, f"{side.role}: nested deeper than {_MAX_DEPTH} levels or containing itself")
            return None
        if isinstance(value, Mapping):
            return {str(k): self.value(v, (*path, str(k)), side) for k, v in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {k: self.value(v, (*path, k), side) for k, v in zip(value._fields, value, strict=False)}
        plain, record = plain_record(value)
        if plain:
            return record
        if isinstance(value, list | tuple):
            return [self.value(v, (*path, str(i)), side) for i, v in enumerate(value)]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [f.name for f in dataclasses.fields(value)]
            return {k: self.value(getattr(value, k, None), (*path, k), side) for k in fields}
        return None

    def _array(self, array: np.ndarray[Any, Any]) -> Record:
        high, low, mean, norm = (None,) * 4
        if array.dtype.kind in "biufc":
            high, low, mean, norm = numerics.summarize_array(array)
        return {
            "type": "numpy.ndarray",
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "Max": high,
            "Min": low,
            "Mean": mean,
            "Norm": norm,
        }
