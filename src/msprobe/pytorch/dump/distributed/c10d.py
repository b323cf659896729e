"""Every private name of torch.distributed that this room touches, and nothing else."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch


def homes() -> list[ModuleType]:
    """The modules whose functions are watched: `torch.distributed` and the one its functions come from; empty without torch.distributed."""
    if not torch.distributed.is_available():
        return []
    return [torch.distributed, torch.distributed.distributed_c10d]


def work_class() -> type:
    """What asynchronous calls give."""
    return torch.distributed.Work


def future_class() -> type:
    """What `Work.get_future` gives."""
    return torch._C.Future


def is_work(value: Any) -> bool:
    """Whether `value` is the handle of a running communication that somebody may wait for."""
    return isinstance(value, torch.distributed.Work) and not _is_illegal(value)


def _is_illegal(value: Any) -> bool:
    return type(value).__name__ == "_IllegalWork"


def is_coalesced(result: Any) -> bool:
    """Whether a call that gave `result` was only noted down, to run when torch's coalescing manager ends."""
    if _is_illegal(result):
        return True
    world = getattr(torch.distributed.distributed_c10d, "_world", None)
    return result is None and bool(getattr(world, "pg_coalesce_state", None))


def set_grad_enabled(enabled: bool) -> None:
    """Grad mode of this thread; call it where function modes are off, they would see it."""
    torch._C._set_grad_enabled(enabled)


def data_parallel_modules(modules: list[torch.nn.Module]) -> list[Any]:
    """Those of `modules` whose gradients DistributedDataParallel reduces."""
    loaded = sys.modules.get("torch.nn.parallel.distributed")
    if loaded is None:
        return []
    return [module for module in modules if isinstance(module, loaded.DistributedDataParallel)]


def reduced_parameters(module: Any) -> list[torch.Tensor]:
    """The parameters that a DistributedDataParallel module reduces: those that its `_ddp_params_and_buffers_to_ignore` leaves."""
    chosen = getattr(module, "_module_parameters", None)
    return list(chosen if chosen is not None else module.parameters())


def last_forward_reduces(module: Any) -> bool:
    """Whether the backward pass of a DistributedDataParallel module's latest forward reduces gradients (it does not in `no_sync`)."""
    return bool(module.require_forward_param_sync)
