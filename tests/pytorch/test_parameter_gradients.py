"""Gradients of parameters where the user's own hooks look at them, change them, or take them away."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import parse, record
from running_again import load
from torch import nn

from msprobe.pytorch import torch_internals

IN_C: dict[str, Any] = {}
IN_PYTHON: dict[str, Any] = {"list": ["Module"]}
"""A selection, which is no common case."""
both = pytest.mark.parametrize("path", [IN_C, IN_PYTHON], ids=["c", "python"])
ENTRY = "Module.0.Linear.parameters_grad.0"


def steps_in_backward(model: nn.Module) -> Callable[[torch.Tensor], None]:
    """What torch's tutorial registers: the optimizer steps when a gradient is there, and frees it."""
    optimizers = {p: torch.optim.SGD([p], lr=0.5) for p in model.parameters()}

    def step(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    return step


@both
@pytest.mark.parametrize("registered", ["before", "meanwhile"])
def test_an_optimizer_that_steps_in_the_backward_pass(path: dict[str, Any], registered: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 1, bias=False))
    weight = model[0].weight
    start = weight.detach().clone()
    handles: list[Any] = []

    def register() -> None:
        handles.append(weight.register_post_accumulate_grad_hook(steps_in_backward(model)))

    def body() -> None:
        loss = model(torch.tensor([[2.0, 3.0]])).sum()
        if registered == "meanwhile":
            register()
        loss.backward()

    if registered == "before":
        register()
    step = record(tmp_path, body, model=model, level="L0", task="tensor", **path)
    assert load(step.data[ENTRY]["weight"][0], step.directory).tolist() == [[2.0, 3.0]]
    assert step.errors == ""
    assert weight.grad is None and torch.equal(weight, start - 0.5 * torch.tensor([[2.0, 3.0]]))
    assert list(weight._post_accumulate_grad_hooks) == [handles[0].id]
    handles[0].remove()
    assert not weight._post_accumulate_grad_hooks


@both
def test_hooks_of_the_user_keep_their_dictionary_and_their_order(path: dict[str, Any], tmp_path: Path) -> None:
    model, seen = nn.Sequential(nn.Linear(1, 1, bias=False)), []
    weight = model[0].weight
    handles = [weight.register_post_accumulate_grad_hook(lambda _, n=n: seen.append(n)) for n in range(3)]
    hooks = weight._post_accumulate_grad_hooks
    before = list(hooks.items())
    record(tmp_path, lambda: model(torch.ones(1, 1)).sum().backward(), model=model, level="L0", **path)
    assert seen == [0, 1, 2]
    assert weight._post_accumulate_grad_hooks is hooks and list(hooks.items()) == list(dict.items(hooks)) == before
    handles[1].remove()
    model(torch.ones(1, 1)).sum().backward()
    assert seen == [0, 1, 2, 0, 2]


@both
def test_a_gradient_that_is_gone_before_we_look_is_told(path: dict[str, Any], tmp_path: Path, capfd: Any) -> None:
    model = nn.Sequential(nn.Linear(1, 1))
    weight = model[0].weight

    def take_away(parameter: torch.Tensor) -> None:
        parameter.grad = None

    def body() -> None:
        loss = model(torch.ones(1, 1)).sum()
        hooks = weight._post_accumulate_grad_hooks
        ours = OrderedDict(hooks)
        hooks.clear()
        weight.register_post_accumulate_grad_hook(take_away)
        hooks.update(ours)
        loss.backward()

    step = record(tmp_path, body, model=model, level="L0", **path)
    why = "a gradient that was taken away before it could be read"
    assert step.data[ENTRY]["weight"] == [None] and step.data[ENTRY]["bias"][0]["Max"] == 1.0
    assert step.errors == f"{ENTRY}: parameters_grad weight: {why}\n"
    assert parse(step.directory / "meta.json")["unread"] == {why: {"weight": [ENTRY]}}
    err = capfd.readouterr().err
    assert "recorded 6 tensors of 3 calls (modules 1/1), 0.0 MB" in err and f"not recorded: 1 (1 × {why}; see" in err


def test_a_hook_is_put_before_all_others() -> None:
    parameter, seen = torch.ones(1, requires_grad=True), []
    for name in "ab":
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(name))
    for _ in range(2):
        torch_internals.put_gradient_hook(parameter, "ours", lambda _: seen.append("ours"))
    (parameter * 1).backward()
    assert seen == ["ours", "a", "b"]
    torch_internals.take_gradient_hook(parameter, "ours", False)
    assert len(parameter._post_accumulate_grad_hooks) == 2
