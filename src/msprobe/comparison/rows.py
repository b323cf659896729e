"""Second stage: the entries of dump.json become calls, each a list of rows. One row is one recorded value.

The bulk types here and in the following stages are NamedTuples: as immutable as frozen dataclasses and built four times faster, which
counts when a dump holds 200,000 values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import orjson
import ujson

from msprobe.comparison.frameworks.dtypes import TORCH
from msprobe.comparison.frameworks.naming import MINDSPORE
from msprobe.comparison.names import EntryName, Parser
from msprobe.errors import DumpFormatError
from msprobe.format.parts import parse as parse_texts

Role = Literal["input", "output", "parameters", "parameters_grad"]
Kind = Literal["tensor", "scalar", "opaque", "null"]
Statistics = tuple[Any, Any, Any, Any]

_ROLES: dict[str, Role] = {
    "input_args": "input",
    "input_kwargs": "input",
    "input": "input",
    "output": "output",
    "parameters": "parameters",
}
_NO_STATISTICS: Statistics = (None, None, None, None)
_ODD = frozenset({str, list, dict})
"""Types of statistics that are not kept as they are: those of a row can be hashed."""
_spelled = orjson.dumps
_rows_of: Callable[..., tuple[Any, ...] | None] | None
try:
    from msprobe.comparison._rows import rows_of as _rows_of
except ImportError:  # installed without a compiler
    _rows_of = None
_calls_of: Callable[..., Any] | None
try:
    from msprobe.comparison._entries import calls_of as _calls_of
except ImportError:
    _calls_of = None
# Keyword arguments that name a rank; a tensor operation never has them, a communication shows them as text.
_PEERS = frozenset({"src", "dst", "group_src", "group_dst"})


class Row(NamedTuple):
    """One recorded value.

    Attributes:
        name: as the column `NPU Name` or `Bench Name` shows it.
        key: where it lies in its call (`input.0`, `parameters.weight`); equal keys are compared with each other.
        role: what it was to the call.
        kind: tensor, scalar (a plain value), opaque (a value without statistics: slice, Size), or null.
        dtype, shape, requires_grad: as the columns show them.
        statistics: Max, Min, Mean, Norm; for a scalar its value four times.
        value: the recorded value of what is not a tensor; for a tensor its number of elements, or None when unknown.
        md5: checksum, None when none was recorded.
        data_name: file name of the tensor, None when there is none.
    """

    name: str
    key: str
    role: Role
    kind: Kind
    dtype: str
    shape: str
    requires_grad: str
    statistics: Statistics
    value: Any
    md5: Any
    data_name: str | None


class Call(NamedTuple):
    """One entry of dump.json: one direction of one call, the gradients of one module's parameters, or one value saved by hand."""

    name: str
    parts: EntryName
    rows: tuple[Row, ...]


def calls_of(data: dict[str, Any], path: str, framework: str | None = None) -> list[Call]:
    """The calls of a dump, in its order.

    Args:
        data: what dump.json holds under `data`.
        path: that file, for messages.

    Raises:
        DumpFormatError: an entry is no object, or is nested too deep to be read.
    """
    return Builder(path, framework=framework).calls(data)


