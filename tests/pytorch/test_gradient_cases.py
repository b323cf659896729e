"""What a backward entry holds in the cases that tools get wrong, each with numbers worked out by hand."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from capturing import Run, Step, configured, environment, record
from running_again import load
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe.writer import flush_all

LEVELS = ("L0", "L1", "mix")


def values(step: Step, record: Any) -> Any:
    """A record's values as nested lists; None for null."""
    return None if record is None else load(record, step.directory).tolist()


def gradients(step: Step, entry: str) -> tuple[list[Any], list[Any]]:
    """The two sides of a backward entry."""
    found = step.data[entry]
    return [values(step, r) for r in found["input"]], [values(step, r) for r in found["output"]]


def recorded(directory: Path, body: Callable[[], Any], model: Any = None, level: str = "mix", **config: Any) -> Step:
    return record(directory, body, model=nn.Sequential() if model is None else model, level=level, task="tensor", **config)


def leaf(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, requires_grad=True)


# --- slots ----------------------------------------------------------------------------------------------------------------------------
def test_a_tensor_passed_twice_has_the_total_in_both_slots(tmp_path: Path) -> None:
    x = leaf(2.0, 3.0)
    step = recorded(tmp_path, lambda: torch.mul(x, x).sum().backward())
    assert gradients(step, "Torch.mul.0.backward") == ([[1.0, 1.0]], [[4.0, 6.0], [4.0, 6.0]])


def test_a_tensor_passed_twice_in_a_list_and_by_keyword(tmp_path: Path) -> None:
    x = leaf(1.0)

    def body() -> None:
        y = x * 1
        (torch.cat([y, y, x]) * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
        torch.addcmul(x, tensor1=x, tensor2=x).sum().backward()

    step = recorded(tmp_path, body)
    assert gradients(step, "Torch.cat.0.backward")[1] == [[11.0], [11.0], [100.0]]
    assert gradients(step, "Torch.addcmul.0.backward")[1] == [[3.0], [3.0], [3.0]]


def test_queries_keys_and_values_in_one_tensor(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.MultiheadAttention(4, 2, batch_first=True))
    x = torch.randn(1, 3, 4, requires_grad=True)
    step = recorded(tmp_path, lambda: model[0](x, x, x)[0].square().sum().backward(), model)
    slots = gradients(step, "Module.0.MultiheadAttention.backward.0")[1]
    assert slots == [x.grad.tolist()] * 3  # type: ignore[union-attr]


def test_two_users_of_one_tensor_have_their_own_share(tmp_path: Path) -> None:
    """The gradient of an input is this call's contribution, not what all calls together give."""
    x = leaf(1.0, 2.0)

    def body() -> None:
        y = x * 1
        (torch.exp(y * 0) * 5 + torch.mul(y, 7)).sum().backward()

    step = recorded(tmp_path, body)
    assert gradients(step, "Torch.mul.0.backward")[1] == [[7.0, 7.0]]
    assert gradients(step, "Tensor.__mul__.0.backward")[0] == [[7.0, 7.0]]


def test_slots_are_args_then_kwargs_and_only_what_requires_grad(tmp_path: Path) -> None:
    x, weight, bias = torch.ones(2, 3), torch.ones(4, 3, requires_grad=True), leaf(0.0, 0.0, 0.0, 0.0)
    step = recorded(tmp_path, lambda: F.linear(x, bias=bias, weight=weight).sum().backward())
    assert gradients(step, "Functional.linear.0.backward") == ([[[1.0] * 4] * 2], [[2.0] * 4, [[2.0] * 3] * 4])
    assert list(step.data["Functional.linear.0.forward"]["input_kwargs"]) == ["bias", "weight"]


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_keyword_tensors_of_a_module(level: str, tmp_path: Path) -> None:
    class Scale(nn.Module):
        def forward(self, *, x: torch.Tensor, parts: dict[str, Any]) -> dict[str, torch.Tensor]:
            return {"y": x * parts["by"][0]}

    model, x, by = nn.Sequential(Scale()), leaf(2.0), leaf(5.0)
    step = recorded(tmp_path, lambda: model[0](x=x, parts={"by": [by]})["y"].backward(), model, level)
    assert gradients(step, "Module.0.Scale.backward.0") == ([[1.0]], [[5.0], [2.0]])


def test_the_weight_of_a_linear_with_three_dimensional_input(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3))
    x = torch.ones(4, 5, 2, requires_grad=True)
    step = recorded(tmp_path, lambda: model(x).sum().backward(), model)
    given, (of_x, of_weight, of_bias) = gradients(step, "Functional.linear.0.backward")
    assert torch.tensor(given).shape == (1, 4, 5, 3) and torch.tensor(of_x).shape == (4, 5, 2)
    assert of_weight == [[20.0, 20.0]] * 3 and of_bias == [20.0] * 3
    assert of_weight == model[0].weight.grad.tolist()  # type: ignore[union-attr]


