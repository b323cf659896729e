"""Under activation checkpointing a call is repeated for the backward pass, and must see the inputs that it saw the first time."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import Run, forget_debugger
from overriding import Takes, clean, configured, source
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts, set_checkpoint_early_stop

import warm_python


class Square(nn.Module):
    """y = (x w)², which keeps what it was called with."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([2.0, -3.0]))
        self.seen: list[list[float]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x.detach().tolist())
        return (x * self.w) ** 2


class Blocks(nn.Module):
    """One module called several times in each checkpointed piece of code."""

    def __init__(self, run: Callable[..., Any], pieces: int = 2, calls: int = 2) -> None:
        super().__init__()
        self.before = nn.Linear(2, 2)
        self.square = Square()
        self.run, self.pieces, self.calls = run, pieces, calls

    def piece(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.calls):
            x = self.square(x) * 0.1
        return x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        for _ in range(self.pieces):
            x = self.run(self.piece, x)
        return x


def plain(function: Any, *args: Any) -> Any:
    return function(*args)


def reentrant(function: Any, *args: Any) -> Any:
    return checkpoint(function, *args, use_reentrant=True)


def without(function: Any, *args: Any) -> Any:
    return checkpoint(function, *args, use_reentrant=False)


def late(function: Any, *args: Any) -> Any:
    """Recomputation runs to its end."""
    with set_checkpoint_early_stop(False):  # torch 2.6 has no argument for it
        return checkpoint(function, *args, use_reentrant=False)


def selective(function: Any, *args: Any) -> Any:
    kept = [torch.ops.aten.pow.Tensor_Scalar]
    return checkpoint(function, *args, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(kept))


def nested(function: Any, *args: Any) -> Any:
    return without(lambda *inner: without(function, *inner), *args)


def nested_mixed(function: Any, *args: Any) -> Any:
    return reentrant(lambda *inner: without(function, *inner), *args)


class MegatronStyle(torch.autograd.Function):
    """A user's own, as Megatron and DeepSpeed have one."""

    @staticmethod
    def forward(ctx: Any, function: Any, *args: Any) -> Any:
        ctx.function = function
        ctx.save_for_backward(*args)
        with torch.no_grad():
            return function(*args)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        inputs = [saved.detach().requires_grad_() for saved in ctx.saved_tensors]
        with torch.enable_grad():
            outputs = ctx.function(*inputs)
        torch.autograd.backward(outputs, gradients)
        return None, *(each.grad for each in inputs)


def own(function: Any, *args: Any) -> Any:
    return MegatronStyle.apply(function, *args)


ENTRY = "Module.square.Square.forward"
KINDS = [reentrant, without, late, selective, nested, nested_mixed, own]


def gradients(directory: Path, run: Any, entries: list[str], stop_first: bool = False, **load: Any) -> tuple[list[torch.Tensor], Blocks]:
    forget_debugger()
    torch.manual_seed(1)
    model, x = Blocks(run).double(), torch.ones(3, 2, dtype=torch.float64)
    debugger = configured(directory, entries, **load)
    debugger.start(model)
    y = model(x)
    if stop_first:
        debugger.stop()
    y.sum().backward()
    debugger.stop()
    debugger.step()
    return [y.detach(), *(p.grad for p in model.parameters())], model


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    torch.manual_seed(7)
    source(tmp_path, {f"{ENTRY}.{n}.input.0": torch.randn(3, 2, dtype=torch.float64) for n in range(12)})
    return tmp_path


@pytest.mark.parametrize("stop_first", [False, True])
@pytest.mark.parametrize("calls", [[0], [1], [2], [0, 3], [0, 1, 2, 3], [1, 2]], ids=str)
@pytest.mark.parametrize("run", KINDS, ids=lambda run: run.__name__)
def test_gradients_are_those_without_checkpointing(dump: Path, run: Any, calls: list[int], stop_first: bool, log: list[str]) -> None:
    entries = [f"{ENTRY}.{n}" for n in calls]
    expected, _ = gradients(dump, plain, entries)
    found, model = gradients(dump, run, entries, stop_first)
    assert len(model.square.seen) > 4  # it was repeated
    assert torch.equal(found[0], expected[0])
    for one, other in zip(found, expected, strict=True):  # a reentrant pass adds the pieces' gradients up in another order
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)
    assert clean(model)
    assert [line for line in log if line.startswith("WARNING")] == []
    assert any("and again in" in line for line in log)


