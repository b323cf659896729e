"""Puts taps around `construct` of every cell, before MindSpore compiles it; they stay in the graph, idle while recording is off."""

# mypy: disable-error-code="import-not-found,no-untyped-def,no-untyped-call,misc,assignment"
from __future__ import annotations

import inspect
import types
from typing import Any

from mindspore import Tensor, bfloat16, float32, nn, ops
from mindspore.ops.functional import isconstant

from msprobe.contain import let_through
from msprobe.mindspore.dump.cell_dump.naming import checked_models, named_cells
from msprobe.mindspore.static_dump.compiling import Taps
from msprobe.mindspore.static_dump.nested import follow, give, record_value
from msprobe.mindspore.static_dump.reading import FREE, Reading
from msprobe.mindspore.static_dump.recorder import RECORDER, Spot
from msprobe.mindspore.static_dump.taps import GradientTap, counting_op, parameter_hook

_ONE = Tensor([0], float32)


def first(args, kwargs, in_order):
    """Part of the graph: what the number of the call is made of. Where it is made of the one tensor that the cell is given, a run that
    takes in what another one has given out has the higher number."""
    if not in_order and len(args) == 1 and len(kwargs) == 0 and isinstance(args[0], Tensor):  # noqa: SIM102  (the rest is for a tensor only)
        if isconstant(args[0].shape) and 0 not in args[0].shape and args[0].dtype != bfloat16:
            return ops.stop_gradient(args[0])
    return _ONE


def read(model: Any) -> Reading:
    """What the sources of a model say; of what Model.train makes, those of the network with its loss."""
    roots = [root.network if isinstance(root, nn.TrainOneStepCell) else root for _, root in checked_models(model)]
    return Reading([root for root in roots if isinstance(root, nn.Cell)])


def wrap(model: Any, taps: Taps, reading: Reading, forward: bool, backward: bool) -> list[str]:
    """Put the taps in; gives what is to be told of cells where they may change the last bits of a gradient.

    Args:
        model: a cell, or a list or tuple of them.
        taps: takes note of what is put where.
        reading: of the model.
        forward, backward: which directions are recorded; without backward the graph of the gradients is not touched at all.
    """
    RECORDER.begin_model()
    told = []
    names: dict[int, str] = {}
    followed: set[int] = set()
    for base, cell in list(named_cells(model)):
        names[id(cell)] = base
        try:
            order = reading.order(id(cell))
            made = [
                _tapped(base, cell, order == FREE, forward, which) for which in ((backward, False) if forward and backward else (backward,))
            ]
            taps.exchange_construct(cell, *(types.MethodType(construct, cell) for construct in made))
            RECORDER.cells.append(base)
            if backward:
                for name, parameter in cell._params.items():
                    if parameter is not None and parameter.requires_grad and id(parameter) not in followed:
                        followed.add(id(parameter))  # one that several cells share belongs to the first
                        taps.hook(parameter, parameter_hook(Spot(base, "parameters_grad", "", name)))
            reasons = [
                text
                for holds, text in (
                    (id(cell) in reading.inputs and backward, "takes in what is used elsewhere too"),
                    (id(cell) in reading.outputs, "goes on using what it gives out"),
                    (order == FREE, "runs several times, or that cannot be told"),
                )
                if holds
            ]
            if reasons:
                told.append(f"{base} ({', '.join(reasons)})")
        except Exception as error:
            let_through(error)
            RECORDER.failed(Spot(base, "forward", "input", "0"), error)
    RECORDER.forward_run = [names[cell] for cell in reading.program() if cell in names]
    RECORDER.backward_run = [names[cell] for cell in reading.program(backward=True) if cell in names]
    return told


def _tapped(base: str, cell: Any, in_order: bool, forward: bool, backward: bool) -> Any:
    original = cell.construct
    own = tuple((name, parameter) for name, parameter in cell._params.items() if parameter is not None)
    names = tuple(name for name, _ in own)
    parameters = tuple(parameter for _, parameter in own)
    count = counting_op(base, in_order)
    into, out_of = GradientTap(base, "output"), GradientTap(base, "input")

    def construct_of_one(self, x):
        number = count(first((x,), {}, in_order))
        shown = number
        if forward:
            shown = record_value(base, "input", "0", x, shown)
            for i, name in enumerate(names):
                shown = record_value(base, "parameters", name, parameters[i], shown)
        if backward:
            x = follow(into, base, "output", "0.0", x, number)
        result = original(x)
        if forward and isinstance(result, tuple):
            results = ()
            for i, value in enumerate(result):
                results = results + (give(base, f"{i}", value, shown),)  # noqa: RUF005
            result = results
        elif forward:
            result = give(base, "0", result, shown)
        if backward:
            result = follow(out_of, base, "input", "0", result, number)
        return result

    def construct(self, *args, **kwargs):
        number = count(first(args, kwargs, in_order))
        shown = number
        given = args
        named = kwargs
        if forward:
            for i, value in enumerate(args):
                shown = record_value(base, "input", f"{i}", value, shown)
            for key, value in kwargs.items():
                shown = record_value(base, "kwargs", key, value, shown)
            for i, name in enumerate(names):
                shown = record_value(base, "parameters", name, parameters[i], shown)
        if backward:
            given = follow(into, base, "output", "0", args, number)
            named = follow(into, base, "output", "1", kwargs, number)
        result = original(*given, **named)
        if forward and isinstance(result, tuple):
            results = ()
            for i, value in enumerate(result):
                results = results + (give(base, f"{i}", value, shown),)  # noqa: RUF005
            result = results
        elif forward:
            result = give(base, "0", result, shown)
        if backward:
            result = follow(out_of, base, "input", "0", result, number)
        return result

    return construct_of_one if _takes_x(type(cell).construct) else construct


def _takes_x(function: Any) -> bool:
    """Whether it has the one argument `x` and no other, as most layers of MindSpore have: that takes the compiler a third less."""
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    flags = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    return (
        code is not None and code.co_varnames[1 : code.co_argcount] == ("x",) and not code.co_kwonlyargcount and not code.co_flags & flags
    )
