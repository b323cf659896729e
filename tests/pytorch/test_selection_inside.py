"""list and scope where they name modules: what runs inside belongs to them, forward and backward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.nn as nn
from capturing import Step, configured, forget_debugger
from sample_runs import Net
from torch.utils.checkpoint import checkpoint

from msprobe.pytorch import seed_all

MLP, B = "Module.a.Mlp", "Module.b.Linear"


def recorded(directory: Path, level: str, *, model: nn.Module | None = None, needs_grad: bool = False, **section: Any) -> Step:
    """One step of a small net."""
    directory.mkdir(exist_ok=True)
    forget_debugger()
    seed_all(1)
    debugger = configured(directory, level=level, risk_level="ALL", **section)
    model = Net() if model is None else model
    x = torch.randn(3, 4, requires_grad=needs_grad)
    debugger.start(model)
    model(x).pow(2).sum().backward()
    debugger.stop()
    debugger.step()
    return Step(next((directory / "dump" / "step0").iterdir()))


def inside(step: Step, module: str) -> set[str]:
    """The names of a module's entries and of all that has it above itself in construct.json, gradients of parameters with their module."""
    construct = step.construct

    def lies_within(name: str | None) -> bool:
        while name is not None:
            if name.startswith(f"{module}."):
                return True
            name = construct.get(name)
        return False

    found = {name for name in step.data if ".parameters_grad." not in name and lies_within(name)}
    modules = {name.rpartition(".forward.")[0] for name in found if name.startswith("Module.") and ".forward." in name}
    return found | {name for name in step.data if name.partition(".parameters_grad.")[0] in modules}


@pytest.fixture(params=[False, True], ids=["input without grad", "input with grad"])
def everything(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Step, bool]:
    """The whole step: a module whose input takes no gradient has its own gradients before those of its inside."""
    return recorded(tmp_path / "all", "mix", needs_grad=request.param), request.param


def forwards(names: set[str]) -> set[str]:
    return {name for name in names if ".forward" in name}


def test_the_net_has_an_inside(everything: tuple[Step, bool]) -> None:
    names = inside(everything[0], MLP)
    assert {f"{MLP}.forward.0", f"{MLP}.backward.0", "Functional.linear.0.backward", "Module.a.fc2.Linear.parameters_grad.0"} < names
    assert len(forwards(names)) == 8 and len(names - forwards(names)) == 10


@pytest.mark.parametrize("item", [f"{MLP}.forward.0", MLP, "Mlp"])
def test_a_module_in_list_brings_all_its_inside_along(everything: tuple[Step, bool], tmp_path: Path, item: str) -> None:
    whole, needs_grad = everything
    assert set(recorded(tmp_path / "part", "mix", needs_grad=needs_grad, list=[item]).data) == inside(whole, MLP)


def test_a_module_s_backward_in_list_brings_the_gradients_of_its_inside_along(everything: tuple[Step, bool], tmp_path: Path) -> None:
    whole, needs_grad = everything
    names = inside(whole, MLP)
    part = recorded(tmp_path / "part", "mix", needs_grad=needs_grad, list=[f"{MLP}.backward.0"])
    assert set(part.data) == names - forwards(names)


@pytest.mark.parametrize("item", ["Module.a.fc1.Linear.parameters_grad.0", "fc1.Linear.parameters_grad"])
@pytest.mark.parametrize("level", ["L0", "mix"])
def test_gradients_of_parameters_by_their_own_name(tmp_path: Path, level: str, item: str) -> None:
    assert recorded(tmp_path / "part", level, list=[item]).names == ["Module.a.fc1.Linear.parameters_grad.0"]


def test_at_L0_a_module_in_list_stands_for_itself(tmp_path: Path) -> None:
    assert recorded(tmp_path / "part", "L0", list=[f"{MLP}.forward.0"]).names == [f"{MLP}.forward.0"]
    assert set(recorded(tmp_path / "other", "L0", list=[MLP]).data) == {f"{MLP}.forward.0", f"{MLP}.backward.0"}


@pytest.mark.parametrize("sides", [["backward"], ["forward"], ["forward", "input"], ["backward", "output"]], ids=str)
def test_data_mode_thins_out_what_a_module_brings_along(tmp_path: Path, sides: list[str]) -> None:
    whole = recorded(tmp_path / "all", "mix")
    expected = {name for name in inside(whole, MLP) if (".forward" in name) == ("forward" in sides)}
    part = recorded(tmp_path / "part", "mix", list=[MLP], data_mode=sides)
    assert set(part.data) == expected
    if "output" in sides:
        assert all("input" not in entry for name, entry in part.data.items() if ".backward" in name)


