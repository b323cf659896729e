"""Gradients are recorded by C in the common case and by Python in every other: both write the same files, whatever the program."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from capturing import Run, configured, forget_debugger, without_cost
from nets import NETS, seed, train
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe.pytorch import PrecisionDebugger, torch_internals
from msprobe.pytorch.dump import call_gradients, common_case, common_gradients, graph_pass, step_record
from msprobe.writer import flush_all
from msprobe.writer.appended_lines import AppendedLines

pytestmark = pytest.mark.skipif(common_case.hot is None, reason="there was no compiler when msprobe was installed")

Program = Callable[[PrecisionDebugger], None]


def written(root: Path) -> dict[str, bytes]:
    flush_all()
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file() and path.name != "meta.json"
    }


def differing(program: Program, directory: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any, **config: Any) -> list[str]:
    """What is not the same in the files and closing lines of both; also sees to it that both ran."""
    found = []
    used: list[bool] = []
    # Lines about late calls are on the disk at once, not half a second later.
    monkeypatch.setattr(AppendedLines, "add", lambda lines, line: lines._append(f"{line}\n"))
    is_common = common_case.is_common
    monkeypatch.setattr(step_record, "is_common", lambda step: used.append(is_common(step)) or used[-1])
    for hot in (common_case.hot, None):
        monkeypatch.setattr(common_case, "hot", hot)
        place = directory / ("c" if hot else "python")
        place.mkdir()
        seed()
        capfd.readouterr()
        program(configured(place, risk_level="ALL", **config))
        assert set(used) == {hot is not None}
        used.clear()
        forget_debugger()
        gc.collect()
        lines = [without_cost(line[26:]) for line in capfd.readouterr().err.splitlines() if "[step " in line]
        found.append({**written(place / "dump"), "closing lines": "\n".join(lines).replace(str(place), "")})
    one, other = found
    assert any(name.endswith("dump.json") for name in one)
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


@pytest.fixture(autouse=True)
def no_random_memory() -> Iterator[None]:
    """`torch.empty` gives the same in both runs."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def recording(debugger: PrecisionDebugger, *modules: nn.Module) -> Iterator[None]:
    """One step in which calls of these modules are seen."""
    debugger.start(nn.Sequential(*modules))
    try:
        yield
    finally:
        debugger.stop()
        debugger.step()


@pytest.mark.parametrize("level", [pytest.param("L0", marks=pytest.mark.slow), "mix"])
@pytest.mark.parametrize("name", NETS)
def test_nets(name: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    def program(debugger: PrecisionDebugger) -> None:
        def stop() -> None:
            debugger.stop()
            debugger.step()

        train(NETS[name], 0.2, debugger.start, stop, steps=1)

    assert differing(program, tmp_path, monkeypatch, capfd, level=level) == []


# --- what no net does -----------------------------------------------------------------------------------------------------------------
def leaf(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, requires_grad=True)


class Module(nn.Module):
    """A module whose forward is a function."""

    def __init__(self, forward: Callable[..., Any], *parameters: nn.Parameter) -> None:
        super().__init__()
        self._forward = forward
        for number, parameter in enumerate(parameters):
            self.register_parameter(f"p{number}", parameter)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._forward(*args, **kwargs)


class Doubled(torch.autograd.Function):
    """Its backward changes the gradient in place."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.mul_(2)


def several_passes(debugger: PrecisionDebugger) -> None:
    """Also one that only reaches a part, one after stop(), and late ones over a graph that fired and one that did not."""
    model, x = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)), torch.ones(3, 4, 2, requires_grad=True)
    debugger.start(model)
    loss, other = model(x).sum(), model(x)
    loss.backward(retain_graph=True)
    loss.backward(torch.tensor(float("nan")), retain_graph=True)
    torch.autograd.grad(loss, x, retain_graph=True)
    debugger.stop()
    loss.backward(retain_graph=True)
    debugger.step()
    for _ in range(2):
        with recording(debugger, *model):
            loss.backward(retain_graph=True)
            other.sum().backward(retain_graph=True)
            model(x).sum().backward()


def hooks_that_raise(debugger: PrecisionDebugger) -> None:
    """A backward pass that the user's own hook ends half way, twice, and one that comes to its end."""

    def fail(*_: Any) -> None:
        raise ValueError("mine")

    model, x = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)), torch.ones(3, 4, 2, requires_grad=True)
    with recording(debugger, *model):
        first = model[0](x)
        assert first.grad_fn is not None
        handle = first.grad_fn.register_hook(fail)
        loss = model[2](model[1](first)).sum()
        for _ in range(2):
            with pytest.raises(ValueError, match="mine"):
                loss.backward(retain_graph=True)
        handle.remove()
        loss.backward()


