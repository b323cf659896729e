"""msprobe for PyTorch."""

from msprobe.pytorch.debugger import PrecisionDebugger
from msprobe.pytorch.reproducibility.seeding import seed_all

__all__ = ["PrecisionDebugger", "seed_all"]