def test_unused_outputs_and_inputs_without_gradient_are_null(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, y * 3

    model, x, y = nn.Sequential(Two()), leaf(1.0), leaf(1.0)

    def body() -> None:
        (x.unbind()[0] + model[0](x, y)[1]).backward()
        torch.where(torch.tensor([True]), x, y.detach()).sum().backward()

    step = recorded(tmp_path, body, model)
    assert gradients(step, "Module.0.Two.backward.0") == ([None, [1.0]], [None, [3.0]])
    assert gradients(step, "Torch.where.0.backward")[1] == [[1.0]]


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_an_output_that_another_output_is_made_from(level: str, tmp_path: Path) -> None:
    """The gradient of an output is what comes from outside the call, as torch.autograd.grad would be given it."""

    class Chain(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            a = x * 3
            return a, a.square(), x.exp().log()

    model, x = nn.Sequential(Chain()), leaf(1.0, 1.0)

    def body() -> None:
        first, second, _ = model[0](x)
        (first * 10 + second).sum().backward()

    step = recorded(tmp_path, body, model, level)
    assert gradients(step, "Module.0.Chain.backward.0") == ([[10.0, 10.0], [1.0, 1.0], None], [[48.0, 48.0]])


def test_an_output_that_is_an_input(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Identity(), nn.Dropout(0.5)).eval()
    x, y = leaf(1.0), leaf(3.0)

    def body() -> None:
        (model(x * 2) * 4).backward()
        (model[0](y) * 6).backward()
        same = y.float()
        assert same is y
        (same * 7).backward()

    step = recorded(tmp_path, body, model)
    for name in ("Module.0.Identity.backward.0", "Module.1.Dropout.backward.0"):
        assert gradients(step, name) == ([[4.0]], [[4.0]])
    assert gradients(step, "Module.0.Identity.backward.1") == ([[6.0]], [[6.0]])
    assert gradients(step, "Tensor.float.0.backward") == ([[7.0]], [[7.0]])


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("is_leaf", [True, False])
def test_an_input_given_on_beside_what_is_made_of_it(level: str, is_leaf: bool, tmp_path: Path) -> None:
    """Of the gradient that comes to the tensor, the call's own part is no gradient of its output."""

    class Both(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 3, x

    model = nn.Sequential(Both())

    def body() -> None:
        for weight in (0.0, 5.0):
            x = leaf(1.0) if is_leaf else leaf(1.0) * 1
            made, given = model[0](x)
            (made.sum() + (given.sum() * weight if weight else 0)).backward()

    step = recorded(tmp_path, body, model, level)
    assert gradients(step, "Module.0.Both.backward.0") == ([[1.0], None], [[3.0]])
    assert gradients(step, "Module.0.Both.backward.1") == ([[1.0], [5.0]], [[8.0]])


def _set_item(y: torch.Tensor) -> None:
    y[:, 0] = 5.0


def _copy(y: torch.Tensor) -> None:
    y[:, 0].copy_(torch.zeros(2))


@pytest.mark.parametrize("change", [_set_item, _copy])
def test_a_view_that_is_changed_in_place_is_told_for_all_who_gave_it(change: Callable[[torch.Tensor], None], tmp_path: Path) -> None:
    """A linear of three dimensions gives a view, a dropout of nothing gives it on; what they gave has no gradient any more."""
    model, x = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0)), torch.ones(2, 3, 2, requires_grad=True)

    def body() -> None:
        y = model[1](model[0](x))
        change(y)
        (y * 2).sum().backward()

    step = recorded(tmp_path, body, model)
    told = {line.partition(":")[0] for line in (step.directory / "dump_error_info.log").read_text().splitlines()}
    names = {"Functional.linear.0.backward", "Module.0.Linear.backward.0", "Functional.dropout.0.backward", "Module.1.Dropout.backward.0"}
    others = {"Tensor.copy_.0.backward", "Tensor.__getitem__.0.backward"} if change is _copy else set()
    assert told == names | others


def test_a_gradient_that_comes_by_a_side_door_is_no_view_changed_in_place(tmp_path: Path) -> None:
    """What leaves a module by an attribute brings gradients back to its input, and none comes by its output."""

    class SideDoor(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.kept = x * 3
            return self.kept * 2

    model, x = nn.Sequential(SideDoor()), leaf(1.0)

    def body() -> None:
        model[0](x)
        model[0].kept.sum().backward()

    step = recorded(tmp_path, body, model)
    assert not (step.directory / "dump_error_info.log").exists()


def test_what_is_no_view_is_changed_in_place_without_loss(tmp_path: Path) -> None:
    x = leaf(1.0, 2.0)

    def body() -> None:
        y = x * 3
        y[0] = 5.0
        (y * 2).sum().backward()

    step = recorded(tmp_path, body)
    assert not (step.directory / "dump_error_info.log").exists()
    assert gradients(step, "Tensor.__mul__.0.backward") == ([[0.0, 2.0]], [[0.0, 6.0]])


# --- in place -------------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("level", ["L0", "mix"])
def test_in_place_modules_and_the_module_before_them(level: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True), nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, -1.0]]))
        model[0].bias.zero_()
        model[2].weight.copy_(torch.tensor([[3.0, 4.0]]))
    x = torch.tensor([[1.0, 2.0]], requires_grad=True)
    step = recorded(tmp_path, lambda: model(x).backward(), model, level)
    assert gradients(step, "Module.1.ReLU.backward.0") == ([[[3.0, 4.0]]], [[[3.0, 0.0]]])
    assert gradients(step, "Module.0.Linear.backward.0") == ([[[3.0, 0.0]]], [[[3.0, 0.0]]])
    assert values(step, step.data["Module.1.ReLU.forward.0"]["input_args"][0]) == [[1.0, -2.0]]
    assert step.data["Module.0.Linear.parameters_grad.0"]["weight"]