def shares_of_inputs(debugger: PrecisionDebugger) -> None:
    residual = Module(lambda a, b=None: a + (a * 2).exp() + (0 if b is None else a * b), nn.Parameter(torch.ones(2)))
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0) * 1
    with recording(debugger, residual):
        (residual(x).sum() + residual(y, b=y).sum() + residual(x, y).sum()).backward()


def outputs_made_of_outputs(debugger: PrecisionDebugger) -> None:
    def forward(x: torch.Tensor) -> Any:
        a = x * 3
        return a, a.square(), x, x.exp().log(), [a.detach()]

    chain = Module(forward)
    for x in (leaf(1.0, 1.0), leaf(1.0, 1.0) * 1):
        with recording(debugger, chain):
            first, second, same, _, _ = chain(x)
            (first * 10 + second + same * 5).sum().backward(retain_graph=True)
            second.sum().backward(retain_graph=True)
            (same * 1).sum().backward()


def leaves_given_on(debugger: PrecisionDebugger) -> None:
    same, several = nn.Identity(), Module(lambda x: (x.unbind(), x, x.view(-1)))
    x = leaf(1.0, 2.0)
    with recording(debugger, same, several):
        (same(x) * 2).sum().backward()
        parts, given, seen = several(x)
        (parts[0] + given.sum() + seen.sum()).backward()


def views_changed_in_place(debugger: PrecisionDebugger) -> None:
    linear, nothing, x = nn.Linear(2, 2), nn.Dropout(0.0), torch.ones(2, 3, 2, requires_grad=True)
    changes = (
        lambda y: y.__setitem__((slice(None), 0), 5.0),
        lambda y: y[:, 0].copy_(torch.zeros(2)),
        lambda y: y[0].relu_(),
        lambda y: y.view(-1).add_(1),
    )
    for change in changes:
        inside = Module(lambda y, change=change: (change(y), y)[1])
        with recording(debugger, linear, nothing, inside):
            y = nothing(linear(x))
            change(y)
            inside(y * 2).sum().backward()
            inside(linear(x)).sum().backward()


def a_view_that_may_not_be_changed(debugger: PrecisionDebugger) -> None:
    x, double = torch.ones(4, 2, requires_grad=True), Module(lambda y: y * 2)
    with recording(debugger, double):
        first, _ = (x * 2).unbind()[:2]
        with torch.no_grad():
            first.add_(1)
        with contextlib.suppress(RuntimeError):
            double(first).sum().backward()


def views_that_torch_has_not_looked_at_since(debugger: PrecisionDebugger) -> None:
    def stale(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        base = x * 2
        view = base.view(4)
        base.mul_(3)
        return view, base

    x = torch.ones(2, 2, requires_grad=True)
    gives, uses, changes = Module(stale), Module(lambda view, base: view * 2), Module(lambda view, base: view + base.add_(1).sum())
    hands_on = Module(lambda view, base: (view, base * 2))
    with recording(debugger, gives, uses, changes, hands_on):
        view, base = gives(x)
        (view.sum() + base.sum()).backward()
        for module in (uses, changes):
            module(*stale(x)).sum().backward()
        view, base = hands_on(*stale(x))
        view[0] = 1
        (view.sum() + base.sum()).backward()


def odd_gradients(debugger: PrecisionDebugger) -> None:
    embedding = nn.Embedding(5, 2, sparse=True)
    scale = Module(lambda x: x * 1, nn.Parameter(torch.ones(2), requires_grad=False), nn.Parameter(torch.ones(1)))
    with recording(debugger, embedding, scale):
        (scale(embedding(torch.tensor([1, 1, 2]))) * float("inf")).sum().backward()
        (torch.ones(2, dtype=torch.complex64, requires_grad=True) * 2j).abs().sum().backward()
        torch.ones(0, 3, requires_grad=True).sum().backward()
        (leaf(1.0) * leaf(2.0).double()).expand(3, 1).transpose(0, 1).sum().backward()


def own_functions(debugger: PrecisionDebugger) -> None:
    tanh, own, x = nn.Tanh(), Module(Doubled.apply), leaf(2.0, 3.0)
    with recording(debugger, tanh, own):
        (own(tanh(leaf(0.0))) * 3).backward()
        (slope,) = torch.autograd.grad(tanh(tanh(x)).pow(3).sum(), x, create_graph=True)
        (slope.square().sum() + tanh(slope).sum()).backward()


def checkpoints(debugger: PrecisionDebugger) -> None:
    block, x = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)), torch.ones(3, 2, requires_grad=True)
    for reentrant in (True, False):
        with recording(debugger, block):
            checkpoint(block, checkpoint(block, x, use_reentrant=reentrant), use_reentrant=reentrant).sum().backward()


