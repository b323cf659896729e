"""msprobe for PyTorch."""

from msprobe.pytorch.debugger import PrecisionDebugger
from msprobe.pytorch.reproducibility.random_save import random_save
from msprobe.pytorch.reproducibility.seeding import seed_all
from msprobe.pytorch.single_module import module_dump, module_dump_end

__all__ = ["PrecisionDebugger", "module_dump", "module_dump_end", "random_save", "seed_all"]
