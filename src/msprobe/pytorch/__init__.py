"""msprobe for PyTorch."""

from typing import Any

from msprobe.pytorch.debugger import PrecisionDebugger
from msprobe.pytorch.reproducibility.random_save import random_save
from msprobe.pytorch.reproducibility.seeding import seed_all
from msprobe.pytorch.single_module import module_dump, module_dump_end

__all__ = ["PrecisionDebugger", "module_dump", "module_dump_end", "random_save", "seed_all"]

_LATER = ("save",)


def __getattr__(name: str) -> Any:
    if name in _LATER:
        raise ImportError(f"msprobe.pytorch.{name} is not available yet")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
