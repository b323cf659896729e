"""Operators of a compiled graph that number a cell's calls, and hand its values and their gradients to the recorder.

MindSpore reads the source text of what runs in the graph, so it is plain: a receiver called `self`, no lambda inside an expression.
"""

# mypy: disable-error-code="import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mindspore import Tensor, bfloat16, float32, int32, jit_class, nn, ops
from mindspore.ops.functional import isconstant

from msprobe.contain import let_through
from msprobe.mindspore.dump.values import Array
from msprobe.mindspore.static_dump.recorder import RECORDER, UNNUMBERED, Spot

PLAIN, WIDENED, EMPTY, FLUID = 0, 1, 2, 3
"""Tensors that are handed over as they are; as float32 (bfloat16); that have no elements; whose shape is known only when the graph runs."""


def _name(dtype: Any) -> str:
    """`Float32`, from a dtype or from what the compiler calls one (`Tensor[Float32]`)."""
    text = str(dtype)
    return text[text.index("[") + 1 : text.index("]")] if "[" in text else text


def number_tensor(number: int) -> Any:
    """As a tensor of one element."""
    return Tensor(np.array([number], np.int32))


def counting_op(base: str, in_order: bool) -> Any:
    """An operator that gives the number of this call of the cell in its step, -1 while nothing is recorded.

    Args:
        base: of the cell.
        in_order: it runs in the order of the program. That takes a chain through all of the graph, along which MindSpore then
            differentiates: sums of three and more gradients may be added up in another order. It is for cells that run more than once.
    """

    def count(_: Any) -> Array:
        return np.array([RECORDER.number(base)], np.int32)

    def one(given: Any) -> Any:
        return (1,)

    def whole(given: Any) -> Any:
        return int32

    op = ops.Custom(count, out_shape=one, out_dtype=whole, func_type="pyfunc")
    return _in_order(op) if in_order else _for_itself(op)


def taking(spot: Spot, shape: tuple[int, ...] | None = None, dtype: Any = None) -> tuple[Any, list[str]]:
    """What an operator calls with a value, the number of its call, and the value's position where the spot has no path; and where it finds
    the value's dtype.

    Args:
        spot: where the value belongs.
        shape: of the value, where that is empty: there is nothing to hand over, and the operator is given something else.
        dtype: of the value, where the operator is given it in another one (bfloat16 as float32).
    """
    kind: list[str] = [] if dtype is None else [_name(dtype)]

    def take(value: Any, number: Any, *index: Any) -> Any:
        try:
            name = kind[0] if kind else ""
            if shape is not None:
                array: Array = np.empty(shape, "float32" if name == "BFloat16" else name.lower())
            elif isinstance(value, np.ndarray):
                array = value
            else:  # without dimensions: a number of Python's
                array = np.array(value, "float32" if name == "BFloat16" else name.lower() or None)
            RECORDER.take(
                spot._replace(path=RECORDER.position(spot, int(index[0][0]))) if index and not spot.path else spot,
                int(number[0]),
                name,
                array,
            )
        except Exception as error:
            let_through(error)
            RECORDER.failed(spot, error)

    return take, kind


def recording_op(spot: Spot, shape: tuple[int, ...] | None = None, dtype: Any = None) -> Any:
    """An operator on a value and the number of its call; gives the number, so that it runs before whatever is given that.

    Nothing else orders it: neither what a graph computes nor how it is differentiated is touched.
    """
    take, kind = taking(spot, shape, dtype)

    def call(value: Any, number: Any) -> Any:
        take(value, number)
        return number

    def shape_of_number(given: Any, number: Any) -> Any:
        return number

    def note(given: Any, number: Any) -> Any:
        if dtype is None:
            kind[:] = [_name(given)]
        return number

    return _for_itself(ops.Custom(call, out_shape=shape_of_number, out_dtype=note, func_type="pyfunc"))


