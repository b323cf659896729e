"""Copies of values on their way to `.npy` files."""

from __future__ import annotations

import os

import numpy as np

from msprobe.format import layout
from msprobe.mindspore.dump.values import Array, Path
from msprobe.writer import TensorPool

_EXACT_AS = {"bfloat16": np.float32, "float8_e4m3fn": np.float32, "float8_e5m2": np.float32, "hifloat8": np.float32}
"""dtypes that numpy writes as raw bytes and cannot read again; each of their values is a float32."""


class TensorFiles:
    """Keeps values: one `.npy` each, written by the threads of the pool.

    Args:
        directory: of the files.
        pool: writes them.
    """

    def __init__(self, directory: str, pool: TensorPool) -> None:
        self._directory = directory
        self._pool = pool

    def save(self, array: Array, entry: str, role: str, path: Path) -> str:
        """Have the values written; gives the file's name.

        Args:
            array: in host memory, perhaps the tensor's own: it is copied.
            entry, role, path: what the file is called after.
        """
        name = layout.tensor_file_name(entry, role, path, suffix=".npy")
        keep_array(self._pool, os.path.join(self._directory, name), array)
        return name


def keep_array(pool: TensorPool, path: str, array: Array) -> None:
    """Have a copy of the array written by the pool."""
    copied = array.astype(_EXACT_AS.get(array.dtype.name, array.dtype), copy=True)
    pool.submit_saver(path, lambda where: _write(where, copied), copied.nbytes)


def _write(path: str, array: Array) -> None:
    with open(path, "wb") as file:
        np.lib.format.write_array(file, array, allow_pickle=False)
