"""Values of tensors on their way to dump_tensor_data."""

from __future__ import annotations

import ctypes
from functools import cache

import torch

from msprobe.contain import let_through
from msprobe.format import dtypes, layout
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump.encoder import Path, Side
from msprobe.writer import TensorPool
from msprobe.writer.native_pool import NativePool

_LARGE = 1 << 30
"""Bytes from which a tensor whose elements share memory is not written out in full."""

_view_of = ctypes.pythonapi.PyMemoryView_FromMemory
_view_of.argtypes, _view_of.restype = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int), ctypes.py_object
_READ_ONLY = 0x100  # PyBUF_READ


@cache
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _stored_bytes(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage().nbytes()
    except Exception as caught:
        let_through(caught)
        return tensor.numel() * tensor.element_size()


def _save_by_torch(tensor: torch.Tensor, path: str) -> None:
    """torch.save, leaving the class as it was: pickling keeps a note on it."""
    untouched = "__slotnames__" not in vars(torch.Tensor)
    torch.save(tensor, path)
    if untouched and "__slotnames__" in vars(torch.Tensor):
        del torch.Tensor.__slotnames__


class TensorSaver:
    """Copies a tensor's bytes at the time of the call and hands them to the pool that writes files.

    Args:
        directory: dump_tensor_data of this step.
        pool: writes the files.
    """

    def __init__(self, directory: str, pool: TensorPool) -> None:
        self.directory = directory
        self._pool = pool
        self.queue = pool.queue if isinstance(pool, NativePool) else None
        """Takes memory without Python; see `common_case`."""
        self.files = 0

    def __call__(self, tensor: torch.Tensor, side: Side, path: Path) -> str | None:
        """Save one tensor of any layout; gives the name of its file, None where it was not saved."""
        name = self.file_name(side, path)
        self.write(tensor, name)
        return name

    def file_name(self, side: Side, path: Path) -> str:
        """The name of the file for a value."""
        return layout.tensor_file_name(side.entry, side.role, path)

    def write(self, tensor: torch.Tensor, name: str) -> None:
        """Save one tensor of any layout in the file `name`; waits for its device."""
        target = f"{self.directory}/{name}"
        dtype = _dtype_name(tensor.dtype)
        size = tensor.numel() * tensor.element_size()
        if size > _LARGE and size > 4 * _stored_bytes(tensor):
            raise MemoryError(f"an expanded tensor: its values would take {size / 1e9:.1f} GB")
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided and not tensor.is_nested
        if not plain or dtype not in dtypes.SPELLING:
            with torch_internals.NoTorchFunction(), torch.no_grad(), torch_internals.no_dispatch_modes():
                copy = tensor.detach().clone().cpu()
            self._pool.submit_saver(target, lambda file: _save_by_torch(copy, file), size)
        else:
            owner = None
            if not tensor.is_cpu or not tensor.is_contiguous():
                with torch_internals.NoTorchFunction(), torch.no_grad(), torch_internals.no_dispatch_modes():
                    owner = tensor = tensor.detach().cpu().contiguous()
            memory = _view_of(tensor.data_ptr(), size, _READ_ONLY) if size else b""
            self._pool.submit(target, dtype, tuple(tensor.shape), memory, owner)
        self.files += 1
