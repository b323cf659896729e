"""Values of tensors that wait until their call has ended: only then is it known whether they are kept."""

from __future__ import annotations

from typing import Any, cast

import torch

from msprobe.pytorch.dump.encoder import Path, Side
from msprobe.pytorch.dump.tensor_saver import TensorSaver
from msprobe.writer import TensorPool


class _Taken:
    """Stands where the pool would: keeps what it is given for later."""

    def __init__(self) -> None:
        self.job: tuple[str, tuple[Any, ...], dict[str, Any]] | None = None

    def submit(self, *args: Any, **kwargs: Any) -> None:
        self.job = "submit", args, kwargs

    def submit_saver(self, *args: Any, **kwargs: Any) -> None:
        self.job = "submit_saver", args, kwargs


class HeldTensors:
    """Takes a tensor's values at the time of the call, as `TensorSaver` does, and writes them or forgets them when the entry ends.

    Args:
        directory: where the files would go.
        pool: would write them.
    """

    def __init__(self, directory: str, pool: TensorPool) -> None:
        self._directory = directory
        self._pool = pool
        self._held: dict[str, dict[tuple[str, Path], tuple[str, _Taken]]] = {}

    def __call__(self, tensor: torch.Tensor, side: Side, path: Path) -> None:
        """Copy one tensor's values. The record is given no file's name: there is no file yet."""
        taken = _Taken()
        name = TensorSaver(self._directory, cast(TensorPool, taken))(tensor, side, path)
        if name is not None and taken.job is not None:
            self._held.setdefault(side.entry, {})[side.role, path] = name, taken

    def forget(self, entry: str) -> None:
        """The values of an entry are not wanted."""
        self._held.pop(entry, None)

    def write(self, entry: str, data: dict[str, Any], key: str) -> int:
        """Have the values of an entry written, and name each file in its record; gives the number of files.

        Args:
            entry: its name.
            data: its value.
            key: of the file's name in the record of the tensor.
        """
        files = 0
        for (role, path), (name, taken) in self._held.pop(entry, {}).items():
            record = _record_at(data, role, path)
            if record is not None and taken.job is not None:
                method, args, kwargs = taken.job
                getattr(self._pool, method)(*args, **kwargs)
                record[key] = name
                files += 1
        return files


def _record_at(data: dict[str, Any], role: str, path: Path) -> dict[str, Any] | None:
    """The record of the tensor that stands at `path` of one side of an entry, None where there is none."""
    if role == "input" and "input_args" in data:
        found: Any = data["input_args"]
    elif role == "":  # gradients of parameters: each is a list of one
        found = data.get(path[0])
        path = ("0", *path[1:])
    else:
        found = data.get("input_kwargs" if role == "kwargs" else role)
    for part in path:
        if isinstance(found, dict):
            found = found.get(part)
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return None
    return found if isinstance(found, dict) and isinstance(found.get("dtype"), str) else None