def test_a_repetition_that_is_named_itself_gets_its_own_values(dump: Path) -> None:
    """forward.4 and forward.5 repeat forward.2 and forward.3."""
    _, model = gradients(dump, reentrant, [f"{ENTRY}.2", f"{ENTRY}.4"])
    files = {n: torch.load(dump / "source" / "step0" / "proc1" / "dump_tensor_data" / f"{ENTRY}.{n}.input.0.pt").tolist() for n in (2, 4)}
    assert (model.square.seen[2], model.square.seen[4]) == (files[2], files[4])


def test_the_numbers_of_the_recorder_are_ours(dump: Path) -> None:
    _, model = gradients(dump, without, [f"{ENTRY}.{n}" for n in range(12)], dump_after_load=True)
    data = Run(dump / "dump").step().data
    for number, seen in enumerate(model.square.seen):
        assert data[f"{ENTRY}.{number}"]["input_args"][0]["Max"] == max(max(row) for row in seen)


def test_several_backward_passes_over_one_graph(dump: Path) -> None:
    entries = [f"{ENTRY}.{n}" for n in (0, 3)]
    found = []
    for run in (plain, without):
        forget_debugger()
        torch.manual_seed(1)
        model = Blocks(run).double()
        debugger = configured(dump, entries)
        debugger.start(model)
        y = model(torch.ones(3, 2, dtype=torch.float64))
        for _ in range(3):
            y.sum().backward(retain_graph=True)
        debugger.stop()
        debugger.step()
        found.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_sequential(tmp_path: Path) -> None:
    torch.manual_seed(3)
    recorded = torch.randn(3, 2)
    source(tmp_path, {"Module.2.Linear.forward.0.input.0": recorded})
    found = []
    for checkpointed in (False, True):
        forget_debugger()
        torch.manual_seed(4)
        model, x = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.Tanh()), torch.ones(3, 2, requires_grad=True)
        debugger = configured(tmp_path, ["Module.2.Linear.forward.0"])
        debugger.start(model)
        y = checkpoint_sequential(model, 2, x, use_reentrant=False) if checkpointed else model(x)
        y.sum().backward()
        debugger.step()
        found.append([y.detach(), x.grad, *(p.grad for p in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_a_backward_pass_after_the_step_is_told(dump: Path, log: list[str]) -> None:
    model = Blocks(without).double()
    debugger = configured(dump, [f"{ENTRY}.1"])
    debugger.start(model)
    y = model(torch.ones(3, 2, dtype=torch.float64))
    debugger.step()
    assert clean(model)
    y.sum().backward()
    told = [line for line in log if line.startswith("WARNING")]
    assert len(told) == 1
    assert "step() came before the backward pass of Module.square.Square, whose inputs were replaced" in told[0]


DIES = """
import sys, torch
from torch.utils.checkpoint import checkpoint
from msprobe.pytorch import PrecisionDebugger
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
debugger = PrecisionDebugger(config_path=sys.argv[1])
debugger.start(model)
checkpoint(model, torch.ones(3, 2, requires_grad=True), use_reentrant=False)
"""


def test_a_forward_that_dies_under_checkpoint_is_not_told_of_step(tmp_path: Path) -> None:
    """step() never ran, so it cannot have come too early."""
    source(tmp_path, {"Module.1.Linear.forward.0.input.0": torch.ones(3, 5)})
    configured(tmp_path, ["Module.1.Linear.forward.0"])
    done = subprocess.run([*warm_python.command(), "-c", DIES, str(tmp_path / "config.json")], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert "shapes cannot be multiplied" in said and "tensor mismatch" in said
    assert "step()" not in said


def test_a_step_that_is_broken_off_is_not_told_of_its_backward_pass(dump: Path, log: list[str]) -> None:
    """step() in `finally`: there is no backward pass to come."""
    model = Blocks(without).double()
    debugger = configured(dump, [f"{ENTRY}.1"])
    with pytest.raises(ValueError, match="loss"):
        try:
            debugger.start(model)
            kept = model(torch.ones(3, 2, dtype=torch.float64))
            raise ValueError("the loss is wrong")
        finally:
            debugger.step()
    assert kept is not None and not any("before the backward pass" in line for line in log)


@pytest.mark.parametrize("run", [plain, reentrant, without], ids=lambda run: run.__name__)
def test_accumulation_with_checkpointing(dump: Path, run: Any, log: list[str]) -> None:
    """With it the second micro-batch is not forward.1, which is told to whoever names that."""
    told = []
    for number in (1, 2):
        forget_debugger()
        log.clear()
        model, debugger = Blocks(run, pieces=1, calls=1).double(), configured(dump, [f"{ENTRY}.{number}"], source_step=0)
        for _ in range(2):  # steps: it is told once
            debugger.start(model)
            for _ in range(2):
                model(torch.ones(3, 2, dtype=torch.float64)).sum().backward()
            debugger.stop()
            debugger.step()
        told.append([line for line in log if line.startswith("WARNING") and "never matched" not in line])
    hint = (
        f"WARNING [load] of the named calls 1 is no call of its own, by activation checkpointing: {ENTRY}.1 is the recomputation of "
        "forward.0. A recomputation gets by itself what its first call got, and other values there make gradients wrong; it is counted, so "
        "what comes after it, such as a second micro-batch, has a later number"
    )
    assert told == [[] if run is plain else [hint], []]


def test_after_stop_only_repetitions_are_replaced(dump: Path) -> None:
    model = Blocks(without).double()
    debugger = configured(dump, [f"{ENTRY}.{n}" for n in range(12)])
    debugger.start(model)
    y = model(torch.ones(3, 2, dtype=torch.float64))
    debugger.stop()
    with torch.no_grad():
        model.square(torch.full((3, 2), 7.0, dtype=torch.float64))
    assert model.square.seen[-1] == [[7.0, 7.0]] * 3
    y.sum().backward()
    assert model.square.seen[-1] != [[7.0, 7.0]] * 3
    debugger.step()
    assert clean(model)


def test_a_model_without_checkpointing_has_no_hooks_after_stop(dump: Path) -> None:
    model = Blocks(plain).double()
    debugger = configured(dump, [f"{ENTRY}.1"])
    debugger.start(model)
    y = model(torch.ones(3, 2, dtype=torch.float64))
    debugger.stop()
    assert clean(model)
    y.sum().backward()


def test_without_gradients_nothing_is_waited_for(dump: Path, log: list[str]) -> None:
    model = Blocks(without).double()
    debugger = configured(dump, [f"{ENTRY}.1"])
    debugger.start(model)
    with torch.no_grad():
        model(torch.ones(3, 2, dtype=torch.float64))
    debugger.stop()
    assert clean(model)
    debugger.step()
    assert [line for line in log if line.startswith("WARNING")] == []


def test_a_repetition_of_an_unknown_kind_is_told(dump: Path, log: list[str]) -> None:
    """A tensor hook that calls the module once more: nobody can know what for."""
    model = Blocks(plain).double()
    debugger = configured(dump, [f"{ENTRY}.1"])
    debugger.start(model)
    y = model(torch.ones(3, 2, dtype=torch.float64))
    y.register_hook(lambda gradient: model.square(torch.ones(3, 2, dtype=torch.float64)) * 0 + gradient)
    y.sum().backward()
    debugger.stop()
    debugger.step()
    assert any("was called once more during the backward pass, by code that is not torch.utils.checkpoint" in line for line in log)


def test_names_of_arguments_do_not_matter(tmp_path: Path) -> None:
    """A module whose `forward` and `backward` methods look like those of an autograd Function."""

    class Odd(Takes):
        def forward(ctx, x: torch.Tensor) -> Any:
            return ctx.inner(x)

    model = Odd()
    model.inner = Takes()
    source(tmp_path, {"Module.inner.Takes.forward.0.input.0": torch.ones(2)})
    debugger = configured(tmp_path, ["Module.inner.Takes.forward.0"])
    debugger.start(model)
    model(torch.zeros(2))
    debugger.step()
    assert model.inner.args[0].tolist() == [1, 1]