def gradient_op(spot: Spot, dtype: Any = None) -> Any:
    """An operator on a gradient, the number of the call and the position; for the backward part of a graph."""
    take, kind = taking(spot, None, dtype)

    def call(value: Any, number: Any, index: Any) -> Any:
        take(value, number, index)
        return value

    def same(given: Any, number: Any, index: Any) -> Any:
        return given

    def note(given: Any, number: Any, index: Any) -> Any:
        if dtype is None:
            kind[:] = [_name(given)]
        return given

    return _in_order(ops.Custom(call, out_shape=same, out_dtype=note, func_type="pyfunc"))


def _in_order(op: Any) -> Any:
    op.add_prim_attr("side_effect_io", True)  # never optimised away, and in the order of the program
    return op


def _for_itself(op: Any) -> Any:
    op.add_prim_attr("side_effect_hidden", True)  # two that are given the same are still two
    return op


@jit_class
class Tap:
    """Hands a value to the recorder; nothing of it is differentiated. Gives the number of the call."""

    def __init__(self, spot, shape=None, dtype=None):
        self.op = recording_op(Spot(*spot), shape, dtype)

    def __call__(self, x, number):
        return self.op(ops.stop_gradient(x), number)


class GradientTap(nn.Cell):
    """Gives back its first argument, and hands the gradient that comes back to it to the recorder, with call and position."""

    def __init__(self, base, role):
        super().__init__()
        self.op = gradient_op(Spot(base, "backward", role, ""))
        self.wide = gradient_op(Spot(base, "backward", role, ""), bfloat16)

    def construct(self, x, number, index):
        return x

    def bprop(self, x, number, index, out, dout):
        kind = FLUID
        if isconstant(dout.shape):
            kind = kind_of(dout.shape, dout.dtype)
        if kind == PLAIN:
            self.op(dout, number, index)
        elif kind == WIDENED:
            self.wide(ops.cast(dout, float32), number, index)
        return dout, ops.zeros_like(number), ops.zeros_like(index)


def parameter_hook(spot: Spot) -> Callable[[Any], Any]:
    """What a parameter's register_hook is given."""
    op = gradient_op(spot)
    wide = gradient_op(spot, bfloat16)
    number = number_tensor(UNNUMBERED)
    index = number_tensor(0)

    def hook(gradient):
        if gradient.dtype == bfloat16:
            wide(ops.cast(gradient, float32), number, index)
        else:
            op(gradient, number, index)
        return gradient

    return hook


class _Constant(ops.constexpr(get_instance=False)(lambda spot, value: RECORDER.constant(Spot(*spot), value))):
    """Notes, when MindSpore compiles, an argument or a result that is no tensor."""


class _Index(ops.constexpr(get_instance=False)(lambda base, role, path: number_tensor(RECORDER.index(base, role, path)))):
    """The number of a path, when MindSpore compiles."""


class _Kind(ops.constexpr(get_instance=False)(lambda shape, dtype: EMPTY if 0 in shape else WIDENED if dtype == bfloat16 else PLAIN)):
    """How a tensor is handed over, when MindSpore compiles: to compare shapes and dtypes in the graph takes it far longer."""


class _HasGradient(ops.constexpr(get_instance=False)(lambda base, role, path, dtype: RECORDER.has_gradient(base, role, path, str(dtype)))):
    """Whether MindSpore differentiates by a tensor, when it compiles."""


class _Deep(ops.constexpr(get_instance=False)(lambda spot: RECORDER.too_deep(Spot(*spot)))):
    """Tells, when MindSpore compiles, of a value inside of more containers than are looked into."""


class _Unshaped(ops.constexpr(get_instance=False)(lambda spot: RECORDER.unshaped(Spot(*spot)))):
    """Tells, when MindSpore compiles, of a value whose shape is known only when the graph runs."""


note_constant = _Constant()
note_unshaped = _Unshaped()
note_deep = _Deep()
kind_of = _Kind()
has_gradient = _HasGradient()
index_of = _Index()
