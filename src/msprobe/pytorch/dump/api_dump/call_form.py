"""How a Python function of torch was called: which arguments by position and which by keyword.

Such a function hands its arguments to a mode in a form of its own (`softmax(x, dim=1)` arrives with `_stacklevel` and `dtype` too).
The dump shows the call as the user wrote it, read from the call instruction of the calling frame.
"""

from __future__ import annotations

import dis
from types import CodeType, FrameType
from typing import Any

Form = tuple[int, tuple[str, ...]]
"""(number of positional arguments, names of the keyword arguments)"""

_known: dict[tuple[CodeType, int, str], Form | None] = {}
_LIMIT = 20_000


def form_of_call(frame: FrameType, method: str = "") -> Form | None:
    """The form of the call that `frame` is making now; None for `f(*args)` and for what is no plain call instruction.

    Args:
        frame: the calling frame.
        method: name of the tensor method that is called; the tensor it is called on then counts as its first positional argument.
    """
    key = (frame.f_code, frame.f_lasti, method)
    try:
        return _known[key]
    except KeyError:
        if len(_known) >= _LIMIT:
            _known.clear()
        form = _known[key] = _read(*key)
        return form


def _read(code: CodeType, offset: int, method: str) -> Form | None:
    """`offset` is that of the call instruction or of one of the cache entries behind it."""
    names: tuple[str, ...] = ()
    bound = bool(method)
    call: dis.Instruction | None = None
    before: dis.Instruction | None = None
    for instruction in dis.get_instructions(code):
        if instruction.offset > offset:
            break
        if instruction.opname in ("PRECALL", "CACHE", "EXTENDED_ARG"):
            continue
        if call is not None and call.opname == "KW_NAMES":  # 3.11, 3.12: just before the call
            names = code.co_consts[call.arg or 0]
        elif call is not None:
            names = ()
        before, call = call, instruction
        if method and instruction.argval == method:
            bound = before is None or before.argval != "Tensor"  # torch.Tensor.norm(x) names its tensor itself
    form = None if call is None else _form(call, before, names)
    return form if form is None or not bound else (form[0] + 1, form[1])


def _form(call: dis.Instruction, before: dis.Instruction | None, names: tuple[str, ...]) -> Form | None:
    total = call.arg or 0
    if call.opname in ("CALL_FUNCTION_KW", "CALL_KW"):  # 3.10, 3.13: a constant tuple lies on top of the stack
        if before is None or not isinstance(before.argval, tuple):
            return None
        names = before.argval
        return total - len(names), names
    if call.opname in ("CALL", "PRECALL", "CALL_FUNCTION", "CALL_METHOD"):
        return total - len(names), names
    return None


def as_called(
    parameters: tuple[str, ...], defaults: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any], form: Form | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arrange what arrived as it was called.

    Args:
        parameters: the function's parameter names in order.
        defaults: the values of parameters that were not given.
        args, kwargs: what arrived: leading parameters by position, all others by name.
        form: the form of the call; None leaves everything as it arrived.
    """
    if form is None:
        return args, kwargs
    positional, names = form
    given = dict(zip(parameters, args, strict=False))
    given.update(kwargs)
    wanted = parameters[:positional]
    if positional > len(parameters) or any(name not in given for name in (*wanted, *names)) or not set(wanted).isdisjoint(names):
        return args, kwargs
    for name in given.keys() - set(wanted) - set(names):
        if name not in defaults or given[name] is not defaults[name]:
            return args, kwargs  # something was given that this form does not know: it is the form of another call
    return tuple(given[name] for name in wanted), {name: given[name] for name in names}
