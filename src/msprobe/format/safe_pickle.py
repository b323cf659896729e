"""A pickle machine that can do one thing: say which bytes of which storage a tensor is.

`pickle` runs whatever a file asks for. This machine knows 30 opcodes that build numbers, texts, tuples and lists, and a fixed table of
global names, for none of which anything is imported or called: a REDUCE of a known rebuild function becomes a TensorView. Everything else
raises Refused.

Opcodes: CPython Lib/pickletools.py. Rebuild functions: torch/_utils.py.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from msprobe.format.dtypes import SPELLING, STORAGE_DTYPE

# A plain tensor's pickle has about 150 bytes; a tensor with a thousand dimensions would have some thousand.
MAX_SIZE = 1 << 16
_MAX_STEPS = 1 << 14


class Refused(Exception):
    """The pickle is not that of a plain tensor; the text says why."""


@dataclass(frozen=True)
class Storage:
    """`dtype` is "" for an untyped storage, whose `count` is in bytes, else in elements."""

    key: str
    dtype: str
    count: int


@dataclass(frozen=True)
class TensorView:
    """A tensor as a view of a storage: offset, shape and strides in elements."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class _Global:
    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass
class _EmptyDict:
    """`collections.OrderedDict()`: the hooks of a tensor, always empty in a file that can be read."""


class _Mark:
    pass


_MARK = _Mark()
_REBUILD_V2 = _Global("torch._utils", "_rebuild_tensor_v2")
_REBUILD_V3 = _Global("torch._utils", "_rebuild_tensor_v3")
_REBUILD_PARAMETER = _Global("torch._utils", "_rebuild_parameter")
_ORDERED_DICT = _Global("collections", "OrderedDict")
_UNTYPED = _Global("torch.storage", "UntypedStorage")
_ALLOWED = {_REBUILD_V2, _REBUILD_V3, _REBUILD_PARAMETER, _ORDERED_DICT, _UNTYPED}
_ALLOWED |= {_Global("torch", storage) for storage in STORAGE_DTYPE}
_ALLOWED |= {_Global("torch", dtype) for dtype in SPELLING}
_WHY_NOT = {
    _Global("torch._utils", "_rebuild_sparse_tensor"): "a sparse tensor",
    _Global("torch._utils", "_rebuild_qtensor"): "a quantized tensor",
    _Global("torch._utils", "_rebuild_nested_tensor"): "a nested tensor",
    _Global("torch._utils", "_rebuild_meta_tensor_no_storage"): "a tensor without data (meta)",
    _Global("torch._utils", "_rebuild_wrapper_subclass"): "a tensor subclass",
    _Global("torch._tensor", "_rebuild_from_type_v2"): "a tensor subclass, or a tensor with attributes",
}


@lru_cache(maxsize=512)
def tensor_view(pickled: bytes) -> TensorView:
    """The tensor that a `data.pkl` describes. Raises Refused; runs nothing."""
    if len(pickled) > MAX_SIZE:
        raise Refused(f"its pickle has {len(pickled)} bytes, a plain tensor needs a few hundred")
    try:
        result = _Machine(pickled).run()
    except (IndexError, struct.error, UnicodeDecodeError, ValueError):
        raise Refused("its pickle is cut off or damaged") from None
    if not isinstance(result, TensorView):
        raise Refused(f"it holds {_describe(result)} instead of a tensor")
    return result


