"""Tensors put together, cut and turned. Elements keep their bits but where they are added up, which is done in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from msprobe.comparison.mapping.rules import How
from msprobe.format.tensor_file import TensorData
from msprobe.numerics import ITEMSIZE, to_float64

Array = npt.NDArray[Any]


class CannotCompose(ValueError):
    """The tensors do not fit together as the rule says; the message says why."""


def composed(parts: Sequence[TensorData], how: How, dims: int, mask: TensorData | None) -> TensorData:
    """The tensor that the parts make.

    Args:
        parts: in the order of the rule.
        how: see How; `shard` has been applied before.
        dims: number of dimensions of the tensor that it is compared with; what has more is flattened.
        mask: what is not zero in it is kept, in row-major order; None keeps everything.

    Raises:
        CannotCompose: the shapes do not allow it.
    """
    dtype = parts[0].dtype
    try:
        if how.sum:
            array: Array = np.sum([to_float64(part.data, part.dtype).reshape(part.shape) for part in parts], axis=0)
            dtype = "complex128" if array.dtype.kind == "c" else "float64"
            array = array.astype(dtype)
        else:
            if any(part.dtype != dtype for part in parts):
                raise CannotCompose(f"the parts have several dtypes: {', '.join(sorted({part.dtype for part in parts}))}")
            arrays = [_array(part) for part in parts]
            array = np.concatenate(arrays, axis=how.concat) if how.concat is not None else arrays[0]
        array = _turned(array, how, dims)
        if mask is not None:
            array = _masked(array, mask)
    except (ValueError, IndexError) as error:  # numpy's AxisError is both
        raise CannotCompose(f"{how}: {error}") from None
    return TensorData(dtype, array.shape, memoryview(array.tobytes()))


def _array(tensor: TensorData) -> Array:
    """Elements of their size, of no kind: so the bits stay what they are."""
    size = ITEMSIZE.get(tensor.dtype)
    if size is None:
        raise CannotCompose(f"dtype {tensor.dtype} has no elements that could be put together")
    array: Array = np.frombuffer(tensor.data, f"V{size}").reshape(tensor.shape)
    return array


def _turned(array: Array, how: How, dims: int) -> Array:
    if how.select is not None:
        pick = how.select
        _require(array.ndim, [pick.dim])
        if pick.index is not None and not -array.shape[pick.dim] <= pick.index < array.shape[pick.dim]:
            raise CannotCompose(f"there is no index {pick.index} along dimension {pick.dim} of {list(array.shape)}")
        place: list[Any] = [slice(None)] * array.ndim
        place[pick.dim] = pick.index if pick.index is not None else slice(pick.start, pick.stop)
        array = array[tuple(place)]
    if how.transpose is not None:
        _require(array.ndim, how.transpose)
        array = np.swapaxes(array, *how.transpose)
    if how.flatten is not None:
        larger = max(array.ndim, dims)  # of the two sides; where it is the other one, nothing is done here
        _require(larger, how.flatten)
        first, last = (place % larger for place in how.flatten)
        if first > last:
            raise CannotCompose(f"dimension {how.flatten[1]} comes before {how.flatten[0]} in {larger} dimensions")
    if how.flatten is not None and array.ndim > dims:
        array = array.reshape(*array.shape[:first], math.prod(array.shape[first : last + 1]), *array.shape[last + 1 :])
    return array


def _require(count: int, dims: Sequence[int]) -> None:
    """Raises CannotCompose where one of these dimensions is none of `count`."""
    missing = next((dim for dim in dims if not -count <= dim < count), None)
    if missing is not None:
        raise CannotCompose(f"there is no dimension {missing} in {count} dimension{'s' if count != 1 else ''}")


def _masked(array: Array, mask: TensorData) -> Array:
    wanted = to_float64(mask.data, mask.dtype).reshape(mask.shape) != 0
    if array.shape[: wanted.ndim] != wanted.shape:
        raise CannotCompose(f"a mask of shape {list(wanted.shape)} does not fit a tensor of shape {list(array.shape)}")
    kept: Array = array[wanted]
    return kept


def shape_of(shapes: Sequence[Sequence[int]], how: How, dims: int) -> tuple[int, ...]:
    """The shape that parts of these shapes make, without a mask. Raises CannotCompose."""
    try:
        arrays = [np.broadcast_to(np.zeros((), np.uint8), tuple(shape)) for shape in shapes]
        if how.sum and len({array.shape for array in arrays}) > 1:
            raise CannotCompose(f"shapes {', '.join(str(list(shape)) for shape in shapes)} cannot be added up")
        if how.concat is not None:
            return _turned(_joined(arrays, how.concat), how, dims).shape
        return _turned(arrays[0], how, dims).shape
    except (ValueError, IndexError) as error:
        raise CannotCompose(f"{how}: {error}") from None


def _joined(arrays: Sequence[Array], dim: int) -> Array:
    """The shape of the whole, without its memory."""
    shape = list(arrays[0].shape)
    _require(len(shape), [dim])
    dim %= len(shape)
    for array in arrays:
        if array.ndim != len(shape) or any(size != shape[place] for place, size in enumerate(array.shape) if place != dim):
            raise CannotCompose(f"shapes {', '.join(str(list(array.shape)) for array in arrays)} do not fit along dimension {dim}")
    shape[dim] = sum(array.shape[dim] for array in arrays)
    return np.broadcast_to(np.zeros((), np.uint8), shape)


__all__ = ["CannotCompose", "composed", "shape_of"]
