"""Names of a model's cells in the dump."""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mindspore import nn
from msprobe.errors import UsageError

_OF_TRAINING = ("optimizer", "grad_reducer")
"""Cells of nn.TrainOneStepCell that are no part of the model."""
_RECOMPUTED = "_recompute_cell"
"""What `Cell.recompute` puts into a cell around itself."""


def checked_models(model: object) -> list[tuple[str, nn.Cell]]:
    """The root cells with the prefix of their cells' names: "" for a single model, "0.", "1." … for a list or tuple.

    Raises:
        UsageError: `model` is neither a cell nor a list or tuple of cells.
    """
    if isinstance(model, nn.Cell):
        return [("", model)]
    if isinstance(model, list | tuple):
        for index, item in enumerate(model):
            if not isinstance(item, nn.Cell):
                raise UsageError(f"start(model): model[{index}] is {type(item).__name__}, not a mindspore.nn.Cell")
        return [(f"{index}.", item) for index, item in enumerate(model)]
    raise UsageError(f"start(model): model is {type(model).__name__}; allowed: a mindspore.nn.Cell, or a list or tuple of them")


def named_cells(model: object) -> Iterator[tuple[str, Any]]:
    """`Cell.{path}.{Class}` and the cell, for everything inside the given model or models; the models themselves are left out.

    A cell that stands in several places has the name of the first one. Optimizers are no part of a model, wherever they are kept.
    """
    seen: set[int] = set()
    for prefix, root in checked_models(model):
        skipped: tuple[str, ...] = _OF_TRAINING if isinstance(root, nn.TrainOneStepCell) else ()
        seen.add(id(root))
        for path, cell in root.cells_and_names():
            parts = path.split(".")
            if id(cell) in seen or isinstance(cell, nn.Optimizer) or parts[0] in skipped or _RECOMPUTED in parts:
                continue
            seen.add(id(cell))
            yield f"Cell.{prefix}{path}.{type(cell).__name__}", cell
