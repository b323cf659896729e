"""The private names of torch that this room touches, and nothing else."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.jit import _builtins

from msprobe.log import logger

_BACKENDS = ("CPU", "CUDA", "XPU", "MPS", "XLA", "HPU", "IPU", "MTIA", "PrivateUse1")
_COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
_NESTED = ("NestedTensorCPU", "NestedTensorCUDA", "NestedTensorPrivateUse1", "AutogradNestedTensor")
_FUNCTORCH = ("FuncTorchBatched", "FuncTorchVmapMode", "FuncTorchDynamicLayerFrontMode")
_AUTOGRAD = ("Autograd", *(f"Autograd{name}" for name in _BACKENDS))
_KEYS = (*_COMPOSITE, *_BACKENDS, *_NESTED, *_FUNCTORCH, *_AUTOGRAD)
"""The dispatch keys under which a kernel of an operator may stand."""


class Kernels:
    """Kernels of ours in the place of torch's own; `remove` brings torch's back."""

    def __init__(self) -> None:
        self._library = torch.library.Library("aten", "IMPL")

    def replace(self, operator: str, kernel: Callable[..., Any]) -> None:
        """Run `kernel` wherever torch (or a backend's plug-in) has a kernel of its own for `aten::{operator}`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch remarks that a kernel is replaced, which is what is wanted
            for key in _KEYS:
                if _has_kernel(f"aten::{operator}", key):
                    try:
                        self._library.impl(operator, kernel, key)
                    except RuntimeError as error:  # somebody else's Python kernel stands there, and torch lets nobody replace that one
                        logger.warning(f"seed_all(rm_dropout): {operator} on {key} stays as it is: {error}")

    def remove(self) -> None:
        """torch's own kernels run again."""
        self._library._destroy()


def _has_kernel(operator: str, key: str) -> bool:
    try:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, key))
    except RuntimeError:  # this version of torch does not know the key
        return False


def forget_compiled_code() -> None:
    """What `torch.compile` has made so far is compiled again at its next call."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


def keep_compiled_code_off_the_disk(off: bool) -> None:
    """Switch AOTAutograd's cache on disk off, or back to what it was.

    Its key is the graph as the user wrote it, so it would serve code that was compiled while the operators in it did something else.
    """
    import torch._functorch.config as config

    if not hasattr(config, "enable_autograd_cache"):
        return
    if off:
        _before.append(config.enable_autograd_cache)
        config.enable_autograd_cache = False
    elif _before:
        config.enable_autograd_cache = _before.pop()


_before: list[bool] = []


def script_like(original: Any, stand_in: Any) -> None:
    """`torch.jit.script` compiles a call of `stand_in` as what it compiles a call of `original`."""
    operator = _builtins._find_builtin(original)
    if operator is not None:
        _builtins._register_builtin(stand_in, operator)
