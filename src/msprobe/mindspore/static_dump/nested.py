"""Functions that are compiled into a graph, on values that hold tensors: tuples, lists and dicts.

MindSpore takes whatever a function that calls itself is given for unknown, constants too. So there is a function for each depth, and none
calls itself. What lies deeper is not recorded.
"""

# mypy: disable-error-code="import-not-found,no-untyped-def,no-untyped-call,misc,assignment"
from __future__ import annotations

from typing import Any

from mindspore import Tensor, float32, ops
from mindspore.ops.functional import isconstant, make_dict

from msprobe.mindspore.static_dump.taps import (
    EMPTY,
    FLUID,
    PLAIN,
    WIDENED,
    Tap,
    has_gradient,
    index_of,
    kind_of,
    note_constant,
    note_deep,
    note_unshaped,
)

_DEPTH = 6


def _record_tensor(base, role, path, value, number):
    kind = FLUID
    if isconstant(value.shape):
        kind = kind_of(value.shape, value.dtype)
    if kind == PLAIN:
        number = Tap((base, "forward", role, path))(value, number)
    elif kind == WIDENED:
        number = Tap((base, "forward", role, path), None, value.dtype)(ops.cast(value, float32), number)
    elif kind == EMPTY:
        number = Tap((base, "forward", role, path), value.shape, value.dtype)(ops.zeros((1,), float32), number)
    else:
        note_unshaped((base, "forward", role, path))
    return number


def _recording(inside: Any) -> Any:
    def record(base, role, path, value, number):
        if isinstance(value, Tensor):
            number = _record_tensor(base, role, path, value, number)
        elif isinstance(value, (list, tuple)):
            for i, item in enumerate(value):
                number = inside(base, role, f"{path}.{i}", item, number)
        elif isinstance(value, dict):
            for key, item in value.items():
                number = inside(base, role, f"{path}.{key}", item, number)
        else:
            note_constant((base, "forward", role, path), value)
        return number

    return record


def _following(inside: Any) -> Any:
    def follow(tap, base, role, path, value, number):
        if isinstance(value, Tensor):
            if has_gradient(base, role, path, value.dtype):
                return tap(value, number, index_of(base, role, path))
            return value
        if isinstance(value, tuple):
            through = ()
            for i, item in enumerate(value):
                through = through + (inside(tap, base, role, f"{path}.{i}", item, number),)  # noqa: RUF005  (what MindSpore's parser reads)
            return through
        if isinstance(value, list):
            elements = []
            for i, item in enumerate(value):
                elements.append(inside(tap, base, role, f"{path}.{i}", item, number))
            return elements
        if isinstance(value, dict) and len(value) > 0:  # values that are set one by one are of no type, where one of them is no tensor
            keys = ()
            items = ()
            i = 0
            for key, item in value.items():
                keys = keys + (key,)  # noqa: RUF005
                items = items + (inside(tap, base, role, f"{path}.{i}", item, number),)  # noqa: RUF005
                i = i + 1
            return make_dict(keys, items)
        return value

    return follow


def _giving(inside: Any) -> Any:
    def give(base, path, value, number):
        if isinstance(value, Tensor):
            return ops.depend(value, _record_tensor(base, "output", path, value, number))
        if isinstance(value, tuple):
            through = ()
            for i, item in enumerate(value):
                through = through + (inside(base, f"{path}.{i}", item, number),)  # noqa: RUF005
            return through
        if isinstance(value, list):
            elements = []
            for i, item in enumerate(value):
                elements.append(inside(base, f"{path}.{i}", item, number))
            return elements
        if isinstance(value, dict) and len(value) > 0:
            keys = ()
            items = ()
            for key, item in value.items():
                keys = keys + (key,)  # noqa: RUF005
                items = items + (inside(base, f"{path}.{key}", item, number),)  # noqa: RUF005
            return make_dict(keys, items)
        note_constant((base, "forward", "output", path), value)
        return value

    return give


def _record_deepest(base, role, path, value, number):
    note_deep((base, "forward", role, path))
    return number


def _follow_deepest(tap, base, role, path, value, number):
    return value


def _give_deepest(base, path, value, number):
    note_deep((base, "forward", "output", path))
    return value


def _nested(make: Any, deepest: Any) -> Any:
    for _ in range(_DEPTH):
        deepest = make(deepest)
    return deepest


record_value = _nested(_recording, _record_deepest)
"""`record_value(base, role, path, value, number)` hands the tensors in `value` to the recorder; gives the number, for what runs later."""
follow = _nested(_following, _follow_deepest)
"""`follow(tap, base, role, path, value, number)` gives the same value, with a tap for the gradient of each tensor in it; `path` counts in
dicts, too."""
give = _nested(_giving, _give_deepest)
"""`give(base, path, value, number)` gives the same value, of which each tensor is there only when it has been recorded."""
