"""Stand-ins behave like the functions they stand for, and leave nothing behind."""

from __future__ import annotations

import copy
import inspect
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from capturing import forget_debugger, record

from msprobe.pytorch.reproducibility import interception
from msprobe.pytorch.reproducibility.random_functions import RandomFunction, catalogue


@pytest.fixture
def seen() -> Any:
    names: list[str] = []

    def observer(function: RandomFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        names.append(f"{function.prefix}.{function.name}")

    interception.observe(observer)
    yield names
    interception.observe(None)


def test_everything_is_as_before_when_nobody_watches() -> None:
    homes = [torch, torch.Tensor, torch._VF, F, np.random, random]
    before = [dict(vars(home)) for home in homes]
    interception.observe(lambda function, args, kwargs: None)
    assert torch.rand is not before[0]["rand"] and random.random is not before[5]["random"]
    interception.observe(None)
    for home, names in zip(homes, before, strict=True):
        now = vars(home)
        assert list(now) == list(names) and all(now[name] is value for name, value in names.items()), home


def test_somebody_else_s_replacement_stays(seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = random.random
    theirs = lambda: stand_in()
    monkeypatch.setattr(random, "random", theirs)
    interception.observe(None)
    assert random.random is theirs and 0 <= random.random() < 1
    monkeypatch.undo()
    random.random = interception._stand_ins[[s.function.attribute for s in interception._stand_ins].index("random")].original


def test_it_equals_and_pickles_as_the_function(seen: list[str]) -> None:
    for function in catalogue():
        stand_in = getattr(function.home, function.attribute)
        original = stand_in.msprobe_original
        assert stand_in == original and original == stand_in and {original: 1}[stand_in] == 1 and {stand_in: 1}[original] == 1, function
        assert stand_in != torch.add and (stand_in.__name__, stand_in.__doc__) == (function.attribute, original.__doc__), function
        assert copy.deepcopy([stand_in])[0] is stand_in, function
        if function.prefix.startswith(("torch", "tensor", "functional")):
            assert pickle.loads(pickle.dumps(stand_in)) == original, function
            assert b"msprobe" not in pickle.dumps(stand_in), function


def test_signatures(seen: list[str]) -> None:
    assert str(inspect.signature(random.uniform)) == "(a, b)"


def test_methods_bind_and_functions_do_not(seen: list[str]) -> None:
    class Net:
        activation = torch.rrelu

    assert torch.equal(Net().activation(torch.ones(2)), torch.ones(2))
    x = torch.empty(3)
    assert x.uniform_ is not None and x.uniform_() is x and torch.Tensor.normal_(x) is x
    assert seen == ["torch_random.rrelu", "tensor_random.uniform_", "tensor_random.normal_"]


class Passing(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_only_the_outermost_call_is_seen(seen: list[str], tmp_path: Path) -> None:
    random.shuffle([1, 2, 3])
    with Passing():
        torch.empty(2).uniform_()  # torch hands the mode what stands on the class, and the mode calls that
    record(tmp_path, lambda: torch.empty(2).normal_())
    assert seen == ["python_random.shuffle", "tensor_random.uniform_", "tensor_random.normal_"]


def test_an_exception_of_the_function_is_the_user_s(seen: list[str]) -> None:
    with pytest.raises(TypeError):
        torch.rand("x")
    torch.rand(1)
    assert seen == ["torch_random.rand"] * 2


@pytest.mark.parametrize("watched_first", [True, False], ids=["watched first", "debugger first"])
def test_a_dump_names_them_as_always(watched_first: bool, tmp_path: Path) -> None:
    def watch() -> None:
        interception.observe(lambda function, args, kwargs: None)

    def body() -> None:
        if not watched_first:
            watch()
        torch.randn(2)
        torch.bernoulli(torch.ones(2))
        torch.empty(2).uniform_()
        torch.nn.init.normal_(torch.empty(2))
        F.dropout(torch.ones(3), 0.5)
        F.scaled_dot_product_attention(*[torch.ones(1, 2, 2)] * 3, dropout_p=0.5)

    for name in ("plain", "watched"):
        (tmp_path / name).mkdir()
    plain = record(tmp_path / "plain", body)
    interception.observe(None)
    forget_debugger()
    if watched_first:
        watch()
    try:
        watched = record(tmp_path / "watched", body)
    finally:
        interception.observe(None)
    assert watched.names == plain.names and len(plain.names) >= 6
    assert [(e["input_args"], e["input_kwargs"].keys()) for n, e in watched.data.items() if "dropout" in n] == [
        (e["input_args"], e["input_kwargs"].keys()) for n, e in plain.data.items() if "dropout" in n
    ]


def test_scripts_traces_graphs_and_transforms(seen: list[str]) -> None:
    class Net(torch.nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5) + torch.rand_like(x) + F.dropout(x, 0.5)

    x = torch.ones(1, 2, 2)
    torch.jit.script(Net())(x)
    torch.jit.trace(Net(), x, check_trace=False)(x)
    graph = torch.fx.symbolic_trace(Net())
    assert "msprobe" not in graph.code and b"msprobe" not in pickle.dumps(graph)
    assert "msprobe" not in str(torch.export.export(Net(), (x,)).graph)
    assert torch.func.vmap(Net(), randomness="different")(x[None]).shape == (1, 1, 2, 2)
    torch.compile(Net(), backend="aot_eager", fullgraph=True)(x)
