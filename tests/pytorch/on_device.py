"""A stand-in for tensors on a device: host memory that says it is elsewhere, and notes whoever waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.utils._pytree import tree_map

from msprobe.pytorch.dump import unusual

WAITED: list[str] = []
"""Operations that would have waited for the device, since the list was cleared."""


class OnDevice(torch.Tensor):
    """Keeps its elements in `inner`; `is_cpu` is False, and reading them is only possible through a copy."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> OnDevice:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device="cuda:0", strides=inner.stride())
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func.__name__.split(".")[0]
        leaves = torch.device(kwargs.get("device") or "cuda").type == "cpu"
        if leaves or name == "_local_scalar_dense":
            WAITED.append(name)
        elif "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        args, kwargs = tree_map(lambda v: v.inner if isinstance(v, OnDevice) else v, (args, kwargs))
        result = func(*args, **kwargs)
        return result if leaves else tree_map(lambda v: cls(v) if isinstance(v, torch.Tensor) else v, result)


def _as_if_plain(tensor: torch.Tensor, record: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    return tensor.detach(), tensor.detach()


@contextmanager
def recordable() -> Iterator[None]:
    """Such tensors are taken for plain ones of torch."""
    WAITED.clear()
    with mock.patch.object(unusual, "_plain_and_readable", _as_if_plain):
        yield