def one_weight_under_autocast(debugger: PrecisionDebugger) -> None:
    model, x = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), torch.ones(2, 3, 2, requires_grad=True)
    with recording(debugger, model):
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.linear(model(model(x)), model[0].weight).sum()
        loss.backward()
        with torch.no_grad():
            model(x)


def other_threads(debugger: PrecisionDebugger) -> None:
    model, x = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), torch.ones(2, 2, requires_grad=True)
    with recording(debugger, *model):
        loss = model(x).sum()
        for target in (lambda: loss.backward(retain_graph=True), lambda: model(x).sum().backward(), loss.backward):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()


def shared_parameters(debugger: PrecisionDebugger) -> None:
    weight = nn.Parameter(torch.ones(2))
    one, other = Module(lambda x: x * weight, weight, nn.Parameter(torch.ones(1))), Module(lambda x: x + weight, weight)
    one.register_parameter("none", None)
    for _ in range(2):
        with recording(debugger, one, other):
            other(one(torch.ones(2))).sum().backward()
            (other(torch.ones(2)).sum() + one(torch.ones(2)).sum()).backward()


def gradients_taken_away(debugger: PrecisionDebugger) -> None:
    """By hooks that run after ours, and before it."""
    model = nn.Sequential(nn.Linear(2, 2))

    def take(parameter: torch.Tensor) -> None:
        parameter.grad = None

    handles = [parameter.register_post_accumulate_grad_hook(take) for parameter in model.parameters()]
    for early in (False, True):
        with recording(debugger, *model):
            loss = model(torch.ones(1, 2)).sum()
            hooks = model[0].weight._post_accumulate_grad_hooks
            if early and "msprobe" in hooks:
                hooks["msprobe"] = hooks.pop("msprobe")
            loss.backward()
    assert len(handles) == 2


def passes_inside_of_others(debugger: PrecisionDebugger) -> None:
    """A hook begins a pass, in which it begins another, which an error ends."""
    x, depth = torch.ones(3, requires_grad=True), []

    def hook(_: torch.Tensor) -> None:
        depth.append(1)
        if len(depth) == 3:
            raise ValueError("mine")
        if len(depth) < 3:
            with contextlib.suppress(ValueError):
                torch.autograd.grad(between[0], x, torch.ones(3), retain_graph=True)

    def forward(x: torch.Tensor) -> torch.Tensor:
        between[:] = [x * 2]
        between[0].register_hook(hook)
        return between[0].sin() * x

    between: list[torch.Tensor] = []
    module = Module(forward)
    with recording(debugger, module):
        module(x).sum().backward(retain_graph=True)
        module(x).sum().backward()


def nodes_of_other_threads(debugger: PrecisionDebugger) -> None:
    """Beside what leads to the input, in its place, and as the output."""
    x = torch.ones(3, requires_grad=True)

    def in_thread(work: Callable[[], torch.Tensor]) -> torch.Tensor:
        made: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: made.append(work()))
        thread.start()
        thread.join()
        return made[0]

    def long(x: torch.Tensor) -> torch.Tensor:
        for _ in range(30):
            x = x * 1
        return x

    hidden = long(x)
    given_on = Module(lambda x: (x * 2 + hidden, hidden, x))
    for helped in (lambda x: in_thread(lambda: long(x)) * 2, lambda x: in_thread(lambda: long(x))):
        module = Module(helped)
        with recording(debugger, given_on, module):
            sum(part.sum() for part in in_thread(lambda: given_on(x))).backward(retain_graph=True)
            in_thread(lambda module=module: module(x)).sum().backward()
            module(x).sum().backward()


