"""Kernels of ours in the place of torch's own."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

from msprobe.log import logger
from msprobe.pytorch.compile_internals import use_compiled_code_on_disk
from msprobe.pytorch.torch_internals import has_kernel, take_kernels_back

_BACKENDS = ("CPU", "CUDA", "XPU", "MPS", "XLA", "HPU", "IPU", "MTIA", "PrivateUse1")
_COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
_NESTED = ("NestedTensorCPU", "NestedTensorCUDA", "NestedTensorPrivateUse1", "AutogradNestedTensor")
_FUNCTORCH = ("FuncTorchBatched", "FuncTorchVmapMode", "FuncTorchDynamicLayerFrontMode")
_AUTOGRAD = ("Autograd", *(f"Autograd{name}" for name in _BACKENDS))
_KEYS = (*_COMPOSITE, *_BACKENDS, *_NESTED, *_FUNCTORCH, *_AUTOGRAD)
"""The dispatch keys under which a kernel of an operator may stand."""


class Kernels:
    """Kernels in the place of others, from `replace` until `remove`.

    Code that `torch.compile` has made is made anew in both cases. In between, AOTAutograd's cache on disk is not used: its key is the graph
    as the user wrote it, so it would serve code made while the operators in it did something else.
    """

    def __init__(self) -> None:
        self._library = torch.library.Library("aten", "IMPL")
        self._cached = use_compiled_code_on_disk(False)
        _forget_compiled_code()

    def replace(self, operator: str, kernel: Callable[..., Any]) -> None:
        """Run `kernel` wherever torch (or a backend's plug-in) has a kernel of its own for `aten::{operator}`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch remarks that a kernel is replaced, which is what is wanted
            for key in _KEYS:
                if has_kernel(f"aten::{operator}", key):
                    try:
                        self._library.impl(operator, kernel, key)
                    except RuntimeError as error:  # somebody else's Python kernel stands there, and older torch lets nobody replace that
                        logger.warning(f"seed_all(rm_dropout): {operator} on {key} stays as it is: {error}")

    def remove(self) -> None:
        """The kernels that were there before run again."""
        take_kernels_back(self._library)
        if self._cached:
            use_compiled_code_on_disk(True)
        _forget_compiled_code()


def _forget_compiled_code() -> None:
    if "torch._dynamo" in sys.modules:  # else nothing was compiled yet, and importing it costs over a second
        torch.compiler.reset()