def test_in_place_functions(tmp_path: Path) -> None:
    x = leaf(1.0, -1.0)

    def body() -> None:
        y = torch.mul(x, 2)
        y += 1
        y *= y.detach().clone()
        y.add_(x)
        F.relu_(y).sum().backward()

    step = recorded(tmp_path, body)
    assert gradients(step, "Functional.relu_.0.backward") == ([[1.0, 1.0]], [[1.0, 0.0]])
    assert gradients(step, "Tensor.add_.0.backward") == ([[1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]])
    assert gradients(step, "Tensor.__imul__.0.backward") == ([[1.0, 0.0]], [[3.0, 0.0]])
    assert gradients(step, "Tensor.__iadd__.0.backward") == ([[3.0, 0.0]], [[3.0, 0.0]])
    assert gradients(step, "Torch.mul.0.backward") == ([[3.0, 0.0]], [[6.0, 0.0]])


def test_a_backward_that_changes_its_gradient_in_place(tmp_path: Path) -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient.mul_(2)

    class Own(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Doubled.apply(x)

    model, x = nn.Sequential(nn.Tanh(), Own()), leaf(0.0)
    step = recorded(tmp_path, lambda: (model(x) * 3).backward(), model)
    assert gradients(step, "Module.1.Own.backward.0") == ([[3.0]], [[6.0]])
    assert gradients(step, "Module.0.Tanh.backward.0") == ([[6.0]], [[6.0]])


# --- passes and windows ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("level", LEVELS)
def test_a_second_backward_over_one_graph(level: str, tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Tanh()), leaf(0.0)

    def body() -> None:
        loss = model(x)
        loss.backward(torch.tensor([1.0]), retain_graph=True)
        loss.backward(torch.tensor([2.0]), retain_graph=True)
        loss.backward(torch.tensor([3.0]))
        model(x).backward()

    step = recorded(tmp_path, body, model, level)
    api = "Torch.tanh." if level != "L0" else ""
    for start, end in [(api, "backward")] if level == "L1" else [("Module.0.Tanh.backward.", ""), *([(api, ".backward")] if api else [])]:
        end = "" if "Module" in start else ".backward"
        for count, suffix, number in ((0, "", 1.0), (0, ".pass1", 2.0), (0, ".pass2", 3.0), (1, "", 1.0)):
            assert gradients(step, f"{start}{count}{end}{suffix}") == ([[number]], [[number]])
    passes = [name for name in step.names if ".backward" in name]
    assert len(passes) == (8 if level == "mix" else 4)


@pytest.mark.parametrize("level", LEVELS)
def test_stop_before_backward_and_step_after_it(level: str, tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(1, 1), nn.Tanh()), torch.ones(1, 1)
    debugger = configured(tmp_path, level=level, task="tensor")
    debugger.start(model)
    loss = model(x).sum()
    debugger.stop()
    model(x)
    loss.backward()
    debugger.step()
    names = Run(tmp_path / "dump").step().names
    modules = ["Module.1.Tanh.backward.0", "Module.0.Linear.backward.0", "Module.0.Linear.parameters_grad.0"]
    apis = ["Tensor.sum.0.backward", "Torch.tanh.0.backward", "Functional.linear.0.backward"]
    wanted = (modules if level != "L1" else []) + (apis if level != "L0" else [])
    assert set(wanted) <= set(names)
    assert not any(".forward.1" in name or ".1.forward" in name for name in names)


@pytest.mark.parametrize("level", LEVELS)
def test_a_backward_after_step_is_counted_by_the_next_closing_line_and_not_recorded(
    level: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, x = nn.Sequential(nn.Tanh()), leaf(0.0)
    debugger = configured(tmp_path, level=level, task="tensor")
    debugger.start(model)
    late = model(x)
    debugger.stop()
    debugger.step()
    for _ in range(2):
        debugger.start(model)
        model(x).backward()
        late.backward(retain_graph=True)
        debugger.stop()
        debugger.step()
    closing = [line for line in capfd.readouterr().err.splitlines() if "] recorded " in line]
    late_calls = {"L0": "1 call", "L1": "1 call", "mix": "2 calls"}[level]
    assert [late_calls in line and "earlier step" in line for line in closing] == [False, True, False], closing
    backward = [name for name in Run(tmp_path / "dump").step(1).names if ".backward" in name]
    assert len(backward) == (2 if level == "mix" else 1) and not any("pass" in name for name in backward)
    first = [name for name in Run(tmp_path / "dump").step(0).names if "backward" in name]
    assert first == []
    flush_all()
    (log,) = (tmp_path / "dump" / "step0").glob("*/dump_error_info.log")
    named = {line.partition(":")[0] for line in log.read_text().splitlines()}
    assert (
        named
        == {
            "L0": {"Module.0.Tanh.backward.0"},
            "L1": {"Torch.tanh.0.backward"},
            "mix": {"Module.0.Tanh.backward.0", "Torch.tanh.0.backward"},
        }[level]
    )


def test_a_backward_after_the_only_step_is_told_and_its_calls_are_named(tmp_path: Path) -> None:
    script = tmp_path / "early.py"
    script.write_text(EARLY_STEP)
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    warnings = [line for line in done.stderr.splitlines() if "[WARNING]" in line]
    assert len(warnings) == 2, done.stderr
    assert "came after step() had ended step 0" in warnings[0]
    assert "calls whose backward pass came after their step had ended: 5" in warnings[1]
    (log,) = (tmp_path / "dump_path" / "step0").glob("*/dump_error_info.log")
    assert len(log.read_text().splitlines()) == 5


EARLY_STEP = """
import torch
from msprobe.pytorch import PrecisionDebugger

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
debugger = PrecisionDebugger(level="mix", task="statistics")
debugger.start(model)
loss = model(torch.ones(2, 4)).sum()
debugger.stop()
debugger.step()
loss.backward()
"""


def test_start_and_stop_twice_in_one_step(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Tanh()), leaf(0.0)
    debugger = configured(tmp_path, level="mix", task="tensor")
    for scale in (1.0, 2.0):
        debugger.start(model)
        (model(x) * scale).backward()
        debugger.stop()
    debugger.step()
    step = Run(tmp_path / "dump").step()
    assert [gradients(step, f"Module.0.Tanh.backward.{n}")[0] for n in (0, 1)] == [[[1.0]], [[2.0]]]


def test_a_gradient_that_only_reaches_a_part(tmp_path: Path) -> None:
    """autograd.grad for one input: what was not asked for is null."""
    x, weight = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2, requires_grad=True)
    step = recorded(tmp_path, lambda: torch.autograd.grad(torch.mul(x, weight).sum(), x))
    assert gradients(step, "Torch.mul.0.backward")[1] == [[[1.0, 1.0]] * 2, None]


def test_a_backward_in_another_thread(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Tanh()), leaf(0.0)

    def body() -> None:
        loss = model(x) * 2
        worker = threading.Thread(target=loss.backward)
        worker.start()
        worker.join()

    step = recorded(tmp_path, body, model)
    assert gradients(step, "Module.0.Tanh.backward.0") == ([[2.0]], [[2.0]])


def test_a_module_with_hidden_state_stops_at_its_own_call(tmp_path: Path) -> None:
    """The graph goes back through earlier calls of the module; each entry has its own share."""

    class Cell(nn.Module):
        state: torch.Tensor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.state = self.state * x
            return self.state

    model, x = nn.Sequential(Cell()), leaf(2.0)
    model[0].state = torch.tensor([1.0])

    def body() -> None:
        for _ in range(3):
            out = model[0](x)
        out.backward()

    step = recorded(tmp_path, body, model)
    found = [gradients(step, f"Module.0.Cell.backward.{n}") for n in (2, 1, 0)]
    # Step n gives state[n] = state[n-1] * x: its own derivative by x is state[n-1], and 2 goes on to the state before.
    assert [output for _, output in found] == [[[4.0]], [[4.0]], [[4.0]]]


# --- parameters -----------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("level", ["L0", "mix"])
def test_parameter_gradients_are_the_running_sum(level: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(1, 1))
    kept: list[tuple[Any, Any]] = []

    def body() -> None:
        for factor in (1.0, 10.0, 100.0):
            (model(torch.ones(1, 1)) * factor).sum().backward()
            kept.append((model[0].weight.grad.tolist(), model[0].bias.grad.tolist()))  # type: ignore[union-attr]

    step = recorded(tmp_path, body, model, level)
    entries = [step.data[f"Module.0.Linear.parameters_grad.{n}"] for n in range(3)]
    assert [(values(step, e["weight"][0]), values(step, e["bias"][0])) for e in entries] == kept
    assert kept[2] == ([[111.0]], [111.0])
    assert "Module.0.Linear.parameters_grad.3" not in step.data


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_tied_weights_stand_under_both_modules_and_frozen_ones_under_none(level: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False), nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    model[2].requires_grad_(False)
    model[3].bias.requires_grad_(False)
    step = recorded(tmp_path, lambda: model(torch.ones(1, 2)).sum().backward(), model, level)
    grads = {name: entry for name, entry in step.data.items() if "parameters_grad" in name}
    assert sorted(grads) == [f"Module.{n}.Linear.parameters_grad.0" for n in (0, 1, 3)]
    assert [set(grads[f"Module.{n}.Linear.parameters_grad.0"]) for n in (0, 1, 3)] == [{"weight", "bias"}, {"weight"}, {"weight"}]
    tied = [values(step, grads[f"Module.{n}.Linear.parameters_grad.0"]["weight"][0]) for n in (0, 1)]
    assert tied[0] == tied[1] == model[0].weight.grad.tolist()  # type: ignore[union-attr]
    assert set(step.data["Module.2.Linear.forward.0"]["parameters"]) == {"weight", "bias"}


def test_a_module_used_twice_has_one_gradient_and_a_module_never_called_none(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    step = recorded(tmp_path, lambda: model[0](model[0](torch.ones(1, 2))).sum().backward(), model)
    assert [name for name in step.names if "parameters_grad" in name] == ["Module.0.Linear.parameters_grad.0"]
    weight = step.data["Module.0.Linear.parameters_grad.0"]["weight"][0]
    assert values(step, weight) == model[0].weight.grad.tolist()  # type: ignore[union-attr]


def test_sparse_gradients(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(4, 2, sparse=True))
    step = recorded(tmp_path, lambda: model(torch.tensor([1, 1, 3])).sum().backward(), model)
    weight = step.data["Module.0.Embedding.parameters_grad.0"]["weight"][0]
    assert (weight["shape"], weight["Max"], weight["Min"], weight["Mean"]) == ([4, 2], 2.0, 0.0, 0.75)
    saved = load(weight, step.directory)
    assert saved.to_dense().tolist() == [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0], [1.0, 1.0]]


# --- checkpointing --------------------------------------------------------------------------------------------------------------------
def _names(directory: Path, reentrant: bool, level: str) -> Step:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Tanh()))

    def body() -> None:
        checkpoint(model[1], model[0](torch.ones(1, 2)), use_reentrant=reentrant).sum().backward()

    return recorded(directory, body, model, level)


