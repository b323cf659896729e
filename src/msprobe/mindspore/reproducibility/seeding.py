"""seed_all: fix every source of randomness that a training script draws from."""

from __future__ import annotations

import os
import random

import mindspore
import numpy as np

from msprobe.contain import let_through
from msprobe.errors import UsageError
from msprobe.log import logger

_MAX_SEED = 2**32 - 1


def seed_all(seed: int = 1234, mode: bool = False, rm_dropout: bool = False) -> None:
    """Seed Python's, NumPy's and MindSpore's generators. Call it before the model is made.

    The environment variables PYTHONHASHSEED and HCCL_DETERMINISTIC are set too: the first counts for processes that are started from here
    on, this one's own hashes are fixed only if it is set when Python starts.

    Args:
        seed: 0 to 2**32 - 1.
        mode: True makes MindSpore use deterministic algorithms only (`mindspore.set_deterministic`), which is slower.
        rm_dropout: True makes the dropout functions and cells of MindSpore do nothing, those too that were made before this call.

    Raises:
        UsageError: an argument has a value that is not allowed; nothing was changed.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _MAX_SEED:
        raise UsageError(f"seed_all(seed): seed is {seed!r}; allowed: an integer from 0 to {_MAX_SEED}")
    for name, value in (("mode", mode), ("rm_dropout", rm_dropout)):
        if not isinstance(value, bool):
            raise UsageError(f"seed_all({name}): {name} is {value!r}; allowed: True or False")
    os.environ["PYTHONHASHSEED"] = str(seed)
    os.environ["HCCL_DETERMINISTIC"] = str(True).lower()
    random.seed(seed)
    np.random.seed(seed)
    mindspore.set_seed(seed)
    manual_seed = getattr(mindspore, "manual_seed", None)  # the generators of mint, in releases that have them
    if manual_seed is not None:
        manual_seed(seed)
    if mode and mindspore.get_context("deterministic") != "ON":  # MindSpore 2.7 takes it once
        try:
            mindspore.set_deterministic(True)
        except Exception as error:  # a device that has no such choice, or a graph that was compiled before
            let_through(error)
            logger.warning(f"seed_all(mode): deterministic algorithms could not be switched on: {error!r}")
    from msprobe.mindspore.reproducibility import dropout_removal

    dropout_removal.switch(rm_dropout)
