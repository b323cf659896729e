"""Every call of a random function starts from the same state: the same call gives the same numbers, each time and in every process."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import torch

from msprobe.contain import let_through
from msprobe.log import logger
from msprobe.pytorch.reproducibility import interception
from msprobe.pytorch.reproducibility.random_functions import GENERATOR, NUMPY, PYTHON, Arguments, RandomFunction, argument


class RepeatedDraws:
    """Sets the generator that a function draws from, before each call, to the state that `seed` gives.

    A `torch.Generator` that the user passes is set back to the seed it has from the user.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._python_state = random.Random(seed).getstate()
        self._numpy_state = np.random.RandomState(seed).get_state()
        self._told = False

    def switch_on(self) -> None:
        interception.set_before_draw(self._before_draw)
        interception.rewrite((GENERATOR,), self._seeded)

    @staticmethod
    def switch_off() -> None:
        interception.set_before_draw(None)
        interception.rewrite((GENERATOR,), None)

    def _before_draw(self, function: RandomFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            if function.prefix == PYTHON:
                random.setstate(self._python_state)
            elif function.prefix == NUMPY:
                np.random.set_state(self._numpy_state)
            else:
                self._set_torch(kwargs.get("generator"))
        except Exception as error:  # generators cannot be set while a CUDA graph is captured
            let_through(error)
            if not self._told:
                self._told = True
                logger.warning(f"seed_all(is_enhanced): the state could not be fixed for a call of {function.name}: {error!r}")

    def _set_torch(self, generator: torch.Generator | None) -> None:
        if generator is not None:
            generator.manual_seed(generator.initial_seed())
            return
        torch.default_generator.manual_seed(self._seed)
        for name in ("cuda", "xpu"):
            device = getattr(torch, name)
            if device.is_initialized():  # torch.manual_seed would queue one more seeding at each call until it is
                for one in device.default_generators:
                    one.manual_seed(self._seed)
        if torch.backends.mps.is_available():
            torch.mps.manual_seed(self._seed)
        npu = getattr(sys.modules.get("torch_npu"), "npu", None)
        if npu is not None:
            npu.manual_seed_all(self._seed)

    def _seeded(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """`numpy.random.default_rng()` takes its seed from the operating system: it gets ours."""
        if argument(args, kwargs, 0, "seed") is not None:
            return args, kwargs
        return ((self._seed, *args[1:]), kwargs) if args else (args, {**kwargs, "seed": self._seed})
