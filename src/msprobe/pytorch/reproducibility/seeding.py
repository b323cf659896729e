"""seed_all: fix every source of randomness that a training script draws from."""

from __future__ import annotations

import os
import random

import numpy as np
import torch

from msprobe.errors import UsageError

_MAX_SEED = 2**32 - 1


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False, is_enhanced: bool = False) -> None:
    """Seed Python's, NumPy's and torch's generators on every device, and switch off cuDNN's choice of algorithms by timing.

    Args:
        seed: 0 to 2**32 - 1.
        mode: True makes torch use deterministic algorithms only (`torch.use_deterministic_algorithms`), which is slower.
        rm_dropout: not available yet.
        is_enhanced: not available yet.

    Raises:
        UsageError: an argument has a value that is not allowed.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _MAX_SEED:
        raise UsageError(f"seed_all(seed): seed is {seed!r}; allowed: an integer from 0 to {_MAX_SEED}")
    for name, value in (("mode", mode), ("rm_dropout", rm_dropout), ("is_enhanced", is_enhanced)):
        if not isinstance(value, bool):
            raise UsageError(f"seed_all({name}): {name} is {value!r}; allowed: True or False")
        if value and name != "mode":
            raise UsageError(f"seed_all({name}): not available yet; leave it False")
    os.environ["PYTHONHASHSEED"] = str(seed)
    os.environ["HCCL_DETERMINISTIC"] = str(True)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
        torch.backends.cudnn.enabled = False
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
    if mode:
        torch.use_deterministic_algorithms(True)
