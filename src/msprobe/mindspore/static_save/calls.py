"""`save`, `save_grad`, `step`. MindSpore compiles the source text of the first two: they and what they call are written for its parser."""

# mypy: disable-error-code="import-not-found,no-untyped-call"
from __future__ import annotations

from typing import Any

from mindspore import Tensor, bfloat16, float32, ops
from mindspore.ops.functional import isconstant

from msprobe.mindspore.static_save.eager import end_step, save_grad_now, save_now
from msprobe.mindspore.static_save.taps import (
    DumpGradientTap,
    DumpTap,
    GradientTap,
    Tap,
    arguments_fit,
    dump_ops,
    in_graph,
    python_ops,
    tell,
    tell_no_gradient,
    tell_skipped,
)


def _save_in_graph(save_dir: Any, name: Any, data: Any) -> None:
    if isinstance(data, (list, tuple)):
        for i, value in enumerate(data):
            _save_in_graph(save_dir, f"{name}.{i}", value)
    elif isinstance(data, dict):
        for key, value in data.items():
            _save_in_graph(save_dir, f"{name}.{key}", value)
    elif isinstance(data, Tensor):
        if not python_ops():
            if dump_ops(name):
                DumpTap(save_dir, name)(data)
        elif not isconstant(data.shape):
            tell(name, "open")
        elif 0 in data.shape:
            Tap(save_dir, name, data.shape, data.dtype)(ops.zeros((1,), float32))
        elif data.dtype == bfloat16:
            Tap(save_dir, name, None, data.dtype)(ops.cast(data, float32))
        else:
            Tap(save_dir, name)(data)
    else:
        tell_skipped(name)


def save(save_dir: str, name: str, data: Any) -> None:
    """Save a tensor, or all tensors in a list, tuple or dict, when this line runs; in graph mode, in jit and in PyNative.

    `save("./dump", "x", x)` writes `./dump/step0/rank0/x_float32_0.npy`, the next one of that name `x_float32_1.npy`. In nested values
    the names are joined by dots: `lst.0_float32_0.npy`, `lst.1.k_float32_0.npy`.

    Args:
        save_dir: directory; made where it is not there.
        name: what the value is called.
        data: what is no tensor in it is told once, and left out.
    """
    if in_graph():
        if _usable("save", save_dir, name):
            _save_in_graph(save_dir, name, data)
    else:
        save_now(save_dir, name, data)


def _usable(what: Any, save_dir: Any, name: Any) -> Any:
    if isconstant(save_dir):  # noqa: SIM102  (the second is asked of no value that is not there)
        if isconstant(name):
            return arguments_fit(what, save_dir, name)
    tell("a value", "variable")
    return False


def _follow_in_graph(save_dir: Any, name: Any, data: Any) -> Any:
    if not isinstance(data, Tensor):
        tell_no_gradient(name)
        return data
    if not python_ops():
        if dump_ops(name):
            return DumpGradientTap(save_dir, name + "_grad")(data)
        return data
    if not isconstant(data.shape):
        tell(name, "open")
        return data
    if 0 in data.shape:
        return data
    if data.dtype == bfloat16:
        return GradientTap(save_dir, name + "_grad", data.dtype)(data)
    return GradientTap(save_dir, name + "_grad")(data)


def save_grad(save_dir: str, name: str, data: Any) -> Any:
    """Save the gradient of what it returns when that is computed, as `{name}_grad_{dtype}_{n}.npy`. Use that in place of `data`.

    Uses of `data` itself have no part in the gradient that is saved. Gradients stay as they are, bit for bit; where `data` itself is used
    too and there are three uses or more, their sum may be added up in another order.

    Args:
        save_dir: directory; made where it is not there.
        name: what the value is called.
        data: a tensor.
    """
    if in_graph():
        if _usable("save_grad", save_dir, name):
            return _follow_in_graph(save_dir, name, data)
        return data
    return save_grad_now(save_dir, name, data)


def step() -> None:
    """End a step: wait until all that was saved is on disk; what is saved from here on goes into the next step's directory."""
    end_step()
