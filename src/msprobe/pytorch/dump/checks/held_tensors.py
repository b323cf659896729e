"""Values of tensors that wait until their call has ended: only then is it known whether they are kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import torch

from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.encoder import Path, Side
from msprobe.pytorch.dump.tensor_saver import TensorSaver
from msprobe.writer import TensorPool

LIMIT = 1 << 30
"""Bytes of values held at most by calls that run, in one step."""


class _Taken:
    """Stands where the pool would: keeps what it is given for later."""

    def __init__(self) -> None:
        self.job: tuple[str, tuple[Any, ...], dict[str, Any]] | None = None

    def submit(self, path: str, dtype: str, shape: tuple[int, ...], data: Any, owner: Any = None) -> None:
        # The pool would copy it now, and this is now.
        self.job = "submit", (path, dtype, shape, bytes(data) if owner is None else data, owner), {}

    def submit_saver(self, *args: Any, **kwargs: Any) -> None:
        self.job = "submit_saver", args, kwargs


class _Entry:
    """What is held of one entry."""

    __slots__ = ("given_up", "nbytes", "parameters", "values")

    def __init__(self) -> None:
        self.values: dict[tuple[str, Path], tuple[str, _Taken]] = {}
        self.parameters: list[tuple[str, Path]] = []
        self.nbytes = 0
        self.given_up = False


class HeldTensors:
    """Takes a tensor's values at the time of the call, as `TensorSaver` does, and writes them or forgets them when the entry ends.

    Calls that run inside each other hold their values at the same time. Beyond `limit` those of the call that began first are given up:
    it is the outermost, and what goes wrong is more likely to show in a call inside it.

    Args:
        directory: where the files would go.
        pool: would write them.
        limit: bytes held at most.
    """

    def __init__(self, directory: str, pool: TensorPool, limit: int = LIMIT) -> None:
        self._directory = directory
        self._pool = pool
        self._limit = limit
        self._lock = threading.Lock()
        self._held: dict[str, _Entry] = {}
        self._nbytes = 0
        self.report: Callable[[str, str], None] = lambda entry, reason: None
        """Told of an entry whose values are wanted and were given up."""

    def __call__(self, tensor: torch.Tensor, side: Side, path: Path) -> None:
        """Copy one tensor's values. The record is given no file's name: there is no file yet."""
        nbytes = _bytes_of(tensor)
        with self._lock:
            entry = self._held.setdefault(side.entry, _Entry())
            if isinstance(tensor, torch.nn.Parameter):
                entry.parameters.append((side.role, path))
            if not self._make_room(entry, nbytes):
                return
        taken = _Taken()
        name = None
        try:
            name = TensorSaver(self._directory, cast(TensorPool, taken))(tensor, side, path)
        finally:
            with self._lock:
                if entry.given_up:
                    pass  # by another thread, meanwhile
                elif name is not None and taken.job is not None:
                    entry.values[side.role, path] = name, taken
                else:
                    entry.nbytes -= nbytes
                    self._nbytes -= nbytes

    def parameters(self, entry: str) -> list[tuple[str, Path]]:
        """Where an entry that is held took in parameters of modules: role and path of each."""
        found = self._held.get(entry)
        return found.parameters if found is not None else []

    def forget(self, entry: str) -> None:
        """The values of an entry are not wanted."""
        self._take(entry)

    def write(self, entry: str, data: dict[str, Any], key: str) -> int:
        """Have the values of an entry written, and name each file in its record; gives the number of files.

        Args:
            entry: its name.
            data: its value.
            key: of the file's name in the record of the tensor.
        """
        files = 0
        held = self._take(entry)
        if held is None:
            return 0
        if held.given_up:
            self.report(entry, f"its values were not kept: those of the calls that ran together are more than {self._limit / 2**30:g} GiB")
        for (role, path), (name, taken) in held.values.items():
            record = record_at(data, role, path)
            if record is not None and taken.job is not None:
                method, args, kwargs = taken.job
                getattr(self._pool, method)(*args, **kwargs)
                record[key] = name
                files += 1
        return files

    def _take(self, entry: str) -> _Entry | None:
        with self._lock:
            held = self._held.pop(entry, None)
            if held is not None:
                self._nbytes -= held.nbytes
            return held

    def _make_room(self, entry: _Entry, nbytes: int) -> bool:
        """Count `nbytes` more for an entry, giving up others for them; False where the entry itself is given up."""
        if entry.given_up:
            return False
        if entry.nbytes + nbytes > self._limit:
            self._give_up(entry)
            return False
        for other in self._held.values():  # in the order in which they began
            if self._nbytes + nbytes <= self._limit:
                break
            if other is not entry and other.nbytes:
                self._give_up(other)
        entry.nbytes += nbytes
        self._nbytes += nbytes
        return True

    def _give_up(self, entry: _Entry) -> None:
        self._nbytes -= entry.nbytes
        entry.nbytes, entry.given_up, entry.values = 0, True, {}


def _bytes_of(tensor: torch.Tensor) -> int:
    """Of the values that a copy holds; of a sparse tensor, those that it stores."""
    try:
        if tensor.layout is not torch.strided:
            with torch_internals.NoTorchFunction(), torch.no_grad(), torch_internals.no_dispatch_modes():
                values = tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()
            return values.numel() * values.element_size()
        return tensor.numel() * tensor.element_size()
    except Exception as caught:
        let_through(caught)
        return 0


def record_at(data: dict[str, Any], role: str, path: Path) -> dict[str, Any] | None:
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