@pytest.mark.parametrize("level", LEVELS)
def test_checkpoint_reentrant(level: str, tmp_path: Path) -> None:
    """forward.0 without gradients, forward.1 and backward.1 when it is computed again."""
    step = _names(tmp_path, True, level)
    if level != "L1":
        modules = [name for name in step.names if name.startswith("Module.1.1.Tanh")]
        assert modules == ["Module.1.1.Tanh.forward.0", "Module.1.1.Tanh.forward.1", "Module.1.1.Tanh.backward.1"]
        assert step.data["Module.1.0.Linear.forward.0"]["output"][0]["requires_grad"] is False
        assert {"Module.1.Sequential.backward.1", "Module.1.0.Linear.backward.1", "Module.1.0.Linear.parameters_grad.0"} <= set(step.names)
    if level != "L0":
        assert [n for n in step.names if "tanh" in n] == ["Torch.tanh.0.forward", "Torch.tanh.1.forward", "Torch.tanh.1.backward"]
        assert [n for n in step.names if "linear" in n and "backward" in n] == [f"Functional.linear.{n}.backward" for n in (2, 0)]
    if level == "mix":
        assert step.construct["Torch.tanh.1.backward"] == "Module.1.1.Tanh.backward.1"
        assert step.construct["Module.1.1.Tanh.backward.1"] == "Module.1.Sequential.backward.1"


