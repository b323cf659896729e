"""The dump shows a call as it was written: which arguments by position, which by keyword. Nothing that was passed is lost."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from capturing import record

Call = Callable[[torch.Tensor], Any]


def compact(record: Any) -> Any:
    """A record as short as it can be: "T" for a tensor, the value for a plain value."""
    if isinstance(record, dict):
        if "shape" in record:
            return "T"
        if "value" in record and "type" in record:
            return record["value"]
        return {key: compact(value) for key, value in record.items()}
    if isinstance(record, list):
        return [compact(value) for value in record]
    return record


def forms(directory: Path, body: Callable[[], Any], operation: str) -> list[tuple[list[Any], dict[str, Any]]]:
    """(positional, keyword) of each recorded call of an operation."""
    data = record(directory, body, data_mode=["forward"]).data
    return [
        (compact(entry["input_args"]), compact(entry["input_kwargs"]))
        for name, entry in data.items()
        if name.startswith(operation + ".") and name.endswith(".forward")
    ]


# What is called, and the form in which the reference's samples or a plain reading of the line show it.
WRITTEN: dict[str, tuple[str, Call, list[Any], dict[str, Any]]] = {
    "keyword": ("Functional.softmax", lambda x: F.softmax(x, dim=1), ["T"], {"dim": 1}),
    "all positional": ("Functional.softmax", lambda x: F.softmax(x, 1), ["T", 1], {}),
    "all keyword": ("Functional.softmax", lambda x: F.softmax(input=x, dim=1), [], {"input": "T", "dim": 1}),
    "keywords in another order": ("Functional.softmax", lambda x: F.softmax(dim=1, input=x), [], {"dim": 1, "input": "T"}),
    "a default spelled out": ("Functional.softmax", lambda x: F.softmax(x, dim=1, dtype=None), ["T"], {"dim": 1, "dtype": None}),
    "no argument beyond the tensor": ("Functional.relu", lambda x: F.relu(x), ["T"], {}),
    "keyword input": ("Functional.relu", lambda x: F.relu(input=x), [], {"input": "T"}),
    "method written in Python": ("Tensor.norm", lambda x: x.norm(), ["T"], {}),
    "method, positional": ("Tensor.norm", lambda x: x.norm(2), ["T", 2], {}),
    "method, keyword": ("Tensor.norm", lambda x: x.norm(p=2, dim=1), ["T"], {"p": 2, "dim": 1}),
    "method through the class": ("Tensor.norm", lambda x: torch.Tensor.norm(x, 2), ["T", 2], {}),
    "method bound before": ("Tensor.split", lambda x: operator.attrgetter("split")(x)(2), ["T", 2], {}),
    "method in C": ("Tensor.sum", lambda x: x.sum(0, keepdim=True), ["T", 0], {"keepdim": True}),
    "function in C": ("Torch.add", lambda x: torch.add(x, x, alpha=2), ["T", "T"], {"alpha": 2}),
    "function in C, all keyword": ("Torch.add", lambda x: torch.add(input=x, other=x), [], {"input": "T", "other": "T"}),
    "linear in C": ("Functional.linear", lambda x: F.linear(x, x, bias=None), ["T", "T"], {"bias": None}),
    "any number of tensors": ("Torch.einsum", lambda x: torch.einsum("ij,kj->ik", x, x), ["ij,kj->ik", "T", "T"], {}),
    "several tensors in a list": ("Torch.cat", lambda x: torch.cat([x, x], dim=1), [["T", "T"]], {"dim": 1}),
    "boolean dispatch": ("Functional.max_pool2d", lambda x: F.max_pool2d(x[None], 2), ["T", 2], {}),
    "boolean dispatch, other branch": (
        "Functional.max_pool2d",
        lambda x: F.max_pool2d(x[None], 2, return_indices=True),
        ["T", 2],
        {"return_indices": True},
    ),
    "operator": ("Tensor.__add__", lambda x: x + 1, ["T", 1], {}),
    "reversed operator": ("Tensor.__rsub__", lambda x: 1 - x, ["T", 1], {}),
    "index": ("Tensor.__getitem__", lambda x: x[0, 1:], ["T", [0, [1, None, None]]], {}),
    "spread over lines": (
        "Functional.layer_norm",
        lambda x: F.layer_norm(
            x,
            (4,),
            weight=None,
            eps=(
                1e-3  # a comment
            ),
        ),
        ["T", [4]],
        {"weight": None, "eps": 1e-3},
    ),
    "calls inside the arguments": ("Functional.normalize", lambda x: F.normalize(F.relu(F.relu(x)), dim=max(0, 1)), ["T"], {"dim": 1}),
    "nn.LayerNorm": ("Functional.layer_norm", lambda x: nn.LayerNorm(4)(x), ["T", [4], "T", "T", 1e-5], {}),
    "nn.MaxPool2d": (
        "Functional.max_pool2d",
        lambda x: nn.MaxPool2d(2)(x[None]),
        ["T", 2, 2, 0, 1],
        {"ceil_mode": False, "return_indices": False},
    ),
    "nn.Softmax": ("Functional.softmax", lambda x: nn.Softmax(1)(x), ["T", 1], {"_stacklevel": 5}),
    "nn.Dropout": ("Functional.dropout", lambda x: nn.Dropout(0.5)(x), ["T", 0.5, True, False], {}),
    "nn.CrossEntropyLoss": (
        "Functional.cross_entropy",
        lambda x: nn.CrossEntropyLoss()(x, x),
        ["T", "T"],
        {"weight": None, "ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0},
    ),
    "nn.init.normal_": ("Tensor.normal_", lambda x: nn.init.normal_(x, std=2.0), ["T", 0.0, 2.0], {"generator": None}),
    "nn.init.uniform_": ("Tensor.uniform_", lambda x: nn.init.uniform_(x), ["T", 0.0, 1.0], {"generator": None}),
    "nn.init.constant_": ("Tensor.fill_", lambda x: nn.init.constant_(x, 3.0), ["T", 3.0], {}),
    "nn.init.constant_ by keyword": ("Tensor.fill_", lambda x: nn.init.constant_(tensor=x, val=3.0), ["T", 3.0], {}),
    "random numbers": ("Torch.randn", lambda x: torch.randn(2, 3, dtype=torch.float64), [2, 3], {"dtype": "torch.float64"}),
}


@pytest.mark.parametrize("label", WRITTEN)
def test_as_written(tmp_path: Path, label: str) -> None:
    operation, call, args, kwargs = WRITTEN[label]
    x = torch.rand(4, 4)
    found = forms(tmp_path, lambda: call(x), operation)
    assert found[-1] == (args, kwargs)
    assert list(found[-1][1]) == list(kwargs)


def _in_async(x: torch.Tensor) -> None:
    async def inner() -> torch.Tensor:
        await asyncio.sleep(0)
        return F.softmax(x, dim=1)

    asyncio.run(inner())


def _in_generator(x: torch.Tensor) -> None:
    list(F.softmax(t, dim=1) for t in (x,))  # noqa: C400


def _in_class_body(x: torch.Tensor) -> None:
    class Body:
        value = F.softmax(x, dim=1)


def _in_decorated(x: torch.Tensor) -> None:
    def twice(function: Call) -> Call:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return inner

    @twice
    @torch.no_grad()
    def work(t: torch.Tensor) -> torch.Tensor:
        return F.softmax(t, dim=1)

    work(x)


def _in_try(x: torch.Tensor) -> None:
    try:
        raise ValueError
    except ValueError:
        with contextlib.suppress(ValueError):
            F.softmax(x, dim=1)
    finally:
        pass


def _in_comprehension(x: torch.Tensor) -> None:
    {F.softmax(t, dim=1) for t in [x] if F.relu(t) is not None}


def _in_f_string(x: torch.Tensor) -> None:
    text = f"{F.softmax(x, dim=1).shape}"
    assert text


def _in_eval(x: torch.Tensor) -> None:
    eval("F.softmax(x, dim=1)", {"F": F, "x": x})


def _after_many_constants(x: torch.Tensor) -> None:
    # More constants and names than fit one byte: the instructions carry EXTENDED_ARG.
    lines = [f"v{i} = {i}.5" for i in range(400)] + ["F.softmax(x, dim=1)"]
    exec("\n".join(lines), {"F": F, "x": x})


def _with_a_condition(x: torch.Tensor) -> None:
    F.softmax(x, dim=1 if x.numel() else 0)


def _walrus(x: torch.Tensor) -> None:
    if (y := F.softmax(x, dim=1)) is not None:
        del y


def _renamed(x: torch.Tensor) -> None:
    from torch.nn.functional import softmax as soft

    soft(x, dim=1)


def _method_of_a_class(x: torch.Tensor) -> None:
    class Holder:
        act = staticmethod(F.softmax)

    Holder().act(x, dim=1)


def _bound_as_method(x: torch.Tensor) -> None:
    class Holder:
        def __init__(self) -> None:
            self.act = F.softmax

    Holder().act(x, dim=1)


@pytest.mark.parametrize(
    "body",
    [
        _in_async,
        _in_generator,
        _in_class_body,
        _in_decorated,
        _in_try,
        _in_comprehension,
        _in_f_string,
        _in_eval,
        _after_many_constants,
        _with_a_condition,
        _walrus,
        _renamed,
        _method_of_a_class,
        _bound_as_method,
    ],
)
def test_wherever_it_stands(tmp_path: Path, body: Call) -> None:
    x = torch.rand(4, 4)
    assert forms(tmp_path, lambda: body(x), "Functional.softmax") == [(["T"], {"dim": 1})]


# Calls that no call instruction with plain arguments makes: the values are all there, as (operation, call, values by parameter name).
FROM_ELSEWHERE: dict[str, tuple[str, Call, dict[str, Any]]] = {
    "unpacked": ("Functional.softmax", lambda x: F.softmax(*(x, 1)), {"input": "T", "dim": 1}),
    "unpacked keywords": ("Functional.softmax", lambda x: F.softmax(x, dim=1), {"input": "T", "dim": 1}),
    "partial": ("Functional.softmax", lambda x: functools.partial(F.softmax, dim=1)(x), {"input": "T", "dim": 1}),
    "map": ("Functional.softmax", lambda x: list(map(F.softmax, [x], [1])), {"input": "T", "dim": 1}),
    "map with one argument": ("Functional.relu", lambda x: list(map(F.relu, [x])), {"input": "T"}),
    "reduce": ("Functional.cosine_similarity", lambda x: functools.reduce(F.cosine_similarity, [x, x]), {"x1": "T", "x2": "T"}),
    "reduce of a Python function": ("Functional.mse_loss", lambda x: functools.reduce(F.mse_loss, [x, x]), {"input": "T", "target": "T"}),
    "operator.add": ("Tensor.__add__", lambda x: operator.add(x, x), {"self": "T", "other": "T"}),
    "operator.call of a method": ("Tensor.norm", lambda x: operator.methodcaller("norm", 2, dim=1)(x), {"self": "T", "p": 2, "dim": 1}),
    "sorted by a key": ("Functional.softmax", lambda x: sorted([x], key=functools.partial(F.softmax, dim=1)), {"input": "T", "dim": 1}),
    "cached": ("Functional.softmax", lambda x: functools.lru_cache(F.softmax)(x, 1), {"input": "T", "dim": 1}),
    "in a pool of threads": (
        "Functional.softmax",
        lambda x: ThreadPoolExecutor(1).submit(F.softmax, x, dim=1).result(),
        {"input": "T", "dim": 1},
    ),
    "forward set to a function": ("Functional.softmax", lambda x: _module_with(F.softmax)(x, dim=1), {"input": "T", "dim": 1}),
    "hook in C": ("Functional.relu", lambda x: list(filter(lambda t: F.relu(t) is not None, [x])), {"input": "T"}),
}
PARAMETERS = {
    "Functional.softmax": ("input", "dim", "_stacklevel", "dtype"),
    "Functional.relu": ("input", "inplace"),
    "Functional.cosine_similarity": ("x1", "x2", "dim", "eps"),
    "Functional.mse_loss": ("input", "target", "size_average", "reduce", "reduction", "weight"),
    "Tensor.__add__": ("self", "other"),
    "Tensor.norm": ("self", "p", "dim", "keepdim", "dtype"),
}


def _module_with(function: Callable[..., Any]) -> nn.Module:
    module = nn.Module()
    module.forward = function  # type: ignore[method-assign]
    return module


@pytest.mark.parametrize("label", FROM_ELSEWHERE)
def test_nothing_passed_is_lost(tmp_path: Path, label: str) -> None:
    operation, call, expected = FROM_ELSEWHERE[label]
    x = torch.rand(4, 4)
    (args, kwargs) = forms(tmp_path, lambda: call(x), operation)[0]
    by_name = dict(zip(PARAMETERS[operation], args, strict=False)) | kwargs
    assert {name: by_name.get(name, "missing") for name in expected} == expected
    defaults = {
        "_stacklevel": 3,
        "dtype": None,
        "inplace": False,
        "keepdim": False,
        "size_average": None,
        "reduce": None,
        "reduction": "mean",
        "weight": None,
    }
    assert all(value == defaults.get(name) for name, value in by_name.items() if name not in expected)