class Builder:
    """Makes calls of entries, a part of a dump at a time. What recurs (shapes, dtypes, keys) is kept once.

    Args:
        path: the dump.json, for messages.
        like: the calls of another dump, name -> call. A value that is recorded there with the same text and the same finite numbers other
            than 0 is represented by the very same Row, which saves memory; who compares can see by it that the two are equal.
        framework: what the dump says of itself. Of MindSpore's, dtypes and the parts of names are those that PyTorch has for them.
    """

    def __init__(self, path: str, like: Mapping[str, Call] | None = None, framework: str | None = None) -> None:
        self._path = path
        self._like = like or {}
        self._twins: tuple[Row, ...] = ()
        self._rows: list[Row] = []
        self._shapes: dict[bytes, tuple[str, int | None]] = {}
        self._texts: dict[str, str] = dict(TORCH) if framework == MINDSPORE else {}
        self._parse = Parser(framework)
        self._context: tuple[Any, ...] = (Row, _ROLES, {}, self._texts, self._shape, _no_tensor)
        functions = (self._parse, self._shape_text, _no_tensor_text, _numbers)
        self._text_context: tuple[Any, ...] = (Row, Call, tuple(_ROLES.values()), {}, self._texts, {}, *functions)

    def calls_of_texts(self, texts: Sequence[bytes]) -> list[Call]:
        """The calls of entries given as text, `"name": {...}` each. Raises NotInParts as `parts.parse`, and DumpFormatError."""
        if _calls_of is None:
            return self.calls(parse_texts(texts))
        calls = _calls_of(texts, self._like, self._text_context)
        odd = [text for text, call in zip(texts, calls, strict=True) if call is None]
        rest = iter(self.calls(parse_texts(odd)) if odd else ())
        return [call if call is not None else next(rest) for call in calls]

    def calls(self, data: Mapping[str, Any]) -> list[Call]:
        """The calls of these entries, in their order. Raises DumpFormatError as `calls_of` does."""
        return [self._call(name, entry) for name, entry in data.items()]

    def _call(self, name: str, entry: Any) -> Call:
        rows = self._rows = []
        twin = self._like.get(name)
        self._twins = twin.rows if twin is not None else ()
        parts = twin.parts if twin is not None else self._parse(name)
        try:
            if parts.direction == "parameters_grad" and isinstance(entry, dict):
                for parameter, value in entry.items():
                    if isinstance(value, list) and len(value) == 1:
                        value = value[0]
                    self._add(name, "", "parameters_grad", parameter, value)
            elif parts.direction == "debug":
                self._add(name, "", "output", "", entry)
            elif isinstance(entry, dict):
                if _rows_of is not None:
                    made = _rows_of(name, entry, self._twins, self._context)
                    if made is not None:
                        return Call(name, parts, made)
                for part, value in entry.items():
                    role = _ROLES.get(part)
                    if role is not None and value is not None:
                        self._add(name, role, role, "", value)
            else:
                raise DumpFormatError(f"{self._path}: the entry {name!r} is no JSON object; the file is not a dump or was damaged")
        except RecursionError:
            raise DumpFormatError(f"{self._path}: the entry {name!r} is nested too deep to be read") from None
        return Call(name, parts, tuple(rows))

    def _add(self, entry: str, label: str, role: Role, path: str, item: Any) -> None:
        """Adds the rows of one recorded value, depth first. `label` is `input`, `output`, ... or "" where the path follows the entry."""
        if type(item) is dict:
            kind = item.get("type")
            if not isinstance(kind, str):
                for key, child in item.items():
                    self._add(entry, label, role, f"{path}.{key}" if path else key, child)
                return
        elif type(item) is list:
            for index, child in enumerate(item):
                self._add(entry, label, role, f"{path}.{index}" if path else str(index), child)
            return
        key = f"{label}.{path}" if label and path else label or path
        if type(item) is dict and "dtype" in item and "shape" in item:
            self._rows.append(self._tensor(entry, key, role, item))
            return
        row = _other(f"{entry}.{key}" if key else entry, key, role, item, path)
        if row is not None:
            self._rows.append(row)

    def _tensor(self, entry: str, key: str, role: Role, item: dict[str, Any]) -> Row:
        get = item.get
        maximum = get("Max")
        minimum = get("Min")
        mean = get("Mean")
        norm = get("Norm")
        requires_grad = get("requires_grad")
        dtype = item["dtype"]
        shape, numel = self._shape(item["shape"])
        data_name = get("data_name")
        md5 = get("md5")
        grad = "N/A" if requires_grad is None else str(requires_grad)
        position = len(self._rows)
        twin = self._twins[position] if position < len(self._twins) else None
        if twin is not None and twin.key == key and twin.role == role and twin.kind == "tensor":
            key = twin.key
            theirs = twin.statistics
            if (
                maximum == theirs[0]
                and minimum == theirs[1]
                and mean == theirs[2]
                and norm == theirs[3]
                and maximum
                and minimum
                and mean
                and norm
                and type(maximum) is type(minimum) is type(mean) is type(norm) is float
                and type(theirs[0]) is type(theirs[1]) is type(theirs[2]) is type(theirs[3]) is float
                and dtype == twin.dtype
                and shape == twin.shape
                and grad == twin.requires_grad
                and data_name == twin.data_name
                and md5 == twin.md5
                and type(md5) is type(twin.md5)
            ):
                return twin
            name = twin.name if data_name is None and twin.data_name is None else f"{entry}.{key}" if key else entry
        else:
            name = f"{entry}.{key}" if key else entry
        if data_name is not None:
            data_name = str(data_name)
            stem = data_name.rpartition(".")[0]
            # A shortened or foreign file name says nothing about the call; then the place in the entry is the name.
            if stem == entry or (stem.startswith(entry + ".") and "/" not in stem and "\\" not in stem):
                name = stem
        statistics: Statistics = (maximum, minimum, mean, norm)
        if not _ODD.isdisjoint(map(type, statistics)):
            statistics = (_number(maximum), _number(minimum), _number(mean), _number(norm))
        if type(md5) is list or type(md5) is dict:
            md5 = str(md5)
        texts = self._texts
        if type(dtype) is not str:
            dtype = str(dtype)
        dtype = texts.setdefault(dtype, dtype)
        key = texts.setdefault(key, key)
        return tuple.__new__(Row, (name, key, role, "tensor", dtype, shape, grad, statistics, numel, md5, data_name))

    def _shape_text(self, text: bytes) -> tuple[str, int | None] | None:
        try:
            return self._shape(ujson.loads(text))
        except ValueError:
            return None

    def _shape(self, shape: Any) -> tuple[str, int | None]:
        """A shape as text, and its number of elements."""
        try:
            spelled = _spelled(shape)  # tells 1 from true, as a tuple of the sizes would not
        except (TypeError, ValueError):
            return str(shape), _numel(shape)
        found = self._shapes.get(spelled)
        if found is None:
            found = str(shape), _numel(shape)
            if found[1] is not None:
                self._shapes[spelled] = found
        return found


