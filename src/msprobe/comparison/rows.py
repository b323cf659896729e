"""Second stage: the entries of dump.json become calls, each a list of rows. One row is one recorded value.

The bulk types here and in the following stages are NamedTuples: as immutable as frozen dataclasses and built four times faster, which
counts when a dump holds 200,000 values.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from msprobe.comparison.names import EntryName, parse
from msprobe.errors import DumpFormatError

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


def calls_of(data: dict[str, Any], path: str) -> list[Call]:
    """The calls of a dump, in its order.

    Args:
        data: what dump.json holds under `data`.
        path: that file, for messages.

    Raises:
        DumpFormatError: an entry is no object, or is nested too deep to be read.
    """
    return [_call(name, entry, path) for name, entry in data.items()]


def _call(name: str, entry: Any, path: str) -> Call:
    rows: list[Row] = []
    parts = parse(name)
    try:
        if parts.direction == "parameters_grad" and isinstance(entry, dict):
            for parameter, value in entry.items():
                if isinstance(value, list) and len(value) == 1:
                    value = value[0]
                _add(rows, name, "", "parameters_grad", parameter, value)
        elif parts.direction == "debug":
            _add(rows, name, "", "output", "", entry)
        elif isinstance(entry, dict):
            for part, value in entry.items():
                role = _ROLES.get(part)
                if role is not None and value is not None:
                    _add(rows, name, role, role, "", value)
        else:
            raise DumpFormatError(f"{path}: the entry {name!r} is no JSON object; the file is not a dump or was damaged")
    except RecursionError:
        raise DumpFormatError(f"{path}: the entry {name!r} is nested too deep to be read") from None
    return Call(name, parts, tuple(rows))


def _add(rows: list[Row], entry: str, label: str, role: Role, path: str, item: Any) -> None:
    """Appends the rows of one recorded value, depth first. `label` is `input`, `output`, ... or "" where the path follows the entry."""
    if type(item) is dict:
        kind = item.get("type")
        if not isinstance(kind, str):
            for key, child in item.items():
                _add(rows, entry, label, role, f"{path}.{key}" if path else key, child)
            return
    elif type(item) is list:
        for index, child in enumerate(item):
            _add(rows, entry, label, role, f"{path}.{index}" if path else str(index), child)
        return
    key = f"{label}.{path}" if label and path else label or path
    name = f"{entry}.{key}" if key else entry
    if item is None:
        rows.append(Row(name, key, role, "null", "N/A", "N/A", "N/A", _NO_STATISTICS, None, None, None))
    elif type(item) is dict:
        if "dtype" in item and "shape" in item:
            rows.append(_tensor(name, entry, key, role, item))
        else:
            rows.append(_value(name, key, role, item["type"], item, path))
    elif not path.endswith("class_type"):  # a bare value, as inside a P2POp
        rows.append(_scalar(name, key, role, type(item).__name__, item, None))


def _tensor(name: str, entry: str, key: str, role: Role, item: dict[str, Any]) -> Row:
    data_name = item.get("data_name")
    if data_name is not None:
        data_name = str(data_name)
        stem = data_name.rpartition(".")[0]
        # A shortened or foreign file name says nothing about the call; then the place in the entry is the name.
        if stem != entry and (not stem.startswith(entry + ".") or "/" in stem or "\\" in stem):
            stem = name
        name = stem
    shape = item["shape"]
    statistics = (item.get("Max"), item.get("Min"), item.get("Mean"), item.get("Norm"))
    if str in map(type, statistics):
        statistics = tuple(map(_number, statistics))
    requires_grad = item.get("requires_grad")
    return Row(
        name,
        key,
        role,
        "tensor",
        str(item["dtype"]),
        str(shape),
        "N/A" if requires_grad is None else str(requires_grad),
        statistics,
        _numel(shape),
        item.get("md5"),
        data_name,
    )


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
    """A statistic that was written as text (`"NaN"`) as the number it means."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


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
    return _scalar(name, key, role, type(value).__name__ if kind.startswith("torch.") else kind, value, md5)


def _scalar(name: str, key: str, role: Role, kind: str, value: Any, md5: Any) -> Row:
    shown = value if isinstance(value, (int, float, str)) or value is None else str(value)
    return Row(name, key, role, "scalar", f"<class '{kind}'>", "[]", "N/A", (shown,) * 4, value, md5, None)
