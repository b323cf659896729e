"""Names of tensor files that no two values share."""

from __future__ import annotations

import threading

from msprobe.format import layout
from msprobe.pytorch.dump.encoder import Path, Side
from msprobe.pytorch.dump.tensor_saver import TensorSaver
from msprobe.writer import TensorPool


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
