"""Every private name of torch.compile and torch.fx that msprobe touches, and nothing else; torch_internals.py has the others.

Importing dynamo costs over a second, so it is looked at only where the user's code has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from types import FrameType, FunctionType
from typing import Any

import torch


def is_traced() -> bool:
    """Whether a call of a module is none, but torch.fx finding out what it does."""
    return bool(getattr(sys.modules.get("torch.fx._symbolic_trace"), "_is_fx_tracing_flag", False))


def force_eager() -> Callable[[], None] | None:
    """Let compiled code run eagerly from now on; gives the function that restores the stance there was, None if dynamo is not loaded."""
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")
    if eval_frame is None:
        return None
    before = eval_frame._stance
    eval_frame._set_stance(_eager_for_users(eval_frame)(before))

    def restore() -> None:
        eval_frame._set_stance(before)

    return restore


@cache
def _eager_for_users(eval_frame: Any) -> Any:
    """The class of the stance `force_eager` that has its exceptions: what needs the compiler to work at all finds the stance there was.

    That is what exports (in torch 2.6, `torch.export.export` fails under that stance), and operators that compile themselves in eager code,
    as `torch.cond` does: run eagerly, its backward raises, and `map` gives a tuple.
    """

    class EagerForUsers(eval_frame.DynamoStance):
        def __init__(self, before: Any) -> None:
            before = getattr(before, "_before", before)
            self.__dict__.update(vars(before))  # a backend and the like, for the exceptions
            self._before = before

        @property
        def stance(self) -> str:
            asking = sys._getframe(1)
            if _is_exporting(asking.f_locals.get("callback")):  # torch asks with the callback that is about to trace
                return "default"
            return str(self._before.stance) if _compiles_itself(asking) else "force_eager"

    return EagerForUsers


def _is_exporting(callback: Any) -> bool:
    while callback is not None:
        if getattr(callback, "_export", False):
            return True
        inner = getattr(callback, "_torchdynamo_orig_callable", None)  # its name in torch 2.6
        callback = inner if inner is not None else getattr(callback, "_torchdynamo_orig_backend", None)
    return False


_OPERATORS = "torch._higher_order_ops."
_ATTENTION = "torch.nn.attention."


def _compiles_itself(asking: FrameType | None) -> bool:
    """Whether the compiled function whose call asks for the stance is an operator's own: one that torch makes inside of the operator."""
    for _ in range(_ASKED_THROUGH):
        call = compiled_call(asking)
        if call is not None:
            made = call[0]
            if not isinstance(made, FunctionType):
                return False
            module = str(made.__module__)
            # A user may compile flex_attention; what is made inside of it compiles itself, as every operator does (2.6: associative_scan).
            return module.startswith(_OPERATORS) or (module.startswith(_ATTENTION) and "<locals>" in made.__qualname__)
        asking = asking.f_back if asking is not None else None
    return False


def compiling_is_loaded() -> bool:
    """Whether `torch.compile` was used in this process, or dynamo imported."""
    return "torch._dynamo.eval_frame" in sys.modules


_ASKED_THROUGH = 4
"""So many frames at most, from the question for the stance to the call that asks: `msprobe run` watches the function between them."""

_COMPILED = ("compile_wrapper", "_fn")  # the latter in torch 2.6; so are called those of torch.compiler.disable, which hold no callback


def stance_reader() -> FunctionType | None:
    """The function that every call of a compiled function asks whether to run compiled; None where dynamo is not loaded."""
    found = getattr(sys.modules.get("torch._dynamo.eval_frame"), "_callback_from_stance", None)
    return found if isinstance(found, FunctionType) else None


def compiled_call(frame: FrameType | None) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
    """Function and arguments, if this is the frame of a compiled function's call."""
    if frame is None or frame.f_globals.get("__name__") != "torch._dynamo.eval_frame" or frame.f_code.co_name not in _COMPILED:
        return None
    if "callback" not in frame.f_code.co_freevars:
        return None
    own = frame.f_locals
    function, args, kwargs = own.get("fn"), own.get("args"), own.get("kwargs")
    return (function, args, kwargs) if callable(function) and isinstance(args, tuple) and isinstance(kwargs, dict) else None


def is_below_compiled_call(frame: FrameType | None) -> bool:
    """Whether a compiled function's call stands above this frame."""
    while frame is not None:
        if compiled_call(frame) is not None:
            return True
        frame = frame.f_back
    return False


def while_tracing(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` is called while `torch.compile` traces a call of it, and its result is a constant of the compiled code.

    What `torch.compiler.assume_constant_result` does, without importing dynamo.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def any_compiled(modules: Iterable[torch.nn.Module]) -> bool:
    """Whether `torch.compile` stands behind a call of one of them."""
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")
    wrapper = eval_frame.OptimizedModule if eval_frame is not None else ()
    return any(module.__dict__.get("_compiled_call_impl") is not None or isinstance(module, wrapper) for module in modules)


def unwrap_compiled(module: torch.nn.Module) -> torch.nn.Module:
    """The module that `torch.compile` wrapped, or the module itself."""
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")
    if eval_frame is not None and isinstance(module, eval_frame.OptimizedModule):
        return module._orig_mod
    return module


def use_compiled_code_on_disk(use: bool) -> bool | None:
    """Switch AOTAutograd's cache on disk on or off; gives what it was, None where this torch has none."""
    from torch._functorch import config

    before: bool | None = getattr(config, "enable_autograd_cache", None)
    if before is not None:
        config.enable_autograd_cache = use
    return before
