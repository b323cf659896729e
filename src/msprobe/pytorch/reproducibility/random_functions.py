"""Which functions draw random numbers, and when a call of one draws any."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from msprobe.pytorch.torch_internals import VF

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Draws = Callable[[tuple[Any, ...], dict[str, Any]], bool]

TORCH, TENSOR, FUNCTIONAL, NUMPY, PYTHON = "torch_random", "tensor_random", "functional_random", "numpy_random", "python_random"
"""The first part of a function's name in the csv of random_save."""


@dataclass(frozen=True, eq=False)
class RandomFunction:
    """A function that draws random numbers.

    Attributes:
        prefix, name: the two parts of its name.
        home, attribute: where it lives, a module or a class.
        draws: whether a call with these arguments draws at all; None: always.
        dropout: it draws for dropout only.
        by_caller: `torch.nn.functional` calls it, and only that module's function of the frame above has a name that users know.
    """

    prefix: str
    name: str
    home: Any
    attribute: str
    draws: Draws | None = None
    dropout: bool = False
    by_caller: bool = False


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str, default: Any = None) -> Any:
    """The argument of a call that stands at `position` or has this name."""
    return args[position] if len(args) > position else kwargs.get(name, default)


def replaced(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str, value: Any) -> Arguments:
    """The arguments of a call with another value for this one; where it was not given it is still not."""
    if len(args) > position:
        return (*args[:position], value, *args[position + 1 :]), kwargs
    if name in kwargs:
        return args, {**kwargs, name: value}
    return args, kwargs


def recurrent_dropout_position(args: tuple[Any, ...]) -> int:
    """Where `dropout` stands in a call of `torch.lstm` and its like: one place later for packed sequences."""
    return 5 if len(args) < 4 or isinstance(args[3], bool) else 6


def _dropout_draws(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return argument(args, kwargs, 1, "p", 0.0) > 0 and argument(args, kwargs, 2, "train", False) is not False


def _recurrent_draws(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    position = recurrent_dropout_position(args)
    return argument(args, kwargs, position, "dropout", 0.0) > 0 and bool(argument(args, kwargs, position + 1, "train", False))


def _attention_draws(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return argument(args, kwargs, 4, "dropout_p", 0.0) > 0


def _rrelu_draws(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return bool(argument(args, kwargs, 3, "training", False))


def _unseeded(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return argument(args, kwargs, 0, "seed") is None


_TORCH = (
    "bernoulli binomial multinomial normal poisson rand rand_like randint randint_like randn randn_like randperm"
    " _sample_dirichlet _standard_gamma"
)
_TENSOR = "bernoulli bernoulli_ cauchy_ exponential_ geometric_ log_normal_ multinomial normal_ random_ uniform_"
_KINDS_OF_DROPOUT = ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
_DROPOUTS = [f"{kind}{in_place}" for kind in _KINDS_OF_DROPOUT for in_place in ("", "_")]
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
ATTENTION = "scaled_dot_product_attention"
GENERATOR = "default_rng"


def catalogue() -> list[RandomFunction]:
    """Every function that is watched, in this version of torch, NumPy and Python."""
    return [function for function in _catalogue() if getattr(function.home, function.attribute, None) is not None]


def _catalogue() -> Iterator[RandomFunction]:
    for name in _TORCH.split():
        yield RandomFunction(TORCH, name, torch, name)
    for name in ("rrelu", "rrelu_"):
        yield RandomFunction(TORCH, name, torch, name, _rrelu_draws)
    for name in (*_DROPOUTS, "native_dropout"):
        yield RandomFunction(TORCH, name, torch, name, _dropout_draws, dropout=True)
    for name in _DROPOUTS:
        yield RandomFunction(FUNCTIONAL, name, VF, name, _dropout_draws, dropout=True, by_caller=True)
    for home in (torch, VF):
        for name in RECURRENT:
            yield RandomFunction(TORCH, name, home, name, _recurrent_draws, dropout=True)
    yield RandomFunction(FUNCTIONAL, ATTENTION, torch.nn.functional, ATTENTION, _attention_draws, dropout=True)
    for name in _TENSOR.split():
        yield RandomFunction(TENSOR, name, torch.Tensor, name)
    for name in _methods_of_the_global_generator(np.random, np.random.RandomState, ("seed", "get_state", "set_state")):
        yield RandomFunction(NUMPY, name, np.random, name)
    yield RandomFunction(NUMPY, GENERATOR, np.random, GENERATOR, _unseeded)
    for name in _methods_of_the_global_generator(random, random.Random, ("seed", "getstate", "setstate")):
        yield RandomFunction(PYTHON, name, random, name)


def _methods_of_the_global_generator(module: Any, kind: type, left_out: tuple[str, ...]) -> list[str]:
    """Names of a module's functions that are methods of its hidden generator."""
    found = [name for name in module.__all__ if isinstance(getattr(getattr(module, name, None), "__self__", None), kind)]
    return [name for name in found if name not in left_out]
