"""seed_all(is_enhanced=True): the same call of a random function gives the same numbers, each time."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from random import shuffle as imported_before
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from capturing import environment
from torch import nn

import warm_python
from msprobe.pytorch import seed_all

X = torch.full((3, 4), 0.5)


def _shuffled(shuffle: Callable[[Any], None]) -> list[int]:
    items = list(range(20))
    shuffle(items)
    return items


CALLS: dict[str, Callable[[], Any]] = {
    "torch.rand": lambda: torch.rand(3),
    "torch.rand_like": lambda: torch.rand_like(X),
    "torch.randn": lambda: torch.randn(3),
    "torch.randn_like": lambda: torch.randn_like(X),
    "torch.randint": lambda: torch.randint(1000, (5,)),
    "torch.randint_like": lambda: torch.randint_like(X, 1000),
    "torch.randperm": lambda: torch.randperm(20),
    "torch.normal": lambda: torch.normal(X, 1.0),
    "torch.bernoulli": lambda: torch.bernoulli(torch.full((40,), 0.5)),
    "torch.multinomial": lambda: torch.multinomial(torch.ones(50), 10),
    "torch.poisson": lambda: torch.poisson(torch.full((9,), 50.0)),
    "torch.binomial": lambda: torch.binomial(torch.full((9,), 90.0), torch.full((9,), 0.5)),
    "torch.rrelu": lambda: torch.rrelu(-X, training=True),
    "F.dropout": lambda: F.dropout(torch.ones(60)),
    "F.alpha_dropout": lambda: F.alpha_dropout(torch.ones(60), training=True),
    "F.gumbel_softmax": lambda: F.gumbel_softmax(X),
    "nn.Dropout2d": lambda: nn.Dropout2d()(torch.ones(2, 30, 2, 2)),
    "nn.Linear": lambda: nn.Linear(3, 3).weight.detach(),
    "nn.LSTM": lambda: nn.init.orthogonal_(torch.empty(3, 3)),
    "attention": lambda: F.scaled_dot_product_attention(X[None], X[None], X[None], dropout_p=0.5),
    "Tensor.uniform_": lambda: torch.empty(3).uniform_(),
    "Tensor.normal_": lambda: torch.empty(3).normal_(),
    "Tensor.random_": lambda: torch.empty(3).random_(),
    "Tensor.bernoulli_": lambda: torch.empty(50).bernoulli_(),
    "Tensor.exponential_": lambda: torch.empty(3).exponential_(),
    "Tensor.cauchy_": lambda: torch.empty(3).cauchy_(),
    "Tensor.log_normal_": lambda: torch.empty(3).log_normal_(),
    "Tensor.geometric_": lambda: torch.empty(30).geometric_(0.1),
    "distributions": lambda: torch.distributions.Gamma(2.0, 3.0).sample((3,)),
    "np.random.rand": lambda: np.random.rand(3),
    "np.random.randn": lambda: np.random.randn(3),
    "np.random.randint": lambda: np.random.randint(10**6, size=3),
    "np.random.choice": lambda: np.random.choice(1000, 5),
    "np.random.permutation": lambda: np.random.permutation(20),
    "np.random.normal": lambda: np.random.normal(),
    "np.random.shuffle": lambda: _shuffled(np.random.shuffle),
    "np.random.default_rng": lambda: np.random.default_rng().random(3),
    "random.random": lambda: random.random(),
    "random.randint": lambda: random.randint(0, 10**9),
    "random.gauss": lambda: random.gauss(0, 1),
    "random.sample": lambda: random.sample(range(1000), 5),
    "random.shuffle": lambda: _shuffled(random.shuffle),
    "shuffle, imported before": lambda: _shuffled(imported_before),
}


def same(first: Any, second: Any) -> bool:
    return torch.equal(first, second) if isinstance(first, torch.Tensor) else bool(np.array_equal(first, second))


@pytest.mark.parametrize("name", CALLS)
def test_each_function(name: str) -> None:
    call = CALLS[name]
    seed_all(5)
    assert not same(call(), call())
    seed_all(5, is_enhanced=True)
    first = call()
    torch.rand(7), np.random.rand(3), random.random()
    assert same(first, call())
    seed_all(5)
    if name != "np.random.default_rng":  # without seed it never was repeatable
        assert same(first, call())  # what it gives is what it gives after seeding
    assert not same(call(), call())


def test_another_process_gets_the_same() -> None:
    program = (
        "import torch, numpy, random; from msprobe.pytorch import seed_all; {}seed_all(3, is_enhanced=True); {}"
        "print(torch.randn(2).tolist(), numpy.random.rand(), random.random(), numpy.random.default_rng().random())"
    )
    outputs = [
        subprocess.run(
            [*warm_python.command(), "-c", program.format(*extra)], env=environment(), capture_output=True, text=True, check=True
        ).stdout
        for extra in (("", ""), ("torch.rand(3); ", "torch.rand(5); torch.manual_seed(8); random.random(); "))
    ]
    assert outputs[0] == outputs[1] != ""


def test_a_generator_of_the_user_s_keeps_its_seed() -> None:
    generator = torch.Generator().manual_seed(99)
    expected = torch.rand(3, generator=generator)
    seed_all(is_enhanced=True)
    assert torch.equal(torch.rand(3, generator=generator), expected) and torch.equal(torch.rand(3, generator=generator), expected)


def test_default_rng_with_a_seed_keeps_it() -> None:
    expected = np.random.default_rng(3).random(), np.random.default_rng(seed=4).random()
    seed_all(is_enhanced=True)
    assert (np.random.default_rng(3).random(), np.random.default_rng(seed=4).random()) == expected


def test_threads() -> None:
    seed_all(is_enhanced=True)
    seen: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: seen.extend(torch.randn(3) for _ in range(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 200 and all(torch.equal(seen[0], one) for one in seen)


def test_backward_with_recomputation() -> None:
    seed_all(is_enhanced=True)
    layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    gradients = []
    for checkpointed in (True, False, True):
        x = torch.ones(2, 4, requires_grad=True)
        y = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) if checkpointed else layer(x)
        (gradient,) = torch.autograd.grad(y.square().sum(), x)
        gradients.append(gradient)
    assert torch.equal(gradients[0], gradients[1]) and torch.equal(gradients[0], gradients[2])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_data_loader_workers() -> None:
    seed_all(is_enhanced=True)

    class Data(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> float:
            return torch.rand(1).item()

    seen = torch.cat(list(torch.utils.data.DataLoader(Data(), num_workers=2)))
    assert torch.equal(seen, torch.full((4,), torch.rand(1).item(), dtype=seen.dtype))


def test_the_npu(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    package: Any = types.ModuleType("torch_npu")
    package.npu = types.SimpleNamespace(manual_seed=lambda seed: None, manual_seed_all=seeds.append)
    monkeypatch.setitem(sys.modules, "torch_npu", package)
    seed_all(6, is_enhanced=True)
    torch.rand(2), F.dropout(X), np.random.rand()
    assert seeds == [6, 6, 6]  # one by seed_all, one before each torch function


def test_a_state_that_cannot_be_set_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    seed_all(is_enhanced=True)
    broken: Any = types.ModuleType("torch_npu")
    broken.npu = object()
    monkeypatch.setitem(sys.modules, "torch_npu", broken)
    assert torch.rand(2).shape == torch.rand(2).shape == (2,)
    assert capsys.readouterr().err.count("the state could not be fixed for a call of rand") == 1


def test_compiled_code_still_compiles_whole() -> None:
    seed_all(is_enhanced=True)
    compiled = torch.compile(lambda x: x + torch.rand_like(x) + torch.empty(3).uniform_(), backend="aot_eager", fullgraph=True)
    assert compiled(torch.ones(3)).shape == (3,)
