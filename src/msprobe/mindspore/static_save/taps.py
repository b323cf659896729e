"""Operators that hand values out of a compiled graph: a Python function called from it on a CPU, TensorDump elsewhere.

The classes are `jit_class`es: `__init__` runs when MindSpore compiles, `__call__` becomes part of the graph. MindSpore reads their source
text, so it is plain: a receiver called `self`, no lambda inside an expression, no annotation of the result.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,misc"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mindspore import float32, jit_class, nn, ops

from msprobe.contain import let_through
from msprobe.mindspore import device
from msprobe.mindspore.dump.values import Array
from msprobe.mindspore.static_save.dumped import DUMPED
from msprobe.mindspore.static_save.files import FILES, absolute

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
    where = absolute(directory)

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


class _Through(nn.Cell):
    """Gives back its argument; its gradient goes through an operator too. (With InsertGradientOf no graph with a loop compiles.)"""

    def __init__(self, op, wide):
        super().__init__()
        self.op = op
        self.wide = wide

    def construct(self, x):
        return x

    def bprop(self, x, out, dout):
        if self.wide:
            self.op(ops.cast(dout, float32))
        else:
            self.op(dout)
        return (dout,)


class _ThroughDump(nn.Cell):
    """The same, for TensorDump."""

    def __init__(self, path):
        super().__init__()
        self.path = path
        self.op = ops.TensorDump()

    def construct(self, x):
        return x

    def bprop(self, x, out, dout):
        self.op(self.path, dout)
        return (dout,)


@jit_class
class GradientTap:
    """Gives back its argument, and hands the gradient that comes back to it out of the graph."""

    def __init__(self, directory, name, dtype=None):
        self.through = _Through(python_op(keeping(directory, name), None, dtype), dtype is not None)

    def __call__(self, x):
        return self.through(x)


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
        self.through = _ThroughDump(DUMPED.path(directory, name))

    def __call__(self, x):
        return self.through(x)


class _InGraph(ops.constexpr(get_instance=False)(lambda: True)):
    """Gives True where MindSpore compiles, False where Python runs it."""

    def __call__(self):
        return False


class _PythonOps(ops.constexpr(get_instance=False)(lambda: device.has_python_ops())):
    """device.has_python_ops(), known to the compiler."""


class _DumpOps(ops.constexpr(get_instance=False)(lambda name: dumps(name))):
    """dumps(name), known to the compiler."""


class _Fits(ops.constexpr(get_instance=False)(lambda what, save_dir, name: fits(what, save_dir, name))):
    """fits(what, save_dir, name), known to the compiler."""


class _Told(ops.constexpr(get_instance=False)(lambda key, what: told(key, what))):
    """told(key, what), when MindSpore compiles."""


class _WithoutGradient(ops.constexpr(get_instance=False)(lambda name: without_gradient(name))):
    """without_gradient(name), when MindSpore compiles."""


class _Skipped(ops.constexpr(get_instance=False)(lambda name: skipped(name))):
    """Tells, once, that a value is no tensor."""

    def __call__(self, name):
        return skipped(name)


def skipped(name: str) -> int:
    """A value is no tensor: nothing is saved, and that is told."""
    FILES.tell(f'save(name="{name}"): it is no tensor, and only tensors are saved')
    return 0


def fits(what: str, save_dir: Any, name: Any) -> bool:
    """Whether the arguments of save or save_grad can be used; where they cannot, that is told."""
    for argument, value in (("save_dir", save_dir), ("name", name)):
        if not isinstance(value, str) or not value:
            FILES.tell(f"{what}({argument}=<{type(value).__name__}>): it must be text, and not empty; nothing is saved")
            return False
    return True


_REASONS = {
    "open": "is of a shape that is known only when the graph runs, and a graph hands no such value to Python",
    "variable": "has a name or a directory that changes while the graph runs; both must be known when it is compiled",
}


def told(name: str, why: str) -> int:
    """Something cannot be saved."""
    FILES.tell(f"save in a graph: {name} {_REASONS[why]}; nothing is saved")
    return 0


def without_gradient(name: str) -> int:
    """save_grad was given what has no gradient. (Integers have one in MindSpore, where they come from a cast.)"""
    FILES.tell(f'save_grad(name="{name}"): only a tensor has a gradient; nothing is saved')
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
arguments_fit = _Fits()
tell = _Told()
tell_no_gradient = _WithoutGradient()
python_ops = _PythonOps()
tell_skipped = _Skipped()
