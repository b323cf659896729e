"""From recorded bytes to a tensor that takes the place of another one, in the autograd graph too."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from msprobe.format.tensor_file import TensorData
from msprobe.pytorch import torch_internals
from msprobe.pytorch.torch_internals import NoTorchFunction


class _Held:
    """Hides a tensor from autograd, which looks at the arguments of a Function only."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class _InPlaceOf(torch.autograd.Function):
    """Gives recorded values where another tensor stood; the gradient goes on to whatever made that tensor."""

    @staticmethod
    def forward(ctx: Any, original: torch.Tensor, held: _Held) -> torch.Tensor:
        ctx.dtype, ctx.device = original.dtype, original.device
        ctx.cut = original.shape != held.tensor.shape
        ctx.set_materialize_grads(False)
        return held.tensor

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        gradient = gradients[0]
        if gradient is None or ctx.cut:
            return None, None
        with NoTorchFunction():  # the conversion is no call of the user's
            if gradient.is_complex() and not ctx.dtype.is_complex:
                gradient = gradient.real
            return gradient.to(dtype=ctx.dtype, device=ctx.device), None


def shape_and_dtype(loaded: TensorData | torch.Tensor) -> tuple[list[int], torch.dtype]:
    """Shape and dtype of what was loaded. Raises ValueError for a dtype that torch does not have."""
    if isinstance(loaded, torch.Tensor):
        return list(loaded.shape), loaded.dtype
    dtype = getattr(torch, loaded.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"this version of torch has no dtype {loaded.dtype}")
    return list(loaded.shape), dtype


def tensor_like(loaded: TensorData | torch.Tensor, like: torch.Tensor, dtype: torch.dtype | None, finite: bool = False) -> torch.Tensor:
    """A new tensor with the loaded values, bit for bit, on the device of `like`; its strides are those of `like` where the shape is.

    Args:
        loaded: the values.
        like: the tensor whose place it takes; strided.
        dtype: what the values are converted to, None to leave them as they are.
        finite: what is finite stays finite in a narrower dtype.
    """
    with torch.no_grad():
        if isinstance(loaded, torch.Tensor):
            values = loaded.detach()
        else:
            shape, own = shape_and_dtype(loaded)
            values = torch.empty(shape, dtype=own, device="cpu")
            if values.numel():
                values.reshape(-1).view(torch.uint8).numpy()[:] = np.frombuffer(loaded.data, np.uint8)
        if dtype is not None and values.dtype is not dtype:
            values = values.real if values.is_complex() and not dtype.is_complex else values
            values = (_limited(values, dtype) if finite else values).to(dtype)
        values = values.to(like.device)
        if values.layout is like.layout is torch.strided and values.shape == like.shape and values.stride() != like.stride():
            # A kernel is chosen by the strides; the recorded ones nobody knows, so those of the tensor that arrived are the best guess.
            values = torch.empty_like(like, dtype=values.dtype, requires_grad=False).copy_(values)
        return values


def _limited(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """With finite values no larger than `dtype` holds: a mask of float32's lowest number must be no mask of infinities in bfloat16."""
    if not (values.is_floating_point() and dtype.is_floating_point) or torch.finfo(dtype).max >= torch.finfo(values.dtype).max:
        return values
    largest = torch.finfo(dtype).max
    return torch.where(values.isinf(), values, values.clamp(-largest, largest))


def _with_tangent(original: torch.Tensor, values: torch.Tensor, tangent: torch.Tensor) -> torch.Tensor:
    """The values with the tangent of the tensor that they replace, where they can have one; and with its place in the graph."""
    differentiable = values.is_floating_point() or values.is_complex()
    if not differentiable or values.shape != original.shape or (tangent.is_complex() and not values.is_complex()):
        return values
    if original.requires_grad:
        with torch.enable_grad():
            values = _InPlaceOf.apply(forward_ad.unpack_dual(original).primal, _Held(values))
    return forward_ad.make_dual(values, tangent.to(values.dtype))


def in_place_of(original: torch.Tensor, loaded: TensorData | torch.Tensor, dtype: torch.dtype | None, finite: bool = False) -> torch.Tensor:
    """The loaded values as a tensor that stands where `original` stood.

    If that requires grad, so does the result, and its gradient flows on to `original` in that tensor's dtype; where the shapes differ the
    gradient ends at the result. A tangent of forward-mode differentiation is carried over. Whatever mode the caller is in, the result is
    an inference tensor only where `original` is one.

    Args:
        original: the tensor that arrived.
        loaded: the values.
        dtype, finite: see `tensor_like`.
    """
    inference = original.is_inference()
    mode = torch.inference_mode(inference) if torch.is_inference_mode_enabled() is not inference else contextlib.nullcontext()
    with mode:
        values = tensor_like(loaded, original, dtype, finite)
        tangent = torch_internals.forward_tangent(original)
        if tangent is not None:
            return _with_tangent(original, values, tangent)
        if not original.requires_grad or not (values.is_floating_point() or values.is_complex()):
            return values
        with torch.enable_grad():
            # No leaf where the graph is cut either: a module may change its input in place, which autograd forbids for leaves.
            before = original if values.shape == original.shape else torch.empty((0, 0, 0), requires_grad=True)
            result: torch.Tensor = _InPlaceOf.apply(before, _Held(values))
            return result