@pytest.mark.parametrize("level", LEVELS)
def test_checkpoint_non_reentrant(level: str, tmp_path: Path) -> None:
    """forward.0, forward.1 when it is computed again, backward.0; the last call computed again has no result."""
    step = _names(tmp_path, False, level)
    if level != "L1":
        modules = [name for name in step.names if name.startswith("Module.1.1.Tanh")]
        assert modules == ["Module.1.1.Tanh.forward.0", "Module.1.1.Tanh.forward.1", "Module.1.1.Tanh.backward.0"]
        assert step.data["Module.1.1.Tanh.forward.1"]["output"] == [None]
        assert "Module.1.0.Linear.backward.0" in step.names and "Module.1.0.Linear.backward.1" not in step.names
    if level != "L0":
        assert [n for n in step.names if "tanh" in n] == ["Torch.tanh.0.forward", "Torch.tanh.1.forward", "Torch.tanh.0.backward"]
        assert "output" not in step.data["Torch.tanh.1.forward"]
    if level == "mix":
        assert step.construct["Torch.tanh.0.backward"] == "Module.1.1.Tanh.backward.0"
    assert "not recorded" not in step.errors and step.errors == ""


# --- autocast -------------------------------------------------------------------------------------------------------------------------
def test_a_layer_used_twice_under_autocast_has_its_own_share_of_the_weight(tmp_path: Path) -> None:
    """autocast makes the lower copy of a weight once; both calls lead through it."""
    weight = torch.ones(1, 1, requires_grad=True)

    def body() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            (F.linear(torch.full((1, 1), 2.0), weight) + F.linear(torch.full((1, 1), 3.0), weight)).sum().backward()

    step = recorded(tmp_path, body)
    found = [step.data[f"Functional.linear.{n}.backward"]["output"][0] for n in (0, 1)]
    assert [values(step, r) for r in found] == [[[2.0]], [[3.0]]]
    assert [r["dtype"] for r in found] == ["torch.float32"] * 2
