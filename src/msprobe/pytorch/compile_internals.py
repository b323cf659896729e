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
    eval_frame._set_stance(_eager_but_for_export(eval_frame))

    def restore() -> None:
        eval_frame._set_stance(before)

    return restore


@cache
def _eager_but_for_export(eval_frame: Any) -> Any:
    """The stance `force_eager`, except that what exports still traces: in torch 2.6, `torch.export.export` fails under that stance."""

    class EagerButForExport(eval_frame.DynamoStance):
        @property
        def stance(self) -> str:
            asked_for = sys._getframe(1).f_locals.get("callback")  # torch asks with the callback that is about to trace
            while asked_for is not None:
                if getattr(asked_for, "_export", False):
                    return "default"
                inner = getattr(asked_for, "_torchdynamo_orig_callable", None)  # its name in torch 2.6
                asked_for = inner if inner is not None else getattr(asked_for, "_torchdynamo_orig_backend", None)
            return "force_eager"

        @stance.setter
        def stance(self, _: str) -> None:
            pass  # the constructor sets it

    return EagerButForExport("force_eager")


def compiling_is_loaded() -> bool:
    """Whether `torch.compile` was used in this process, or dynamo imported."""
    return "torch._dynamo.eval_frame" in sys.modules


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
