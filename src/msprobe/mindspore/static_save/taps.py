"""Operators that hand values out of a compiled graph: a Python function called from it on a CPU, TensorDump elsewhere.

The classes are `jit_class`es: `__init__` runs when MindSpore compiles, `__call__` becomes part of the graph. MindSpore reads their source
text, so it is plain: a receiver called `self`, no lambda inside an expression, no annotation of the result.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from mindspore import float32, jit_class, ops

from msprobe.contain import let_through
from msprobe.mindspore import device
from msprobe.mindspore.dump.values import Array
from msprobe.mindspore.static_save.dumped import DUMPED
from msprobe.mindspore.static_save.files import FILES

Take = Callable[[str, Array], None]
"""`take(dtype, array)` is given each value, in some thread of MindSpore's; it must not raise."""


def python_op(take: Take, shape: tuple[int, ...] | None = None, dtype: Any = None) -> Any:
    """An operator of the graph that calls `take` whenever it runs, is never optimised away, and gives back what it was given.

    Args:
        take: what to call.
        shape: of the value, where that is empty: there is nothing to hand over, and the operator is given something else.
        dtype: of the value, where the operator is given it in another one: MindSpore cannot take bfloat16 back from Python.
    """
    kind: list[str] = [] if dtype is None else [str(dtype).lower()]

    def note_dtype(given: Any) -> Any:
        if dtype is None:
            text = str(given)
            kind[:] = [text[text.index("[") + 1 : text.index("]")].lower() if "[" in text else text.lower()]
        return given

    def same_shape(given: Any) -> Any:
        return given

    def call(value: Any) -> Any:
        try:
            name = kind[0] if kind else ""
            stored = "float32" if name == "bfloat16" else name
            if shape is not None:
                array = np.empty(shape, stored)
            elif isinstance(value, np.ndarray):
                array = value
            else:  # without dimensions: a number of Python's
                array = np.array(value, stored or None)
            take(name or array.dtype.name, array)
        except Exception as error:
            let_through(error)
            FILES.tell(f"a value of a compiled graph could not be taken: {error!r}")
        return value

    op = ops.Custom(call, out_shape=same_shape, out_dtype=note_dtype, func_type="pyfunc")
    op.add_prim_attr("side_effect_io", True)
    return op


def keeping(directory: str, name: str) -> Take:
    """Writes each value to a file."""
    where = os.path.abspath(directory)

    def take(dtype: str, array: Array) -> None:
        FILES.keep(where, name, dtype, array)

    return take


@jit_class
class Tap:
    """Hands a tensor out of the graph; nothing of it is differentiated."""

    def __init__(self, directory, name, shape=None, dtype=None):
        self.op = python_op(keeping(directory, name), shape, dtype)

    def __call__(self, x):
        return self.op(ops.stop_gradient(x))


@jit_class
class GradientTap:
    """Gives back its argument, and hands the gradient that comes back to it out of the graph."""

    def __init__(self, directory, name, dtype=None, empty=False):
        op = python_op(keeping(directory, name), None, dtype)

        def through(gradient):
            op(gradient)
            return gradient

        def widened(gradient):
            op(ops.cast(gradient, float32))
            return gradient

        def nothing(gradient):
            return gradient

        hook = through if dtype is None else widened
        if empty:
            hook = nothing
        self.insert = ops.InsertGradientOf(hook)

    def __call__(self, x):
        return self.insert(x)


@jit_class
class DumpTap:
    """Tap, on a device whose graphs cannot call Python."""

    def __init__(self, directory, name):
        self.path = DUMPED.path(directory, name)
        self.op = ops.TensorDump()

    def __call__(self, x):
        return self.op(self.path, ops.stop_gradient(x))


@jit_class
class DumpGradientTap:
    """GradientTap, on a device whose graphs cannot call Python."""

    def __init__(self, directory, name):
        path = DUMPED.path(directory, name)
        op = ops.TensorDump()

        def through(gradient):
            op(path, gradient)
            return gradient

        self.insert = ops.InsertGradientOf(through)

    def __call__(self, x):
        return self.insert(x)


class _InGraph(ops.constexpr(get_instance=False)(lambda: True)):
    """Gives True where MindSpore compiles, False where Python runs it."""

    def __call__(self):
        return False


class _PythonOps(ops.constexpr(get_instance=False)(lambda: device.has_python_ops())):
    """device.has_python_ops(), known to the compiler."""


class _DumpOps(ops.constexpr(get_instance=False)(lambda name: dumps(name))):
    """dumps(name), known to the compiler."""


class _Skipped(ops.constexpr(get_instance=False)(lambda name: skipped(name))):
    """Tells, once, that a value is no tensor."""

    def __call__(self, name):
        return skipped(name)


def skipped(name: str) -> int:
    """A value is no tensor: nothing is saved, and that is told."""
    FILES.tell(f'save(name="{name}"): it is no tensor, and only tensors are saved')
    return 0


def dumps(name: str) -> bool:
    """Whether TensorDump can take a value out of a graph; where it cannot, that is told."""
    if device.has_dump_ops():
        return True
    where = device.device_target()
    FILES.tell(f'save(name="{name}"): graphs on {where} hand no values out (only those on a CPU and on Ascend do): nothing is saved')
    return False


in_graph = _InGraph()
dump_ops = _DumpOps()
python_ops = _PythonOps()
tell_skipped = _Skipped()
