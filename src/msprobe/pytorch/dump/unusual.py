"""Tensors whose memory cannot simply be read: views, other layouts, devices and classes, and tensors without values.

Everything here may be slower than the plain path and never raises; what has no values keeps its structure, with the reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from msprobe import numerics
from msprobe.contain import let_through
from msprobe.pytorch import torch_internals

Statistics = tuple[Any, Any, Any, Any]
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


def describe(tensor: torch.Tensor) -> Described:
    """Structure, statistics and saveable form of any tensor; see `Described`."""
    with torch_internals.NoTorchFunction(), torch.no_grad(), torch_internals.no_dispatch_modes():
        record: dict[str, Any] = {
            "type": _type_name(tensor),
            "dtype": _quiet(lambda: str(tensor.dtype)),
            "shape": _quiet(lambda: [int(n) for n in tensor.shape], []),
            "Max": None,
            "Min": None,
            "Mean": None,
            "Norm": None,
            "requires_grad": _quiet(lambda: bool(tensor.requires_grad), False),
        }
        plain: torch.Tensor | None = None
        statistics, reason = _NONE, ""
        try:
            reason = _without_values(tensor)
            if not reason:
                plain, readable = _plain_and_readable(tensor, record)
                statistics = _statistics(readable)
                if tensor.layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
                    statistics = _with_implicit_zeros(statistics, readable.numel(), tensor.numel())
                if not all(value is None or type(value) in (bool, int, float) for value in statistics):
                    statistics, plain, reason = _NONE, None, "a tensor that stands for a computation has no values"
                elif statistics[0] is None and readable.numel():
                    reason = f"no statistics for dtype {readable.dtype}"
        except Exception as error:
            let_through(error)
            reason = f"values of {record['type']} could not be read: {error!r}"
            plain = None
        record["Max"], record["Min"], record["Mean"], record["Norm"] = statistics
        return Described(record, plain, reason)


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


def _without_values(tensor: torch.Tensor) -> str:
    if torch_internals.is_functorch_wrapped(tensor):
        return "a tensor inside a torch.func transform has no values of its own"
    if type(tensor).__name__ in ("FakeTensor", "FunctionalTensor"):
        return "a fake tensor has no values"
    if tensor.device.type == "meta":
        return "a meta tensor has no values"
    return ""


def _plain_and_readable(tensor: torch.Tensor, record: dict[str, Any]) -> tuple[torch.Tensor | None, torch.Tensor]:
    """A tensor to save and a strided tensor to take statistics from."""
    tensor = tensor.detach()
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
        if tensor.numel() and not tensor.data_ptr():
            raise ValueError("this tensor class keeps no memory of its own")
        tensor = tensor.as_subclass(torch.Tensor)
    if torch_internals.is_zero_tensor(tensor) or tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg().clone()
    return tensor, tensor


def _statistics(tensor: torch.Tensor) -> Statistics:
    code = _CODE.get(tensor.dtype)
    if code is None or not tensor.numel():
        return _NONE
    if tensor.is_cpu:
        if tensor.is_contiguous():
            return numerics.summarize(tensor.data_ptr(), code, tensor.numel())
        return numerics.summarize_strided(tensor.data_ptr(), code, tuple(tensor.shape), tensor.stride())
    return _on_device(tensor)


def _on_device(tensor: torch.Tensor) -> Statistics:
    """With torch's own operations where the tensor lives, and one copy of four numbers to the host."""
    if tensor.dtype == torch.bool:
        return bool(tensor.any().item()), bool(tensor.all().item()), None, None
    wide = torch.float32 if tensor.device.type == "mps" else torch.float64
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor).to(wide).norm(dim=-1)
    if not tensor.is_floating_point():
        exact = [int(n) for n in torch.stack([tensor.max().to(torch.int64), tensor.min().to(torch.int64)]).tolist()]
        as_float = tensor.to(wide)
        mean, norm = torch.stack([as_float.mean(), torch.linalg.vector_norm(as_float)]).tolist()
        return exact[0], exact[1], mean, norm
    if tensor.element_size() == 1:
        tensor = tensor.to(torch.float32)
    total, norm_ = tensor.sum(dtype=wide), torch.linalg.vector_norm(tensor, dtype=wide)
    high, low, mean, norm = torch.stack([tensor.amax().to(wide), tensor.amin().to(wide), total / tensor.numel(), norm_]).tolist()
    return high, low, mean, norm


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
