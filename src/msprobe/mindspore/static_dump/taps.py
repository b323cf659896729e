"""Operators of a compiled graph that number a cell's calls, and hand its values and their gradients to the recorder.

MindSpore reads the source text of what runs in the graph, so it is plain: a receiver called `self`, no lambda inside an expression.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mindspore import bfloat16, float32, int32, jit_class, nn, ops

from msprobe.contain import let_through
from msprobe.mindspore.dump.values import Array
from msprobe.mindspore.static_dump.recorder import RECORDER, Spot

_NAMES: dict[str, str] = {}


def _name(dtype: Any) -> str:
    """`Float32`, from a dtype or from what the compiler calls one (`Tensor[Float32]`)."""
    text = str(dtype)
    return text[text.index("[") + 1 : text.index("]")] if "[" in text else text


def counting_op(base: str) -> Any:
    """An operator that gives the number of this call of the cell in its step, -1 while nothing is recorded."""

    def count(_: Any) -> Array:
        return np.array([RECORDER.number(base)], np.int32)

    def one(given: Any) -> Any:
        return (1,)

    def whole(given: Any) -> Any:
        return int32

    return _with_side_effect(ops.Custom(count, out_shape=one, out_dtype=whole, func_type="pyfunc"))


def recording_op(spot: Spot, shape: tuple[int, ...] | None = None, dtype: Any = None) -> Any:
    """An operator on a value and the number of its call.

    Args:
        spot: where the value belongs.
        shape: of the value, where that is empty: there is nothing to hand over, and the operator is given something else.
        dtype: of the value, where the operator is given it in another one (bfloat16 as float32).
    """
    kind: list[str] = [] if dtype is None else [_name(dtype)]

    def take(value: Any, number: Any) -> Any:
        try:
            name = kind[0] if kind else ""
            if shape is not None:
                array: Array = np.empty(shape, "float32" if name == "BFloat16" else name.lower())
            elif isinstance(value, np.ndarray):
                array = value
            else:  # without dimensions: a number of Python's
                array = np.array(value, "float32" if name == "BFloat16" else name.lower() or None)
            RECORDER.take(spot, int(number[0]), name, array)
        except Exception as error:
            let_through(error)
            RECORDER.failed(spot, error)
        return value

    def same(given: Any, number: Any) -> Any:
        return given

    def note(given: Any, number: Any) -> Any:
        if dtype is None:
            kind[:] = [_name(given)]
        return given

    return _with_side_effect(ops.Custom(take, out_shape=same, out_dtype=note, func_type="pyfunc"))


def _with_side_effect(op: Any) -> Any:
    op.add_prim_attr("side_effect_io", True)  # never optimised away
    return op


@jit_class
class Tap:
    """Hands a value to the recorder; nothing of it is differentiated."""

    def __init__(self, spot, shape=None, dtype=None):
        self.op = recording_op(Spot(*spot), shape, dtype)

    def __call__(self, x, number):
        return self.op(ops.stop_gradient(x), number)


class GradientTap(nn.Cell):
    """Gives back its first argument, and hands the gradient that comes back to it to the recorder, with the number of its call."""

    def __init__(self, spot):
        super().__init__()
        self.op = recording_op(spot)
        self.wide = recording_op(spot, None, bfloat16)

    def construct(self, x, number):
        return x

    def bprop(self, x, number, out, dout):
        if 0 not in dout.shape:
            if dout.dtype == bfloat16:
                self.wide(ops.cast(dout, float32), number)
            else:
                self.op(dout, number)
        return dout, ops.zeros_like(number)


def parameter_hook(spot: Spot) -> Callable[[Any], Any]:
    """What a parameter's register_hook is given."""
    op = recording_op(spot)
    wide = recording_op(spot, None, bfloat16)
    number = RECORDER.unnumbered

    def hook(gradient):
        if gradient.dtype == bfloat16:
            wide(ops.cast(gradient, float32), number)
        else:
            op(gradient, number)
        return gradient

    return hook


class _Constant(ops.constexpr(get_instance=False)(lambda spot, value: RECORDER.constant(Spot(*spot), value))):
    """Notes, when MindSpore compiles, an argument or a result that is no tensor."""


note_constant = _Constant()
