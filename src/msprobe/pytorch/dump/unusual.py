"""Tensors whose memory cannot simply be read: views, other layouts, devices and classes, and tensors without values.

Everything here may be slower than the plain path and never raises; what has no values keeps its structure, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from msprobe import numerics
from msprobe.contain import let_through
from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump import device_statistics, summaries
from msprobe.pytorch.dump.device_statistics import Statistics
from msprobe.pytorch.dump.summaries import Holds

Later = Callable[[torch.Tensor, dict[str, Any]], None]
"""`later(tensor, record)` sees to it that the record gets the values of a strided tensor on a device, some time."""
_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_NONE: Statistics = (None, None, None, None)
_CODE = {getattr(torch, name): code for name, code in numerics.CODE.items() if hasattr(torch, name)}


@dataclass
class Described:
    """What is known of a tensor.

    Attributes:
        record: the record, without `data_name`.
        plain: a plain, strided tensor with the same values for the tensor file, None if there is none.
        reason: why values are missing, "" if they are not.
    """

    record: dict[str, Any]
    plain: torch.Tensor | None
    reason: str


def describe(tensor: torch.Tensor, holds: Holds = Holds.STATISTICS, later: Later | None = None) -> Described:
    """Structure, values and saveable form of any tensor; see `Described`.

    Args:
        tensor: of any kind.
        holds: what the record holds.
        later: set when nothing may wait for a device: takes over tensors there; complex ones have no statistics then.
    """
    with torch_internals.NoTorchFunction(), torch.no_grad(), torch_internals.no_dispatch_modes():
        shape = _quiet(lambda: [int(n) for n in tensor.shape], [])
        requires_grad = _quiet(lambda: bool(tensor.requires_grad), False)
        record = summaries.skeleton(_type_name(tensor), _quiet(lambda: str(tensor.dtype)), shape, requires_grad, holds)
        plain: torch.Tensor | None = None
        try:
            reason = _without_values(tensor, later is not None)
            if not reason:
                plain, readable = _plain_and_readable(tensor, record)
                reason = _fill(record, tensor, plain, readable, holds, later)
                if reason == _COMPUTATION:
                    plain = None
        except Exception as error:
            let_through(error)
            reason = f"values of {record['type']} could not be read: {error!r}"
            plain = None
        return Described(record, plain, reason)


_COMPUTATION = "a tensor that stands for a computation has no values"


def _fill(
    record: dict[str, Any], tensor: torch.Tensor, plain: torch.Tensor, readable: torch.Tensor, holds: Holds, later: Later | None
) -> str:
    """Put the values into the record; gives the reason where some are missing."""
    if later is not None and not readable.is_cpu:
        if readable.numel() and (holds is Holds.XOR or not readable.is_complex()):
            if holds is not Holds.XOR and readable.dtype not in _CODE:
                return f"no statistics for dtype {readable.dtype}"
            later(plain if holds is Holds.XOR else readable, record)
        return ""
    if holds is Holds.XOR and plain is readable and not plain.is_cpu:
        if plain.numel():
            record["md5"] = device_statistics.read([device_statistics.launch_xor(plain)])[0][0]
        return ""
    if holds is not Holds.STATISTICS and not plain.is_cpu:  # all of it is needed here, so everything is taken from the copy
        copied = plain.cpu()
        readable = copied if plain is readable else readable
        plain = copied
    reason = ""
    if holds is not Holds.XOR and not (later is not None and readable.is_complex()):
        statistics = _statistics(readable)
        if tensor.layout in _SPARSE:
            statistics = _with_implicit_zeros(statistics, readable.numel(), tensor.numel())
        if not all(value is None or type(value) in (bool, int, float) for value in statistics):
            return _COMPUTATION
        if statistics[0] is None and readable.numel():
            reason = f"no statistics for dtype {readable.dtype}"
        record["Max"], record["Min"], record["Mean"], record["Norm"] = statistics
    if holds is not Holds.STATISTICS:
        record["md5"] = summaries.digest(plain, holds)
        if record["md5"] is None and plain.numel():
            reason = reason or f"no checksum for dtype {plain.dtype}"
    return reason


def _quiet(read: Any, default: Any = None) -> Any:
    try:
        return read()
    except Exception as caught:
        let_through(caught)
        return default


def _type_name(tensor: torch.Tensor) -> str:
    kind = type(tensor)
    if kind in (torch.Tensor, torch.nn.Parameter):
        if torch_internals.is_functorch_wrapped(tensor):
            return f"torch._C._functorch.{'BatchedTensor' if torch_internals.is_batched(tensor) else 'GradTrackingTensor'}"
        return "torch.Tensor"
    for name in ("FakeTensor", "NestedTensor", "DTensor"):
        if kind.__name__ == name and kind.__module__.startswith("torch."):
            module = "torch.distributed.tensor" if name == "DTensor" else kind.__module__
            return f"{module}.{name}"
    return "torch.Tensor"


def _without_values(tensor: torch.Tensor, nobody_waits: bool) -> str:
    if torch_internals.is_functorch_wrapped(tensor):
        return "a tensor inside a torch.func transform has no values of its own"
    if type(tensor).__name__ in ("FakeTensor", "FunctionalTensor"):
        return "a fake tensor has no values"
    if tensor.device.type == "meta":
        return "a meta tensor has no values"
    if _is_cut_short(tensor):
        return "its storage is smaller than its shape says"
    if nobody_waits and tensor.layout in _SPARSE and not tensor.is_cpu:
        return "a sparse tensor on a device cannot be read without waiting for it (async_dump)"
    return ""


def _is_cut_short(tensor: torch.Tensor) -> bool:
    """Whether somebody has shrunk the storage: reading the values would leave the memory."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested or hasattr(tensor, "_local_tensor") or not tensor.numel():
        return False
    try:
        bytes_ = tensor.untyped_storage().nbytes()
    except Exception as caught:
        let_through(caught)
        return False
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return 0 < bytes_ < (tensor.storage_offset() + last + 1) * tensor.element_size()


