"""Acts on a module of vLLM once it has been imported, by whoever needs it: importing it here would load what this process may not use."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType

from msprobe.contain import let_through
from msprobe.log import logger

Action = Callable[[ModuleType], None]


def when_imported(names: Iterable[str], action: Action) -> None:
    """Call `action(module)` for each of these modules, now or when its import has ended. What it raises is logged."""
    waiting = set()
    for name in names:
        module = sys.modules.get(name)
        if module is not None:
            _contained(action, module)
        else:
            waiting.add(name)
    if waiting:
        sys.meta_path.insert(0, _Finder(waiting, action))


def _contained(action: Action, module: ModuleType) -> None:
    try:
        action(module)
    except Exception as error:
        let_through(error)
        logger.error(f"{module.__name__} is not watched, nothing of it is recorded: {error!r}")


class _Finder(MetaPathFinder):
    """Finds the modules that are waited for where they are, and takes itself away when all have come."""

    def __init__(self, waiting: set[str], action: Action) -> None:
        self._waiting, self._action = waiting, action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's own spec, with a loader that acts afterwards."""
        if fullname not in self._waiting:
            return None
        self._waiting.discard(fullname)
        if not self._waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = _found(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._action)
        return spec


def _found(name: str, path: Sequence[str] | None, target: ModuleType | None) -> importlib.machinery.ModuleSpec | None:
    """What the other finders say, in their order: a package that is installed for development may have one of its own."""
    for finder in [*sys.meta_path]:
        if not isinstance(finder, _Finder) and hasattr(finder, "find_spec"):
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
    return None


class _Loader(Loader):
    """The module's own loader, and the action behind it; the module never sees it."""

    def __init__(self, loader: Loader, action: Action) -> None:
        self._loader, self._action = loader, action

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As the module's own loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, then act."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _contained(self._action, module)