class _Machine:
    def __init__(self, code: bytes) -> None:
        self._code = code
        self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(_MAX_STEPS):
            opcode = self._code[self._at]
            self._at += 1
            if opcode == 0x2E:  # STOP
                return self._stack.pop()
            handler = _HANDLERS.get(opcode)
            if handler is None:
                raise Refused(f"its pickle uses opcode 0x{opcode:02x}, which no plain tensor needs")
            handler(self)
        raise Refused("its pickle is too long")

    def _take(self, count: int) -> bytes:
        data = self._code[self._at : self._at + count]
        if len(data) != count:
            raise IndexError
        self._at += count
        return data

    def _unsigned(self, count: int) -> int:
        return int.from_bytes(self._take(count), "little")

    def _line(self) -> str:
        end = self._code.index(b"\n", self._at)
        text = self._code[self._at : end].decode()
        self._at = end + 1
        return text

    def _proto(self) -> None:
        if self._unsigned(1) not in (2, 3, 4, 5):
            raise Refused("its pickle has an unknown protocol")

    def _frame(self) -> None:
        self._take(8)

    def _push_global(self, module: str, name: str) -> None:
        found = _Global(module, name)
        if found not in _ALLOWED:
            raise Refused(f"it is {_WHY_NOT[found]}" if found in _WHY_NOT else f"it asks for {found}, which a plain tensor does not need")
        self._stack.append(found)

    def _global(self) -> None:
        module = self._line()
        self._push_global(module, self._line())

    def _stack_global(self) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise Refused("its pickle names something by a value that is no text")
        self._push_global(module, name)

    def _text(self, width: int) -> None:
        self._stack.append(self._take(self._unsigned(width)).decode("utf-8", "strict"))

    def _signed4(self) -> None:
        self._stack.append(int.from_bytes(self._take(4), "little", signed=True))

    def _long1(self) -> None:
        size = self._unsigned(1)
        if size > 9:
            raise Refused("its pickle holds a number beyond 64 bits")
        self._stack.append(int.from_bytes(self._take(size), "little", signed=True))

    def _pop_to_mark(self) -> list[Any]:
        for position in range(len(self._stack) - 1, -1, -1):
            if self._stack[position] is _MARK:
                items = self._stack[position + 1 :]
                del self._stack[position:]
                return items
        raise IndexError

    def _tuple_n(self, count: int) -> None:
        if len(self._stack) < count or _MARK in self._stack[-count:]:
            raise IndexError
        items = tuple(self._stack[-count:])
        del self._stack[-count:]
        self._stack.append(items)

    def _put(self, key: int) -> None:
        self._memo[key] = self._stack[-1]

    def _get(self, key: int) -> None:
        if key not in self._memo:
            raise IndexError
        self._stack.append(self._memo[key])

    def _persistent_id(self) -> None:
        pid = self._stack.pop()
        match pid:
            case ("storage", _Global() as kind, str(key), str(_location), int(count)) if count >= 0 and not isinstance(count, bool):
                pass
            case _:
                raise Refused("its pickle refers to something that is no storage")
        if kind == _UNTYPED:
            dtype = ""
        elif kind.module == "torch" and kind.name in STORAGE_DTYPE:
            dtype = STORAGE_DTYPE[kind.name]
        else:
            raise Refused(f"its storage is of the unknown kind {kind}")
        self._stack.append(Storage(key, dtype, count))

    def _set_items(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict or len(items) % 2 or not all(type(key) is str for key in items[::2]):
            raise Refused("it holds a dictionary with keys that are no texts")
        target.update(zip(items[::2], items[1::2], strict=True))

    def _set_item(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set_items([key, value])

    def _append_items(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is not list:
            raise Refused("its pickle appends to something that is no list")
        self._stack[-1].extend(items)

    def _reduce(self) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        if not isinstance(function, _Global) or not isinstance(arguments, tuple):
            raise Refused("its pickle calls something that is no function")
        if function == _ORDERED_DICT:
            if arguments:
                raise Refused("it holds a dictionary with content")
            self._stack.append(_EmptyDict())
        elif function == _REBUILD_PARAMETER:
            match arguments:
                case (TensorView() as view, bool(), _EmptyDict()):
                    self._stack.append(view)
                case _:
                    raise Refused("its parameter has unexpected parts")
        elif function in (_REBUILD_V2, _REBUILD_V3):
            self._stack.append(_rebuild(arguments, function == _REBUILD_V3))
        else:
            raise Refused(f"its pickle calls {function}, which is no way to make a plain tensor")


def _rebuild(arguments: tuple[Any, ...], names_dtype: bool) -> TensorView:
    dtype = ""
    if names_dtype and len(arguments) >= 7:
        named = arguments[6]
        if not isinstance(named, _Global) or named.module != "torch" or named.name not in SPELLING:
            raise Refused(f"its dtype is {_describe(named)}")
        dtype, arguments = named.name, arguments[:6] + arguments[7:]
    if len(arguments) == 7 and arguments[6]:
        raise Refused("it is a lazily conjugated or negated tensor")
    match arguments[:6]:
        case (Storage() as storage, int(offset), tuple(shape), tuple(strides), bool(), _EmptyDict()):
            pass
        case _:
            raise Refused("its tensor has unexpected parts")
    if len(arguments) > 7 or bool(storage.dtype) == names_dtype or (names_dtype and not dtype):
        raise Refused("its tensor has unexpected parts")
    numbers = (offset, *shape, *strides)
    if len(shape) != len(strides) or not all(type(number) is int and 0 <= number < 1 << 63 for number in numbers):
        raise Refused("its offset, shape or strides are out of range")
    return TensorView(storage, dtype or storage.dtype, offset, shape, strides)


def _describe(value: Any) -> str:
    if isinstance(value, (dict, _EmptyDict)):
        return "a dictionary"
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__}"
    return f"a value of type {type(value).__name__}" if not isinstance(value, _Global) else str(value)


def _append(value: Any) -> Any:
    return lambda machine: machine._stack.append(value)


_HANDLERS: dict[int, Any] = {
    0x80: _Machine._proto,
    0x95: _Machine._frame,
    ord("c"): _Machine._global,
    0x93: _Machine._stack_global,
    ord("X"): lambda machine: machine._text(4),
    0x8C: lambda machine: machine._text(1),
    ord("K"): lambda machine: machine._stack.append(machine._unsigned(1)),
    ord("M"): lambda machine: machine._stack.append(machine._unsigned(2)),
    ord("J"): _Machine._signed4,
    0x8A: _Machine._long1,
    ord("("): _append(_MARK),
    ord("t"): lambda machine: machine._stack.append(tuple(machine._pop_to_mark())),
    ord(")"): _append(()),
    0x85: lambda machine: machine._tuple_n(1),
    0x86: lambda machine: machine._tuple_n(2),
    0x87: lambda machine: machine._tuple_n(3),
    0x88: _append(True),
    0x89: _append(False),
    ord("N"): _append(None),
    ord("}"): lambda machine: machine._stack.append({}),
    ord("]"): lambda machine: machine._stack.append([]),
    ord("s"): _Machine._set_item,
    ord("u"): lambda machine: machine._set_items(machine._pop_to_mark()),
    ord("a"): lambda machine: machine._append_items([machine._stack.pop()]),
    ord("e"): lambda machine: machine._append_items(machine._pop_to_mark()),
    ord("q"): lambda machine: machine._put(machine._unsigned(1)),
    ord("r"): lambda machine: machine._put(machine._unsigned(4)),
    0x94: lambda machine: machine._put(len(machine._memo)),
    ord("h"): lambda machine: machine._get(machine._unsigned(1)),
    ord("j"): lambda machine: machine._get(machine._unsigned(4)),
    ord("Q"): _Machine._persistent_id,
    ord("R"): _Machine._reduce,
}
