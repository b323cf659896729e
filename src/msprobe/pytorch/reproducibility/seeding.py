"""seed_all: fix every source of randomness that a training script draws from."""

from __future__ import annotations

import importlib
import importlib.util
import os
import random
import sys
from typing import Any

import numpy as np
import torch

from msprobe.contain import let_through
from msprobe.errors import UsageError
from msprobe.log import logger
from msprobe.pytorch.reproducibility import dropout_removal
from msprobe.pytorch.reproducibility.repeated_draws import RepeatedDraws

_MAX_SEED = 2**32 - 1
_CUDNN = {"enabled": False, "benchmark": False, "deterministic": True}
_repeated: RepeatedDraws | None = None


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False, is_enhanced: bool = False) -> None:
    """Seed Python's, NumPy's and torch's generators on every device, and switch cuDNN off, whose choice of algorithms varies.

    Call it before the model is made. The environment variables PYTHONHASHSEED and HCCL_DETERMINISTIC are set too: the first counts for
    processes that are started from here on, this one's own hashes are fixed only if it is set when Python starts.

    Args:
        seed: 0 to 2**32 - 1.
        mode: True makes torch use deterministic algorithms only (`torch.use_deterministic_algorithms`), which is slower. cuBLAS then needs
            CUBLAS_WORKSPACE_CONFIG; it is set to `:4096:8` unless it is set already. False leaves all this as it is.
        rm_dropout: True makes every dropout of torch do what it does with p = 0, in all modules and functions, attention and recurrent
            layers included, whether they were made before or after this call. The attribute `p` of modules keeps its value. What
            `torch.compile` has made is compiled anew. Dropout that is not torch's own (stochastic depth, other packages' kernels) stays.
        is_enhanced: True sets the generators back before each call of a random function of torch, NumPy or Python, so that the same call
            gives the same numbers every time, in every process. A loop that draws until it gets another number then never ends.
            Not reached are random numbers inside compiled and scripted code, and objects with a state of their own (`random.Random()`, a
            NumPy `Generator`; `numpy.random.default_rng()` without a seed gets `seed`).

    The last call holds: `rm_dropout` and `is_enhanced` are off again after a call with False.

    Raises:
        UsageError: an argument has a value that is not allowed; nothing was changed.
    """
    global _repeated
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _MAX_SEED:
        raise UsageError(f"seed_all(seed): seed is {seed!r}; allowed: an integer from 0 to {_MAX_SEED}")
    for name, value in (("mode", mode), ("rm_dropout", rm_dropout), ("is_enhanced", is_enhanced)):
        if not isinstance(value, bool):
            raise UsageError(f"seed_all({name}): {name} is {value!r}; allowed: True or False")
    os.environ["PYTHONHASHSEED"] = str(seed)
    os.environ["HCCL_DETERMINISTIC"] = str(True)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # the CPU and all CUDA, MPS and XPU devices, those too that are not initialized yet
    _seed_npu(seed)
    _set_cudnn()
    if mode:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    _switch_dropout(rm_dropout)
    if is_enhanced:
        _repeated = RepeatedDraws(seed)
        _repeated.switch_on()
        logger.info("seed_all(is_enhanced): the same call of a random function gives the same numbers from now on")
    elif _repeated is not None:
        _repeated.switch_off()
        _repeated = None
        logger.info("seed_all(is_enhanced): random functions draw on as usual from now on")


def _switch_dropout(remove: bool) -> None:
    if remove and not dropout_removal.removed():
        dropout_removal.remove_dropout()
        logger.info("seed_all(rm_dropout): every dropout of torch does what it does with p = 0 from now on")
    elif not remove and dropout_removal.removed():
        dropout_removal.bring_dropout_back()
        logger.info("seed_all(rm_dropout): dropout is in effect again")


def _set_cudnn() -> None:
    for flag, value in _CUDNN.items():
        try:
            setattr(torch.backends.cudnn, flag, value)
        except RuntimeError as error:  # torch.backends.disable_global_flags() was called
            logger.warning(f"seed_all: torch.backends.cudnn.{flag} could not be set to {value}: {error}")


def _seed_npu(seed: int) -> None:
    try:
        npu = _torch_npu()
        if npu is not None:
            npu.npu.manual_seed(seed)
            npu.npu.manual_seed_all(seed)
    except Exception as error:
        let_through(error)
        logger.warning(f"seed_all: the random numbers of the NPU are not fixed, torch_npu failed: {error!r}")


def _torch_npu() -> Any:
    """The package torch_npu where there is one; it is imported here if the script has not done so yet."""
    if "torch_npu" in sys.modules:
        return sys.modules["torch_npu"]
    return importlib.import_module("torch_npu") if importlib.util.find_spec("torch_npu") else None
