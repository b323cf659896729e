"""Level debug: what a script hands to PrecisionDebugger.save()."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import NoReturn

from msprobe.errors import UsageError


class _Package(ModuleType):
    """This package, which `from msprobe.pytorch import save` gives, as if it were MindSpore's function of that name."""

    def __call__(self, *values: object, **more: object) -> NoReturn:
        raise UsageError("msprobe.pytorch.save is a package and saves nothing: call PrecisionDebugger.save(variable, name), at level debug")


sys.modules[__name__].__class__ = _Package
