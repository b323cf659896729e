"""Calls of cells are seen in `Cell.__call__`: no cell has a hook of ours, so copies and compiled graphs of it take none along."""

from __future__ import annotations

import functools
from typing import Any

from mindspore import nn

from msprobe.mindspore.dump.cell_dump.naming import named_cells
from msprobe.mindspore.dump.patches import Patches
from msprobe.mindspore.dump.recorder import Recorder
from msprobe.mindspore.msadapter import module_class


def watch_cells(recorder: Recorder, patches: Patches, model: Any) -> int:
    """Have the calls of everything inside `model` recorded; gives how many cells that is."""
    held = {id(cell): (prefix, cell) for prefix, cell in named_cells(model)}
    classes = {next(c for c in type(cell).__mro__ if "__call__" in vars(c)) for _, cell in held.values()} | {nn.Cell}
    module = module_class()
    if module is not None:
        classes |= {next(c for c in module.__mro__ if "__call__" in vars(c))}
    for owner in classes:
        patches.add(owner, "__call__", _call_of_cell(recorder, held, owner, vars(owner)["__call__"]))
    return len(held)


def _call_of_cell(recorder: Recorder, held: dict[int, tuple[str, Any]], owner: type, function: Any) -> Any:
    cell_call = recorder.cell
    first: dict[type, bool] = {}

    @functools.wraps(function)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        known = held.get(id(self))
        if known is None:
            return function(self, *args, **kwargs)
        kind = type(self)
        if kind not in first:
            first[kind] = next(c for c in kind.__mro__ if "__call__" in vars(c)) is owner
        if not first[kind]:  # a class with a `__call__` of its own goes on to this one: that is one call
            return function(self, *args, **kwargs)
        return cell_call(known[0], self, function, args, kwargs)

    return __call__
