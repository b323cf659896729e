"""Keys of debug.json and names of tensor files that no two values share."""

from __future__ import annotations

import threading

from msprobe.format import layout
from msprobe.format.names import DebugName
from msprobe.log import logger
from msprobe.pytorch.dump.encoder import Path, Side
from msprobe.pytorch.dump.tensor_saver import TensorSaver
from msprobe.writer import TensorPool

_GRADIENT = "_grad"


class Keys:
    """The keys of one step.

    A value called `a_grad` and the gradient of a value called `a` would have the same keys. Whoever comes later gets the next number
    that is free, for both of its keys.
    """

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._used: set[tuple[str, int]] = set()
        self._told: set[str] = set()

    def take(self, name: str, gradient: bool) -> tuple[str, str | None]:
        """The key of the next value of a name, and that of its gradient, None where none is wanted."""
        number = wanted = self._next.get(name, 0)
        gradients = name + _GRADIENT
        while (name, number) in self._used or (gradient and (gradients, number) in self._used):
            number += 1
        if number != wanted and name not in self._told:
            self._told.add(name)
            other = name.removesuffix(_GRADIENT) if (name, wanted) in self._used else gradients
            logger.warning(
                f'save(name={name!r}): the keys of its gradients and those of "{other}" are the same words; what comes later has the next '
                f"number that is free, here {number}"
            )
        self._next[name] = number + 1
        self._used.add((name, number))
        if not gradient:
            return str(DebugName(name, number)), None
        self._used.add((gradients, number))
        return str(DebugName(name, number)), str(DebugName(gradients, number))


class UniqueSaver(TensorSaver):
    """Gives every value of a step a file of its own: `{"a.b": x, "a": {"b": y}}` has two paths that are spelled alike.

    Args:
        directory: dump_tensor_data of this step.
        pool: writes the files.
    """

    def __init__(self, directory: str, pool: TensorPool) -> None:
        super().__init__(directory, pool)
        self._names: set[str] = set()
        self._lock = threading.Lock()

    def file_name(self, side: Side, path: Path) -> str:
        """The name of the file for a value; a second one that would have the same is called `....~1.pt`."""
        name = super().file_name(side, path)
        with self._lock:
            number = 0
            while name in self._names:
                number += 1
                name = layout.tensor_file_name(side.entry, side.role, (*path, f"~{number}"))
            self._names.add(name)
        return name
