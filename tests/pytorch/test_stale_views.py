"""Views whose base was changed in place since torch has last looked at them: watching them changes no bit of a gradient."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from capturing import Run, Step, configured, forget_debugger

from msprobe.pytorch import torch_internals
from msprobe.pytorch.dump import common_case, graph_walk

TOLD = "the base of a view was changed in place"


@pytest.fixture(params=["C", "Python"])
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What records: the C, or the Python that says what it does."""
    if request.param == "Python":
        monkeypatch.setattr(common_case, "hot", None)
        monkeypatch.setattr(graph_walk, "edges_of_all", graph_walk._edges_in_python)
        monkeypatch.setattr(graph_walk, "trace", graph_walk.trace_in_python)


class Takes(nn.Module):
    """Takes a view and its base; `before` is what it does with them before it computes."""

    def __init__(self, before: Callable[[torch.Tensor, torch.Tensor], Any] = lambda view, base: None, uses: bool = True) -> None:
        super().__init__()
        self.before, self.uses = before, uses

    def forward(self, view: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
        self.before(view, base)
        return summed(view if self.uses else view.detach(), base)


class Gives(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return stale(x)


def summed(view: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """Something whose gradient depends, in its last bits, on where the view's node stands among the others."""
    before = torch.sin(base) * torch.linspace(0, 3, 64) + torch.cos(base) * 1.33
    used = torch.tanh(view.reshape(-1)) * torch.linspace(1, 2, 64)
    return (before + used + torch.exp(base) * torch.linspace(-1, 2, 64)).sum()


def stale(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    base = x * 1.0
    view = base.view(8, 8)
    base.mul_(1.37)
    return view, base


def module_takes_it(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return module(*stale(x))


def module_gives_it(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return summed(*module(x))


def compared_before_it_is_used(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    view, base = stale(x)
    assert (view > 0).shape == (8, 8)
    return module(view, base)


def changed_by_an_assignment(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    base = x * 1.0
    view = base.view(8, 8)
    view[0] = 1.5
    return module(view, base)


CASES: list[tuple[Callable[..., torch.Tensor], Callable[[], nn.Module]]] = [
    (module_takes_it, Takes),
    (module_takes_it, lambda: Takes(uses=False)),
    (module_takes_it, lambda: Takes(lambda view, base: base.add_(1))),
    (module_takes_it, lambda: Takes(lambda view, base: view.add_(1))),
    (module_gives_it, Gives),
    (compared_before_it_is_used, Takes),
    (changed_by_an_assignment, Takes),
]


def gradient(program: Callable[..., torch.Tensor], module: nn.Module) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randn(64, requires_grad=True)
    program(module, x).backward()
    assert x.grad is not None
    return x.grad


def recorded(program: Callable[..., torch.Tensor], module: nn.Module, directory: Path, **config: Any) -> tuple[torch.Tensor, Step]:
    debugger = configured(directory, risk_level="ALL", **config)
    debugger.start(nn.ModuleList([module]))
    watched = gradient(program, module)
    debugger.stop()
    debugger.step()
    forget_debugger()
    return watched, Run(directory / "dump").step()


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.usefixtures("twin")
def test_no_bit_of_a_gradient_changes(tmp_path: Path, case: int, level: str) -> None:
    program, make = CASES[case]
    module = make()
    watched, step = recorded(program, module, tmp_path, level=level)
    assert torch.equal(gradient(program, module), watched)
    assert "could not" not in step.errors


@pytest.mark.usefixtures("twin")
def test_the_gradient_of_a_view_that_a_call_uses_is_recorded(tmp_path: Path) -> None:
    module = Takes()
    _, step = recorded(module_takes_it, module, tmp_path, level="L0", task="tensor")
    torch.manual_seed(0)
    view, base = (tensor.detach().requires_grad_() for tensor in stale(torch.randn(64)))
    expected, _ = torch.autograd.grad(module(view, base), [view, base])
    saved = step.data["Module.0.Takes.backward.0"]["output"][0]["data_name"]
    (file,) = step.directory.rglob(saved)
    assert torch.equal(torch.load(file), expected)
    assert step.errors == ""


@pytest.mark.usefixtures("twin")
def test_a_call_that_does_not_use_it_gives_it_no_gradient(tmp_path: Path) -> None:
    _, step = recorded(module_takes_it, Takes(uses=False), tmp_path, level="L0")
    received = step.data["Module.0.Takes.backward.0"]["output"]
    assert received[0] is None and received[1] is not None
    assert step.errors == ""


@pytest.mark.usefixtures("twin")
def test_what_a_call_changes_once_more_is_told(tmp_path: Path) -> None:
    _, step = recorded(module_takes_it, Takes(lambda view, base: base.add_(1)), tmp_path, level="L0")
    assert f"Module.0.Takes.backward.0: output 0: {TOLD}" in step.errors
    assert step.data["Module.0.Takes.backward.0"]["output"][0] is None


@pytest.mark.usefixtures("twin")
def test_one_that_a_call_gives_is_told(tmp_path: Path) -> None:
    _, step = recorded(module_gives_it, Gives(), tmp_path, level="L0")
    assert f"Module.0.Gives.backward.0: input 0: {TOLD}" in step.errors
    given = step.data["Module.0.Gives.backward.0"]["input"]
    assert given[0] is None and given[1] is not None


def test_saving_one_changes_no_bit(tmp_path: Path) -> None:
    def program(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        view, base = stale(x)
        debugger.save(view, "view")
        return summed(view, base)

    debugger = configured(tmp_path, level="debug", task="statistics")
    watched = gradient(program, nn.Identity())
    debugger.step()
    assert torch.equal(gradient(module_takes_it, Takes()), watched)
    assert TOLD in Run(tmp_path / "dump").step().errors


def test_they_are_known_without_a_look_at_their_node() -> None:
    x = torch.ones(4, requires_grad=True)
    base = x * 1.0
    view = base.view(2, 2)
    assert not torch_internals.is_stale_view(view)
    base.mul_(2)
    before = torch_internals.sequence_number()
    assert torch_internals.is_stale_view(view) and not torch_internals.is_stale_view(base)
    assert torch_internals.sequence_number() == before
    assert torch_internals.get_creation(view) == torch_internals.Creation.DEFAULT
    assert view.grad_fn is not None and not torch_internals.is_stale_view(view)
    assert not torch_internals.is_stale_view(base.view(-1)) and not torch_internals.is_stale_view(x)
    with torch.inference_mode():
        assert not torch_internals.is_stale_view(torch.ones(2).view(1, 2))
