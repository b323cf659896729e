"""msprobe for MindSpore."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msprobe.mindspore.debugger import PrecisionDebugger
    from msprobe.mindspore.model_callbacks import MsprobeInitStep, MsprobeStep
    from msprobe.mindspore.reproducibility.seeding import seed_all
    from msprobe.mindspore.static_save.calls import save, save_grad, step

__all__ = ["MsprobeInitStep", "MsprobeStep", "PrecisionDebugger", "save", "save_grad", "seed_all", "step"]

_WHERE = {
    "PrecisionDebugger": "msprobe.mindspore.debugger",
    "MsprobeStep": "msprobe.mindspore.model_callbacks",
    "MsprobeInitStep": "msprobe.mindspore.model_callbacks",
    "save": "msprobe.mindspore.static_save.calls",
    "save_grad": "msprobe.mindspore.static_save.calls",
    "step": "msprobe.mindspore.static_save.calls",
    "seed_all": "msprobe.mindspore.reproducibility.seeding",
}
"""Name -> the module that has it; imported when somebody asks, so that importing this package costs nothing beside MindSpore."""


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(where), name)
