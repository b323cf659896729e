"""Names of a model's cells in the dump."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mindspore import nn

from msprobe.errors import UsageError
from msprobe.mindspore.msadapter import module_class, named_modules

_OF_TRAINING = ("optimizer", "grad_reducer")
"""Cells of nn.TrainOneStepCell that are no part of the model."""
RECOMPUTED = "_recompute_cell"
"""What `Cell.recompute` puts into a cell around itself."""


def checked_models(model: object) -> list[tuple[str, Any]]:
    """The root cells with the prefix of their cells' names: "" for a single model, "0.", "1." … for a list or tuple.

    With MSAdapter they may be modules.

    Raises:
        UsageError: `model` is neither a cell nor a list or tuple of cells.
    """
    module = module_class()
    allowed = (nn.Cell,) if module is None else (nn.Cell, module)
    if isinstance(model, allowed):
        return [("", model)]
    if isinstance(model, list | tuple):
        for index, item in enumerate(model):
            if not isinstance(item, allowed):
                raise UsageError(f"start(model): model[{index}] is {type(item).__name__}, not a mindspore.nn.Cell")
        return [(f"{index}.", item) for index, item in enumerate(model)]
    raise UsageError(f"start(model): model is {type(model).__name__}; allowed: a mindspore.nn.Cell, or a list or tuple of them")


def named_cells(model: object) -> Iterator[tuple[str, Any]]:
    """`Cell.{path}.{Class}` (of MSAdapter `Module.…`) and the cell, for everything inside the given model or models; they themselves are
    left out.

    A cell that stands in several places has the name of the first one. Optimizers are no part of a model, wherever they are kept.
    """
    seen: set[int] = set()
    for prefix, root in checked_models(model):
        skipped: tuple[str, ...] = _OF_TRAINING if isinstance(root, nn.TrainOneStepCell) else ()
        seen.add(id(root))
        first = "Cell" if isinstance(root, nn.Cell) else "Module"
        for path, cell in root.cells_and_names() if first == "Cell" else named_modules(root):
            parts = path.split(".")
            if id(cell) in seen or isinstance(cell, nn.Optimizer) or parts[0] in skipped or RECOMPUTED in parts:
                continue
            seen.add(id(cell))
            yield f"{first}.{prefix}{path}.{type(cell).__name__}", cell
