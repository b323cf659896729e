"""Which models a compiled function can reach; nothing is compiled here."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from msprobe.launch.compiled import models_of_call

MODEL = torch.nn.Linear(2, 2)
HOLDER = SimpleNamespace(parts=[{"net": MODEL}])


class Trap:
    """Code of the user's that must not run."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise AssertionError("__class__")

    @property
    def model(self) -> Any:
        raise AssertionError("model")


class Trainer(Trap):
    def __init__(self) -> None:
        self.net = MODEL

    def step(self, x: Any) -> Any:
        return self.net(x)


def by_name(x: Any) -> Any:
    return [MODEL(one) for one in x]


def by_a_function(x: Any) -> Any:
    return by_name(x)


def by_an_object(x: Any) -> Any:
    return HOLDER.parts[0]["net"](x)


def by_closure(model: Any = MODEL) -> Callable[..., Any]:
    return lambda x: model(x)


def nothing(x: Any) -> Any:
    return torch.relu(x)


def test_a_model_is_found_wherever_a_call_can_reach_it() -> None:
    trap = Trap()
    for function in (by_name, by_a_function, by_an_object, by_closure(), Trainer().step):
        assert models_of_call(function, (trap,), {"more": [trap]}) == [MODEL]
    assert models_of_call(nothing, (1, {"a": (MODEL,)}), {}) == models_of_call(nothing, (), {"model": MODEL}) == [MODEL]


@pytest.mark.parametrize("arguments", [(), (torch.nn.ReLU(),), (torch.optim.SGD(MODEL.parameters()),), (Trap(), Trap, torch)])
def test_what_holds_no_model_to_be_called(arguments: tuple[Any, ...]) -> None:
    assert models_of_call(nothing, arguments, {}) == []


def test_a_model_whose_parameters_are_a_list() -> None:
    class Listed(torch.nn.Linear):
        def parameters(self, recurse: bool = True) -> Any:
            return list(super().parameters(recurse))

    model = Listed(2, 2)
    assert models_of_call(nothing, (model,), {}) == [model]


def test_a_circle_comes_to_an_end() -> None:
    circle: list[Any] = []
    circle += [circle] * 10_000
    assert models_of_call(nothing, (circle,), {}) == []
