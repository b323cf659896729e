"""Puts taps around `construct` of every cell, before MindSpore compiles it; they stay in the graph, idle while recording is off."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc,assignment"
from __future__ import annotations

import types
from typing import Any

from mindspore import Tensor, bfloat16, float32, ops

from msprobe.contain import let_through
from msprobe.mindspore.dump.cell_dump.naming import named_cells
from msprobe.mindspore.static_dump.recorder import RECORDER, Spot
from msprobe.mindspore.static_dump.taps import GradientTap, Tap, counting_op, note_constant, parameter_hook

MOST = 16
"""Arguments, and results, of one cell whose gradients are recorded."""
_ONE = Tensor([0], float32)


def record_value(base, role, path, value, number):
    """Part of the graph: hands every tensor in `value` to the recorder."""
    if isinstance(value, Tensor):
        if 0 in value.shape:
            Tap((base, "forward", role, path), value.shape, value.dtype)(ops.zeros((1,), float32), number)
        elif value.dtype == bfloat16:
            Tap((base, "forward", role, path), None, value.dtype)(ops.cast(value, float32), number)
        else:
            Tap((base, "forward", role, path))(value, number)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            record_value(base, role, f"{path}.{i}", item, number)
    elif isinstance(value, dict):
        for key, item in value.items():
            record_value(base, role, f"{path}.{key}", item, number)
    else:
        note_constant((base, "forward", role, path), value)


def wrap(model: Any, forward: bool, backward: bool) -> int:
    """Put the taps in; gives the number of cells.

    Args:
        model: a cell, or a list or tuple of them.
        forward, backward: which directions are recorded; without backward the graph of the gradients is not touched at all.
    """
    count = 0
    for base, cell in list(named_cells(model)):
        try:
            if getattr(cell, "_msprobe_taps", False):
                continue
            cell.construct = types.MethodType(_tapped(base, cell.construct, forward, backward), cell)
            object.__setattr__(cell, "_msprobe_taps", True)
            RECORDER.cells.append(base)
            count += 1
            if backward:
                for name, parameter in cell._params.items():
                    if parameter is not None and parameter.requires_grad:
                        parameter.register_hook(parameter_hook(Spot(base, "parameters_grad", "", name)))
        except Exception as error:
            let_through(error)
            RECORDER.failed(Spot(base, "forward", "input", "0"), error)
    return count


def _tapped(base: str, original: Any, forward: bool, backward: bool) -> Any:
    count = counting_op(base)
    into = [GradientTap(Spot(base, "backward", "output", str(i))) for i in range(MOST)] if backward else []
    out_of = [GradientTap(Spot(base, "backward", "input", str(i))) for i in range(MOST)] if backward else []
    most = MOST if backward else 0

    def construct(self, *args, **kwargs):
        number = count(_ONE)
        given = ()
        i = 0
        for value in args:
            if forward:
                record_value(base, "input", f"{i}", value, number)
            if i < most and isinstance(value, Tensor):
                value = into[i](value, number)
            given = given + (value,)  # noqa: RUF005  (what the parser of MindSpore reads)
            i = i + 1
        if forward:
            for key, value in kwargs.items():
                record_value(base, "kwargs", key, value, number)
        result = original(*given, **kwargs)
        if isinstance(result, tuple):
            results = ()
            i = 0
            for value in result:
                if forward:
                    record_value(base, "output", f"{i}", value, number)
                if i < most and isinstance(value, Tensor):
                    value = out_of[i](value, number)
                results = results + (value,)  # noqa: RUF005
                i = i + 1
            return results
        if forward:
            record_value(base, "output", "0", result, number)
        if most > 0 and isinstance(result, Tensor):
            result = out_of[0](result, number)
        return result

    return construct