def test_what_a_module_brings_along_must_lie_in_the_scope(tmp_path: Path) -> None:
    part = recorded(tmp_path / "part", "mix", list=["Mlp"], scope=["Functional.relu.0.forward", "Functional.linear.1.forward"])
    assert part.names == [
        "Functional.relu.0.forward",
        "Module.a.act.ReLU.forward.0",
        "Tensor.__mul__.0.forward",
        "Functional.linear.1.forward",
        "Module.a.fc2.Linear.forward.0",  # began before the scope closed
    ]


class Recomputed(Net):
    """Its first module runs again in the backward pass."""

    def forward(self, x):
        return torch.softmax(self.b(checkpoint(self.a, x, use_reentrant=False)), dim=-1)


def test_a_recomputed_module_in_list(tmp_path: Path) -> None:
    whole = recorded(tmp_path / "all", "mix", model=Recomputed())
    names = inside(whole, MLP)
    assert f"{MLP}.forward.1" in names
    assert set(recorded(tmp_path / "part", "mix", model=Recomputed(), list=["Mlp"]).data) == names


# --- scope ---------------------------------------------------------------------------------------------------------------------------
def between(step: Step, first: str, last: str) -> list[str]:
    return step.names[step.names.index(first) : step.names.index(last) + 1]


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_module_that_closes_the_scope_belongs_to_it_with_its_inside(tmp_path: Path, level: str) -> None:
    whole = recorded(tmp_path / "all", level)
    part = recorded(tmp_path / "part", level, scope=[f"{MLP}.forward.0", f"{B}.forward.0"])
    assert part.names == [name for name in between(whole, whole.names[0], f"{B}.forward.0") if ".forward" in name]
    for module in (MLP, B):
        part = recorded(tmp_path / "one", level, scope=[f"{module}.forward.0"] * 2)
        assert set(part.data) == forwards(inside(whole, module))


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("needs_grad", [False, True])
def test_a_scope_of_one_module_s_backward(tmp_path: Path, level: str, needs_grad: bool) -> None:
    whole = recorded(tmp_path / "all", level, needs_grad=needs_grad)
    names = inside(whole, MLP)
    part = recorded(tmp_path / "part", level, needs_grad=needs_grad, scope=[f"{MLP}.backward.0"] * 2)
    assert set(part.data) == names - forwards(names)


@pytest.mark.parametrize("needs_grad", [False, True])
def test_a_scope_from_one_backward_to_another(tmp_path: Path, needs_grad: bool) -> None:
    whole = recorded(tmp_path / "all", "mix", needs_grad=needs_grad)
    part = recorded(tmp_path / "part", "mix", needs_grad=needs_grad, scope=[f"{B}.backward.0", f"{MLP}.backward.0"])
    names = inside(whole, B) | inside(whole, MLP)
    assert set(part.data) == names - forwards(names)


def test_a_scope_that_opens_inside_the_module_that_closes_it(tmp_path: Path) -> None:
    part = recorded(tmp_path / "part", "mix", scope=["Functional.linear.1.forward", f"{MLP}.forward.0"])
    assert part.names == ["Functional.linear.1.forward", "Module.a.fc2.Linear.forward.0", f"{MLP}.forward.0"]
    assert list(part.data[f"{MLP}.forward.0"]) == ["output", "parameters"]


def test_a_scope_of_apis_from_forward_to_backward(tmp_path: Path) -> None:
    whole = recorded(tmp_path / "all", "L1")
    part = recorded(tmp_path / "part", "L1", scope=["Functional.softmax.0.forward", "Functional.linear.2.backward"])
    assert part.names == between(whole, "Functional.softmax.0.forward", "Functional.linear.2.backward")


def test_a_scope_of_apis_of_the_backward_pass_alone(tmp_path: Path) -> None:
    part = recorded(tmp_path / "part", "L1", scope=["Functional.softmax.0.backward", "Functional.linear.1.backward"])
    assert part.names == ["Functional.softmax.0.backward", "Functional.linear.2.backward", "Functional.linear.1.backward"]


def test_a_later_accumulation_lies_outside_the_scope(tmp_path: Path) -> None:
    forget_debugger()
    debugger = configured(tmp_path, level="L0", scope=[f"{B}.forward.0", f"{B}.backward.0"])
    model, x = Net(), torch.randn(3, 4)
    debugger.start(model)
    for _ in range(2):
        model(x).pow(2).sum().backward()
    debugger.step()
    names = Step(next((tmp_path / "dump" / "step0").iterdir())).names
    assert names == [f"{B}.forward.0", f"{B}.backward.0", f"{B}.parameters_grad.0"]