def _plain_and_readable(tensor: torch.Tensor, record: dict[str, Any]) -> tuple[torch.Tensor | None, torch.Tensor]:
    """A tensor to save and a strided tensor to take statistics from."""
    tensor = _own_memory(tensor) if _is_foreign(tensor) else tensor.detach()
    if type(tensor).__name__ == "AsyncCollectiveTensor":  # the result of a collective that may still be running
        tensor = torch_internals.finished_collective(tensor)
    if hasattr(tensor, "_local_tensor"):  # DTensor: what this rank holds
        record["device_mesh"] = [int(n) for n in tensor.device_mesh.mesh.flatten().tolist()]
        record["placements"] = [str(p) for p in tensor.placements]
        local = tensor._local_tensor
        record["shape"] = list(local.shape)
        return local, local
    if tensor.is_nested:
        values = tensor.values()
        record["shape"] = list(values.shape)
        return values, values
    if tensor.layout == torch.sparse_coo:
        return tensor, tensor.coalesce().values()
    if tensor.layout != torch.strided:
        return tensor, tensor.values()
    if tensor.is_quantized:
        return tensor, tensor.dequantize()
    if type(tensor) is not torch.Tensor:
        _check_memory(tensor)
        tensor = tensor.as_subclass(torch.Tensor)
    if torch_internals.is_zero_tensor(tensor) or tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg().clone()
    return tensor, tensor


def _is_foreign(tensor: torch.Tensor) -> bool:
    """Whether operations on a strided tensor would run code of a class that is not torch's."""
    return torch_internals.dispatches_itself(type(tensor)) and tensor.layout == torch.strided and not hasattr(tensor, "_local_tensor")


def _own_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor of a foreign class, as a plain tensor: none of its code runs."""
    _check_memory(tensor)
    with torch_internals.NoTorchDispatch():
        return tensor.detach().as_subclass(torch.Tensor)


def _check_memory(tensor: torch.Tensor) -> None:
    if tensor.numel() and not tensor.data_ptr():
        raise ValueError("this tensor class keeps no memory of its own")


def _statistics(tensor: torch.Tensor) -> Statistics:
    code = _CODE.get(tensor.dtype)
    if code is None or not tensor.numel():
        return _NONE
    if tensor.is_cpu:
        if tensor.is_contiguous():
            return numerics.summarize(tensor.data_ptr(), code, tensor.numel())
        return numerics.summarize_strided(tensor.data_ptr(), code, tuple(tensor.shape), tensor.stride())
    return device_statistics.read([device_statistics.launch(tensor)])[0]  # one copy of four numbers, which waits


def _with_implicit_zeros(statistics: Statistics, stored: int, numel: int) -> Statistics:
    """Statistics of a sparse tensor from those of its stored values: all other elements are zero."""
    if not numel:
        return _NONE
    high, low, mean, norm = statistics
    if stored == 0:
        return 0.0, 0.0, 0.0, 0.0
    if stored >= numel or high is None or (isinstance(high, float) and math.isnan(high)):
        return statistics
    mean = None if mean is None else mean * stored / numel
    return max(high, type(high)(0)), min(low, type(low)(0)), mean, norm
