"""Functions that a user's module has imported by name before recording began: `from mindspore.ops import relu`."""

from __future__ import annotations

import os
import sys
import sysconfig
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

_PACKAGES = tuple(
    os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib")
)  # what is installed is not the user's own
_OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)).split(os.path.join("msprobe", "mindspore"))[0], "msprobe", "")
_known: dict[str, tuple[Callable[[], Any], bool]] = {}
"""Name -> what gives the module that it was looked up for, which is not kept alive, and whether that is the user's own."""


def imported_names(functions: Mapping[int, Any]) -> Iterator[tuple[ModuleType, str, Any]]:
    """Module, name and what `functions` has for the object of this name; of the modules that are the user's own.

    Args:
        functions: by the id of an object.
    """
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType):
            continue
        known = _known.get(name)
        if known is None or known[0]() is not module:
            known = _known[name] = (weakref.ref(module), _is_the_users(name, module))
        if not known[1]:
            continue
        for attribute, value in list(vars(module).items()):
            found = functions.get(id(value))
            if found is not None:
                yield module, attribute, found


def _is_the_users(name: str, module: ModuleType) -> bool:
    if name.partition(".")[0] in ("mindspore", "msprobe"):
        return False
    path = vars(module).get("__file__")  # a `__getattr__` of the module's own does not run
    if not isinstance(path, str):
        return name == "__main__"  # of a notebook
    path = os.path.abspath(path)
    return not path.startswith((*_PACKAGES, _OWN))
