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
    """What `Work.get_future` gives: the class below the public one."""
    return torch.futures.Future.__bases__[0]


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
    torch.set_grad_enabled(enabled)


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


def is_reduced(module: Any) -> bool:
    """Whether a DistributedDataParallel module's latest reduction is complete."""
    try:
        module._check_reducer_finalized()
    except RuntimeError:
        return False
    return True


def sharded_parameters(modules: list[torch.nn.Module]) -> list[Any]:
    """What fully_shard keeps of each parameter it manages; `sharded_param` is the one the optimizer sees."""
    if "torch.distributed.fsdp._fully_shard" not in sys.modules and "torch.distributed._composable.fsdp" not in sys.modules:
        return []
    found: dict[int, Any] = {}
    for module in modules:
        state_of = getattr(module, "_get_fsdp_state", None)
        state = state_of() if state_of is not None else None
        groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
        for group in groups:
            for parameter in getattr(group, "fsdp_params", ()):
                found[id(parameter)] = parameter
    return [one for one in found.values() if getattr(one, "sharded_param", None) is not None and one.sharded_param.requires_grad]


def unsharded(shard: Any) -> torch.Tensor | None:
    """The parameter that modules see while they run, of what `sharded_parameters` gave."""
    return getattr(shard, "_unsharded_param", None)
