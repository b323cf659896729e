"""Gradients of saved values: those a hook on the tensor would see, and nothing of ours is left."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from debug_json import Saved, debugger_for, save, step_of
from torch.utils.checkpoint import checkpoint

from msprobe.pytorch import PrecisionDebugger


def grads(step: Saved, key: str) -> Any:
    return step.values(step.data[key])


def saving(directory: Path) -> PrecisionDebugger:
    return debugger_for(directory, task="tensor")


def test_total_over_all_uses(tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        y = torch.ones(2, requires_grad=True) * 3
        debugger.save(y, "y")
        (y * 2 + y * y).sum().backward()

    assert grads(save(tmp_path, body, task="tensor"), "y_grad.0.debug") == [8.0, 8.0]


def test_a_leaf_has_what_flows_in_and_not_its_grad(tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        p = nn.Parameter(torch.ones(2))
        p.grad = torch.full((2,), 100.0)
        debugger.save(p, "p")
        (p * 2).sum().backward()
        assert p.grad.tolist() == [102.0, 102.0]

    assert grads(save(tmp_path, body, task="tensor"), "p_grad.0.debug") == [2.0, 2.0]


@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("create_graph", [True, False])
def test_torch_autograd_grad(leaf: bool, create_graph: bool, tmp_path: Path) -> None:
    """A gradient penalty: the saved tensor itself is what the gradient is asked for."""

    def body(debugger: Any) -> None:
        x = torch.ones(2, requires_grad=True)
        x = x if leaf else x * 1
        debugger.save(x, "x")
        (gradient,) = torch.autograd.grad((x**2).sum(), x, create_graph=create_graph)
        assert gradient.tolist() == [2.0, 2.0]

    step = save(tmp_path, body, task="tensor")
    assert grads(step, "x_grad.0.debug") == [2.0, 2.0]
    assert step.data["x_grad.0.debug"]["requires_grad"] is create_graph


def test_a_second_backward_over_one_graph(tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        x = torch.ones(2, requires_grad=True)
        y = x * 2
        debugger.save({"x": x, "y": y, "n": 1}, "v")
        y.sum().backward(retain_graph=True)
        (3 * y).sum().backward()

    step = save(tmp_path, body, task="tensor")
    assert step.keys == ["v.0.debug", "v_grad.0.debug", "v_grad.0.debug.pass1"]
    for key, factor in (("v_grad.0.debug", 1.0), ("v_grad.0.debug.pass1", 3.0)):
        assert step.values(step.data[key]["x"]) == [2 * factor] * 2
        assert step.values(step.data[key]["y"]) == [factor] * 2
        assert step.data[key]["n"] is None


def test_parts_that_two_backward_passes_reach_share_an_entry(tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        a, b = torch.ones(1, requires_grad=True) * 2, torch.ones(1, requires_grad=True) * 3
        debugger.save([a, b], "v")
        a.backward()
        (b * 4).backward()

    step = save(tmp_path, body, task="tensor")
    assert step.keys == ["v.0.debug", "v_grad.0.debug"]
    assert [step.values(record) for record in step.data["v_grad.0.debug"]] == [[1.0], [4.0]]


def test_a_gradient_of_only_a_part(tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        a, b = torch.ones(1, requires_grad=True) * 2, torch.ones(1, requires_grad=True) * 3
        debugger.save([a, b], "v")
        debugger.save(b, "b")
        a.backward()

    data = save(tmp_path, body).data
    assert data["v_grad.0.debug"][0]["Max"] == 1.0 and data["v_grad.0.debug"][1] is None
    assert data["b_grad.0.debug"] is None


def test_saved_before_and_after_a_change_in_place(tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        y = torch.ones(2, requires_grad=True) * 3
        debugger.save(y, "y")
        y.mul_(5)
        debugger.save(y, "y")
        y.sum().backward()

    step = save(tmp_path, body, task="tensor")
    assert grads(step, "y.0.debug") == [3.0, 3.0] and grads(step, "y.1.debug") == [15.0, 15.0]
    assert grads(step, "y_grad.0.debug") == [5.0, 5.0] and grads(step, "y_grad.1.debug") == [1.0, 1.0]


def test_a_view_changed_in_place_afterwards_has_no_gradient(tmp_path: Path) -> None:
    """autograd keeps none of what the view was before; no hook would see it."""

    def body(debugger: Any) -> None:
        y = torch.ones(2, 2, requires_grad=True) * 3
        view = y[0]
        debugger.save(view, "view")
        debugger.save(view, "view")
        view.mul_(2)
        debugger.save(view, "view")
        y.sum().backward()

    data = save(tmp_path, body).data
    assert data["view_grad.0.debug"] is None and data["view_grad.1.debug"] is None
    assert data["view_grad.2.debug"] is None or data["view_grad.2.debug"]["Max"] == 1.0


def test_one_of_several_outputs(tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        a, b, c = torch.ones(3, 2, requires_grad=True).unbind()
        debugger.save(b, "b")
        debugger.save(c, "c")
        (a + 2 * b + 3 * c).sum().backward()

    step = save(tmp_path, body, task="tensor")
    assert grads(step, "b_grad.0.debug") == [2.0, 2.0] and grads(step, "c_grad.0.debug") == [3.0, 3.0]


def test_twice_under_several_names(tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        x = torch.ones(2, requires_grad=True)
        y = x * 2
        for name in ("a", "b", "a"):
            debugger.save(y, name)
            debugger.save([x, x], f"x{name}")
        y.sum().backward()

    data = save(tmp_path, body).data
    for key in ("a_grad.0", "b_grad.0", "a_grad.1"):
        assert data[f"{key}.debug"]["Max"] == 1.0
        assert [record["Max"] for record in data[f"x{key}.debug"]] == [2.0, 2.0]


def test_user_hooks_that_change_gradients(tmp_path: Path) -> None:
    """Ours is one more hook: it sees what those before it made of the gradient."""

    def body(debugger: Any) -> None:
        y = torch.ones(2, requires_grad=True) * 1
        debugger.save(y, "before")
        y.register_hook(lambda g: g * 10)
        debugger.save(y, "after")
        y.sum().backward()

    data = save(tmp_path, body).data
    assert data["before_grad.0.debug"]["Max"] == 1.0 and data["after_grad.0.debug"]["Max"] == 10.0


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        gradient.mul_(2)  # what is given may be changed: it has been read before
        return gradient


def test_user_written_functions(tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        y = Doubles.apply(torch.ones(2, requires_grad=True))
        debugger.save(y, "y")
        (y * 3).sum().backward()

    assert grads(save(tmp_path, body, task="tensor"), "y_grad.0.debug") == [3.0, 3.0]


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant: bool, tmp_path: Path) -> None:
    """The recomputed call saves too, and counts on."""

    def body(debugger: Any) -> None:
        def block(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            debugger.save(y, "y")
            return y * y

        checkpoint(block, torch.ones(2, requires_grad=True), use_reentrant=reentrant).sum().backward()

    data = save(tmp_path, body).data
    assert list(data) == ["y.0.debug", "y_grad.0.debug", "y.1.debug", "y_grad.1.debug"]
    assert data["y.0.debug"]["Max"] == data["y.1.debug"]["Max"] == 2.0
    came = data["y_grad.1.debug" if reentrant else "y_grad.0.debug"]
    assert came["Max"] == 4.0 and data["y_grad.0.debug" if reentrant else "y_grad.1.debug"] is None


def test_saved_in_a_backward_pass(tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        y = torch.ones(2, requires_grad=True) * 2
        y.register_hook(lambda g: debugger.save(g, "g"))
        y.sum().backward()

    step = save(tmp_path, body)
    assert step.keys == ["g.0.debug", "g_grad.0.debug"] and step.data["g_grad.0.debug"] is None


@pytest.mark.parametrize("kind", ["sparse", "complex", "float16", "batched", "anomaly"])
def test_kinds_of_gradients(kind: str, tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        if kind == "sparse":
            table = nn.Embedding(3, 2, sparse=True)
            debugger.save(table.weight, "v")
            table(torch.tensor([1, 1])).sum().backward()
        elif kind == "complex":
            z = torch.ones(2, dtype=torch.complex64, requires_grad=True) * 1j
            debugger.save(z, "v")
            z.abs().sum().backward()
        elif kind == "float16":
            h = torch.ones(2, dtype=torch.float16, requires_grad=True) * 2
            debugger.save(h, "v")
            (h * 60000).sum().backward()
        elif kind == "batched":
            x = torch.ones(2, requires_grad=True)
            debugger.save(x, "v")
            torch.autograd.grad(x * 2, x, torch.eye(2), is_grads_batched=True)
        else:
            with torch.autograd.detect_anomaly(check_nan=False), warnings.catch_warnings():
                x = torch.ones(2, requires_grad=True) * 1
                debugger.save(x, "v")
                (x * 2).sum().backward()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step = save(tmp_path, body)
    record = step.data["v_grad.0.debug"]
    expected = {"sparse": 2.0, "complex": "(0+1j)", "float16": 60000.0, "anomaly": 2.0}
    if kind == "batched":
        assert record["Max"] is None and "v_grad.0.debug: values of torch.Tensor could not be read" in step.errors
    elif kind == "complex":
        assert record["dtype"] == "torch.complex64" and record["Norm"] == pytest.approx(2**0.5)
    else:
        assert record["Max"] == expected[kind]


def test_nothing_is_visible_on_the_tensors(tmp_path: Path) -> None:
    debugger = debugger_for(tmp_path)
    p, x = nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=True)
    y = x * p
    mine = y.register_hook(lambda g: None)
    hooks, content = y._backward_hooks, dict(y._backward_hooks)
    node, z = y.grad_fn, y * 1
    for tensor in (p, x, y, z):
        debugger.save(tensor, "v")
    assert y._backward_hooks is hooks and dict(hooks) == content and y.grad_fn is node
    assert z._backward_hooks is None
    assert vars(p) == {} and vars(y) == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns when hooks are not pickled along
        for leaf in (p, x):
            assert copy.deepcopy(leaf)._backward_hooks is None
            assert not pickle.loads(pickle.dumps(leaf))._backward_hooks
    debugger.step()
    assert p._backward_hooks is None and x._backward_hooks is None
    mine.remove()
    assert not y._backward_hooks


def test_hooks_of_the_user_on_a_leaf_stay(tmp_path: Path) -> None:
    debugger = debugger_for(tmp_path)
    seen: list[str] = []
    before, between = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    before.register_hook(lambda g: seen.append("before"))
    hooks = before._backward_hooks
    debugger.save([before, between], "v")
    handle = between.register_hook(lambda g: seen.append("between"))
    debugger.step()
    assert before._backward_hooks is hooks and len(hooks) == 1
    (before * between).sum().backward()
    assert sorted(seen) == ["before", "between"]
    handle.remove()


def test_gradients_after_step_are_counted_by_the_next_closing_line(tmp_path: Path, told: Any) -> None:
    debugger = debugger_for(tmp_path)
    y = torch.ones(2, requires_grad=True) * 2
    debugger.save([y, y * 3], "y")
    debugger.save(y, "other")
    debugger.step()
    told()
    y.sum().backward()
    debugger.save(1, "one")
    debugger.step()
    assert "; 2 calls of earlier steps had their backward pass after their step had ended" in "".join(told())
    data = step_of(tmp_path / "dump", 0).data
    assert data["y_grad.0.debug"] == [None, None] and data["other_grad.0.debug"] is None
    assert step_of(tmp_path / "dump", 1).keys == ["one.0.debug", "one_grad.0.debug"]


def test_memory_is_given_back_with_the_graph(tmp_path: Path) -> None:
    """A loop without step(): what can get no gradient any more waits for none, and keeps nothing."""
    debugger = debugger_for(tmp_path)
    layer = nn.Linear(2, 2)
    for _ in range(50):
        debugger.save(layer(torch.ones(1, 2)), "y")  # never a backward pass
    gc.collect()
    debugger.save(layer(torch.ones(1, 2)), "y")
    session = PrecisionDebugger._session
    assert session is not None and session.saving.step is not None
    writer = session.saving.step.writer
    writer.flush()
    assert len(writer._pending) <= 2
    saved = step_of(tmp_path / "dump").keys
    assert len(saved) == 102 and saved[:2] == ["y.0.debug", "y_grad.0.debug"]


def test_a_leaf_that_dies_takes_its_hook_along(tmp_path: Path) -> None:
    def body(debugger: Any) -> None:
        for n in range(3):
            x = torch.full((2,), float(n), requires_grad=True)
            debugger.save(x, "x")
            (x * x).sum().backward()
            del x

    data = save(tmp_path, body).data
    assert [data[f"x_grad.{n}.debug"]["Max"] for n in range(3)] == [0.0, 2.0, 4.0]


def test_order_with_many_outstanding_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is final overtakes what waits in the file; in the end the order is that of the calls."""
    monkeypatch.setattr("msprobe.writer.step_writer._MAX_HELD", 2000)
    debugger = debugger_for(tmp_path)
    session = PrecisionDebugger._session
    assert session is not None
    kept = []
    for n in range(40):
        y = torch.ones(2, requires_grad=True) * n
        kept.append(y)
        debugger.save(y, "y")
        if n % 8 == 0:
            assert session.saving.step is not None
            session.saving.step.writer.flush()
    sum(y.sum() for y in kept[:30]).backward()
    debugger.step()
    data = step_of(tmp_path / "dump").data
    assert list(data) == [key for n in range(40) for key in (f"y.{n}.debug", f"y_grad.{n}.debug")]
    assert [data[f"y_grad.{n}.debug"] is not None for n in range(40)] == [True] * 30 + [False] * 10
    assert [data[f"y.{n}.debug"]["Max"] for n in range(40)] == [float(n) for n in range(40)]
