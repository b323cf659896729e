"""Functions, methods of tensors, primitives and compiled functions: what stands in their place while recording is on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mindspore import nn
from mindspore.ops.primitive import Primitive

from msprobe.mindspore.dump.api_dump import communication
from msprobe.mindspore.dump.api_dump.api_table import watched
from msprobe.mindspore.dump.api_dump.imported_names import imported_names
from msprobe.mindspore.dump.cell_dump.naming import checked_models
from msprobe.mindspore.dump.patches import Patches
from msprobe.mindspore.dump.recorder import Recorder

_SILENT = frozenset(("Shape", "Rank", "DType", "Size", "TensorShape", "DynamicShape", "Depend", "Print"))
"""Primitives that compute nothing: what they say of a tensor is in its record."""
_HOOKS = frozenset(("HookBackward", "CellBackwardHook"))
"""Those by which a cell carries hooks of the user's: no call of the model's."""


_made: list[tuple[Any, str, str, Any, Any]] = []
"""Owner, attribute, `Functional.relu`, the function and what stands in its place: made once, for there are more than a thousand."""


def watch_functions(recorder: Recorder, patches: Patches) -> None:
    """Have the calls of all functions in the table recorded, also where a module of the user's has imported them by name."""
    if not _made:
        _made.extend((owner, attribute, full, None, None) for owner, attribute, full, _ in watched())
    for place, (owner, attribute, full, function, made) in enumerate(_made):
        there = getattr(owner, attribute, None)
        if there is None:
            continue
        if made is None or there is not function or made.msprobe_recorder is not recorder:
            stand_in = communication.in_place_of if full.startswith(communication.PREFIXES) else _in_place_of
            made = stand_in(recorder, full, there)
            made.msprobe_recorder = recorder
            _made[place] = (owner, attribute, full, there, made)
        patches.add(owner, attribute, made)
    by_function = {
        id(function): made for owner, _, _, function, made in reversed(_made) if made is not None and not isinstance(owner, type)
    }
    for module, name, made in imported_names(by_function):
        patches.add(module, name, made)


def _in_place_of(recorder: Recorder, full: str, function: Callable[..., Any]) -> Any:
    api = recorder.api

    def call(*args: Any, **kwargs: Any) -> Any:
        return api(full, function, args, kwargs)

    return functools.update_wrapper(call, function, [name for name in functools.WRAPPER_ASSIGNMENTS if hasattr(function, name)])


def watch_primitives(recorder: Recorder, patches: Patches, model: Any) -> None:
    """Have the calls of the primitives that cells of `model` hold recorded, as `Primitive.{attribute}.{Class}`.

    The class that has `__call__` is exchanged, never the primitive: its own class and identity stay what they are.
    """
    if model is None:
        return
    held: dict[int, tuple[Any, str]] = {}
    for _, root in checked_models(model):
        for _, cell in root.cells_and_names() if isinstance(root, nn.Cell) else ():
            for attribute, value in _attributes(cell).items():
                if isinstance(value, Primitive) and type(value).__name__ not in _SILENT | _HOOKS:
                    held.setdefault(id(value), (value, f"Primitive.{attribute}.{type(value).__name__}"))
    classes = {owner for value, _ in held.values() for owner in type(value).__mro__ if "__call__" in vars(owner)}
    for owner in {next(c for c in type(value).__mro__ if c in classes) for value, _ in held.values()}:
        patches.add(owner, "__call__", _call_of_primitive(recorder, held, vars(owner)["__call__"]))


def _attributes(cell: Any) -> dict[str, Any]:
    found = dict(vars(cell))
    found.update(getattr(cell, "_primitives", None) or {})
    return found


def _call_of_primitive(recorder: Recorder, held: dict[int, tuple[Any, str]], function: Callable[..., Any]) -> Callable[..., Any]:
    api = recorder.api

    @functools.wraps(function)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        known = held.get(id(self))
        if known is None:
            return function(self, *args, **kwargs)
        return api(known[1], function, (self, *args), kwargs, 1)

    return __call__
