"""Small networks and how each is trained for a step, shared by the tests of neutrality and of gradient values.

A network is a function `dropout probability -> Training`; everything random in it comes from the global generators, so that `seed`
makes two runs equal.
"""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn


@dataclass
class Training:
    """A network in training.

    Attributes:
        model: what is given to start(): a module or a list of modules.
        optimizer: steps inside the window.
        forward_backward: runs the forward and backward pass of step n and gives the loss.
        extra: further tensors that belong to the outcome, asked after the last step.
        context: for running one recorded call again.
    """

    model: Any
    optimizer: torch.optim.Optimizer
    forward_backward: Callable[[int], torch.Tensor]
    extra: Callable[[], dict[str, torch.Tensor]] = field(default=dict)
    context: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext

    @property
    def models(self) -> list[nn.Module]:
        return self.model if isinstance(self.model, list) else [self.model]


NETS: dict[str, Callable[[float], Training]] = {}


def net(make: Callable[[float], Training]) -> Callable[[float], Training]:
    """Enter a network into NETS under its function's name."""
    NETS[make.__name__] = make
    return make


def sgd(*models: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for m in models for p in m.parameters() if p.requires_grad], lr=0.05, momentum=0.9)


def adam(*models: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW([p for m in models for p in m.parameters() if p.requires_grad], lr=0.01)


def seed(number: int = 7) -> None:
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def bits(tensor: torch.Tensor | None) -> Any:
    """Everything about a tensor's value and layout, so that equality means equal bits (NaN and the sign of zero included)."""
    if tensor is None:
        return None
    with torch.no_grad():
        if tensor.layout == torch.sparse_coo:
            return "sparse", tensor.is_coalesced(), tuple(tensor.shape), bits(tensor._indices()), bits(tensor._values())
        plain = tensor.detach().contiguous().reshape(-1)
        content = plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
        return str(tensor.dtype), tuple(tensor.shape), tensor.stride(), content


def randomness() -> dict[str, Any]:
    """The state of all generators, as text that can be compared."""
    return {"torch": bits(torch.get_rng_state()), "numpy": repr(np.random.get_state()), "random": hash(random.getstate())}


def graph(loss: torch.Tensor) -> list[str]:
    """The names of all nodes of the graph behind a tensor, in the order in which they are met."""
    names, todo, seen = [], [loss.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            names.append(node.name())
            todo.extend(following for following, _ in node.next_functions)
    return names


def state(training: Training) -> dict[str, Any]:
    """Parameters, gradients and buffers, bit by bit."""
    found: dict[str, Any] = {}
    for number, model in enumerate(training.models):
        for name, parameter in model.named_parameters(remove_duplicate=False):
            found[f"{number} parameter {name}"] = bits(parameter)
            found[f"{number} version {name}"] = parameter._version
            found[f"{number} gradient {name}"] = bits(parameter.grad)
        for name, buffer in model.named_buffers(remove_duplicate=False):
            found[f"{number} buffer {name}"] = bits(buffer)
    return found


def train(
    make: Callable[[float], Training], dropout: float, start: Callable[[Any], None], stop: Callable[[], None], steps: int = 3
) -> dict[str, Any]:
    """Train a network for some steps; gives everything that watching must not change.

    Args:
        start: called with the model before each step, `stop` after it; both do nothing in the plain run.
    """
    seed()
    training = make(dropout)
    outcome: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for number in range(steps):
            start(training.model)
            training.optimizer.zero_grad()
            loss = training.forward_backward(number)
            outcome[f"loss {number}"] = bits(loss)
            outcome[f"graph {number}"] = graph(loss)
            outcome.update({f"step {number} {name}": value for name, value in state(training).items() if " gradient " in name})
            training.optimizer.step()
            stop()
    outcome["warnings"] = sorted({(w.category.__name__, str(w.message)) for w in warned})
    outcome.update(state(training))
    outcome.update({f"extra {name}": bits(value) for name, value in training.extra().items()})
    outcome.update(randomness())
    return outcome


def differences(expected: dict[str, Any], got: dict[str, Any]) -> list[str]:
    """What watching changed; empty for two equal outcomes. A warning may be missing: torch gives some only once in a process."""
    changed = [key for key in {**expected, **got} if key != "warnings" and expected.get(key) != got.get(key)]
    return changed + [f"warning {text}" for text in got["warnings"] if text not in expected["warnings"]]


# The networks stand in files by kind; importing them enters them into NETS.
import nets_attention  # noqa: E402, F401
import nets_autograd  # noqa: E402, F401
import nets_layers  # noqa: E402, F401
import nets_python  # noqa: E402, F401
import nets_transformers  # noqa: E402, F401