PROGRAMS: tuple[Program, ...] = (
    several_passes,
    hooks_that_raise,
    shares_of_inputs,
    outputs_made_of_outputs,
    leaves_given_on,
    views_changed_in_place,
    a_view_that_may_not_be_changed,
    views_that_torch_has_not_looked_at_since,
    odd_gradients,
    own_functions,
    checkpoints,
    one_weight_under_autocast,
    other_threads,
    shared_parameters,
    gradients_taken_away,
    passes_inside_of_others,
    nodes_of_other_threads,
)


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_odd_cases(program: Program, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    assert differing(program, tmp_path, monkeypatch, capfd, level=level, summary_mode="md5" if level == "L1" else "statistics") == []


@pytest.mark.parametrize("helper", ["total", "part_from_outside", "in_dtype"])
def test_an_error_in_what_is_rare_is_told_alike(helper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    raised: list[bool] = []

    def fail(*_: Any) -> None:
        raised.append(common_case.hot is not None)
        raise ValueError("planted")

    def program(debugger: PrecisionDebugger) -> None:
        shares_of_inputs(debugger)
        outputs_made_of_outputs(debugger)
        one_weight_under_autocast(debugger)

    helpers = [call_gradients.total, graph_pass.part_from_outside, graph_pass.in_dtype]
    for room in (call_gradients, graph_pass):
        if hasattr(room, helper):
            monkeypatch.setattr(room, helper, fail)
    common_case.hot.set_helpers(*(fail if function.__name__ == helper else function for function in helpers), OrderedDict, lambda: 1)
    hot = common_case.hot
    try:
        assert differing(program, tmp_path, monkeypatch, capfd, level="mix") == []
    finally:
        hot.set_helpers(*helpers, OrderedDict, torch_internals.dispatch_modes)
    assert set(raised) == {True, False}


def test_hooks_of_the_user_on_nodes_are_kept_as_torch_keeps_them(tmp_path: Path) -> None:
    """Ours stand beside them, in any order, and go by themselves."""
    keeper = vars(torch.autograd.function._HookMixin)["_register_hook"]
    model, x = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), torch.ones(3, 4, 2, requires_grad=True)
    debugger = configured(tmp_path, level="mix")
    seen: list[str] = []

    def seeing(what: str) -> Callable[..., None]:
        return lambda *_: seen.append(what)

    debugger.start(model)
    hidden = model[0](x)
    assert hidden.grad_fn is not None
    handles = [hidden.grad_fn.register_hook(seeing("after")), hidden.grad_fn.register_prehook(seeing("before"))]
    assert all(type(handle) is torch.utils.hooks.RemovableHandle for handle in handles)
    loss = model[1](hidden).sum()
    loss.backward(retain_graph=True)
    handles[0].remove()
    loss.backward(retain_graph=True)
    debugger.stop()
    assert vars(torch.autograd.function._HookMixin)["_register_hook"] is keeper
    debugger.step()
    loss.backward()
    assert seen == ["before", "after", "before", "before"]
    names = Run(tmp_path / "dump").step().names
    assert {"Module.0.Linear.backward.0", "Functional.linear.0.backward", "Torch.tanh.0.backward.pass1"} <= set(names)


def test_what_fired_leaves_nothing_on_the_graph_and_what_did_not_goes_with_it(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Identity()), torch.ones(3, 4, 2, requires_grad=True)
    weights = [weakref.ref(model[0].weight)]
    debugger = configured(tmp_path, level="mix")
    watching: list[weakref.ref[Any]] = []
    losses = []
    for fires in (True, False):
        debugger.start(model)
        assert PrecisionDebugger._session is not None and PrecisionDebugger._session.step is not None
        step = PrecisionDebugger._session.step
        assert type(step.observers) is common_gradients.COMMON[0]
        watching += [weakref.ref(step.observers), weakref.ref(step.parameter_gradients)]
        del step
        losses.append(model[2](model[1](model[0](model[2](x)))).sum())
        if fires:
            losses[0].backward(retain_graph=True)
        debugger.stop()
        debugger.step()
        assert model[0].weight._post_accumulate_grad_hooks is None
    flush_all()
    gc.collect()
    fired, parameters, unfired, others = watching
    assert fired() is None and parameters() is None
    assert unfired() is not None
    losses.clear()
    gc.collect()
    assert unfired() is None and others() is None
    del model
    gc.collect()
    forget_debugger()
    gc.collect()
    assert weights[0]() is None
