"""Python runs this when it starts below `msprobe run`: it waits until torch is imported, and makes way for the user's own sitecustomize.

Nothing is imported here but what Python has loaded already, `typing` least of all: most processes below a launcher never import torch.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Loader:
    """torch's own loader, and a word to msprobe once torch is there."""

    def __init__(self, loader: "Any", finder: "Any") -> None:
        self._loader, self._finder = loader, finder

    def create_module(self, spec: "Any") -> "Any":
        return self._loader.create_module(spec)

    def exec_module(self, module: "Any") -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        _arm()

    def __getattr__(self, name: str) -> "Any":
        return getattr(self._loader, name)


class _Finder:
    """Waits for torch. Whoever only asks whether torch is installed gets the answer, and the waiting goes on."""

    busy = False

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name != "torch" or self.busy:
            return None
        self.busy = True
        try:
            for finder in list(sys.meta_path):
                spec = finder.find_spec(name, path, target) if finder is not self and hasattr(finder, "find_spec") else None
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]
                    return spec
        finally:
            self.busy = False
        return None


def _arm() -> None:
    """torch is imported."""
    try:
        from msprobe.launch.arming import arm

        arm()
    except Exception as error:
        text = f"nothing is recorded in process {os.getpid()} ({sys.executable}): {type(error).__name__}: {error}"
        if isinstance(error, ImportError):
            text += "; msprobe and what it needs must be installed for the Python that runs the script"
        try:
            sys.stderr.write(f"msprobe run: {text}\n")
        except Exception:  # closed
            pass
        _event("failed")


def _event(kind: str) -> None:
    """A line for the parent, by hand: a JSON encoder is not loaded yet."""
    path = os.environ.get("MSPROBE_RUN_EVENTS")
    if not path:
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, b'{"event": "%s", "pid": %d}\n' % (kind.encode(), os.getpid()))
        finally:
            os.close(descriptor)
    except OSError:  # another machine, or the command has ended
        pass


def _make_way(here: str) -> None:
    """As if this directory had never been on the path: a sitecustomize of the user's runs, or is missed, in the usual way."""
    sys.path[:] = [path for path in sys.path if path != here]
    sys.path_importer_cache.pop(here, None)
    del sys.modules["sitecustomize"]
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401


if __name__ == "sitecustomize":
    if os.environ.get("MSPROBE_RUN"):
        sys.meta_path.insert(0, _Finder())
        _event("python")
    _make_way(os.path.dirname(os.path.abspath(__file__)))