def _numel(shape: Any) -> int | None:
    if not isinstance(shape, list):
        return None
    count = 1
    for size in shape:
        if type(size) is not int:
            return None
        count *= size
    return count


def _number(value: Any) -> Any:
    """A statistic that was written as text (`"NaN"`) as the number it means; what only a damaged record holds, as text."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return str(value) if isinstance(value, list | dict) else value


def _no_tensor(entry: str, key: str, role: Role, item: Any) -> Row | None:
    """`_other` of a value whose key begins with its role."""
    return _other(f"{entry}.{key}", key, role, item, key[len(role) + 1 :])


def _no_tensor_text(key: str, role: Role, text: bytes) -> Row | None:
    """`_no_tensor` of what stands in a file; its name lacks that of the entry. NotImplemented: it has to be looked at with the entry."""
    try:
        item = ujson.loads(text)
    except (ValueError, OverflowError, RecursionError, MemoryError):
        return NotImplemented  # type: ignore[no-any-return]
    is_tensor = isinstance(item, dict) and "dtype" in item and "shape" in item
    if is_tensor or isinstance(item, list) or (isinstance(item, dict) and not isinstance(item.get("type"), str)):
        return NotImplemented  # type: ignore[no-any-return]
    return _no_tensor("", key, role, item)


def _numbers(text: bytes) -> list[float] | None:
    try:
        found: list[float] = orjson.loads(text)
    except ValueError:
        return None
    return found


def _other(name: str, key: str, role: Role, item: Any, path: str) -> Row | None:
    """The row of what is no tensor; None for what has none."""
    if item is None:
        return Row(name, key, role, "null", "N/A", "N/A", "N/A", _NO_STATISTICS, None, None, None)
    if type(item) is dict:
        return _value(name, key, role, item["type"], item, path)
    if path.endswith("class_type"):
        return None
    return _scalar(name, key, role, type(item).__name__, item, None)  # a bare value, as inside a P2POp


def _value(name: str, key: str, role: Role, kind: str, item: dict[str, Any], path: str) -> Row:
    value = item.get("value", item.get("format"))
    md5 = item.get("md5")
    if kind == "torch.Size":
        return Row(name, key, role, "opaque", kind, str(value), "N/A", _NO_STATISTICS, value, md5, None)
    if kind == "slice":
        return Row(name, key, role, "opaque", kind, "(3,)", "N/A", _NO_STATISTICS, value, md5, None)
    if kind == "torch.ProcessGroup":
        return Row(name, key, role, "opaque", kind, "[]", "N/A", (str(item.get("group_ranks")),) * 4, item.get("group_ranks"), md5, None)
    if kind == "ellipsis":
        return Row(name, key, role, "opaque", kind, "[]", "N/A", ("...",) * 4, "...", md5, None)
    if path in _PEERS:
        value = str(value)
    return _scalar(name, key, role, type(value).__name__ if kind.startswith(("torch.", "mindspore.")) else kind, value, md5)


def _scalar(name: str, key: str, role: Role, kind: str, value: Any, md5: Any) -> Row:
    shown = value if isinstance(value, (int, float, str)) or value is None else str(value)
    return Row(name, key, role, "scalar", f"<class '{kind}'>", "[]", "N/A", (shown,) * 4, value, md5, None)
