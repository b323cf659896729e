"""After stop() and step() torch, the modules and the process are exactly as they were; a copy of the model is a plain copy."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from capturing import Run, configured, environment, no_default_device
from torch import nn
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer
from torch.overrides import TorchFunctionMode

from msprobe.pytorch.dump import common_case

LEVELS = ("L0", "L1", "mix")
TASKS = ("statistics", "tensor")


class Model(nn.Module):
    """A little of everything hooks could be left on."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True))
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True), 1)
        self.head = nn.Linear(6, 2)
        self.activation = F.gelu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.encoder(self.body(x).unsqueeze(1)).squeeze(1)
        return self.head(self.activation(hidden) + 1)


def run(model: nn.Module) -> torch.Tensor:
    loss = model(torch.randn(3, 4)).square().mean()
    loss.backward()
    return loss


def _identities(owner: Any) -> list[tuple[str, int]]:
    return [(name, id(value)) for name, value in vars(owner).items()]


def model_state(model: nn.Module) -> dict[str, Any]:
    """`vars` of every module, hook dictionaries with their contents, and the hooks of every parameter."""
    state: dict[str, Any] = {}
    for name, module in model.named_modules():
        state[f"{name} vars"] = _identities(module)
        state[f"{name} class"] = type(module)
        for key, value in vars(module).items():
            if isinstance(value, dict | set):
                state[f"{name} {key}"] = (type(value), list(value.items()) if isinstance(value, dict) else sorted(value))
    for name, parameter in model.named_parameters():
        state[f"parameter {name}"] = (
            id(parameter),
            id(parameter._post_accumulate_grad_hooks),
            id(parameter._backward_hooks),
            _identities(parameter),
        )
    return state


def _mode_stack() -> list[int]:
    return [id(torch._C._get_function_stack_at(i)) for i in range(torch._C._len_torch_function_stack())]


def torch_state() -> dict[str, Any]:
    """Everything global that a tool for torch might change."""
    registries = {key: value for key, value in vars(torch_module).items() if key.startswith("_global_") and isinstance(value, dict)}
    return {
        "functional": _identities(F),
        "torch": _identities(torch),
        "Tensor": _identities(torch.Tensor),
        "Parameter": _identities(nn.Parameter),
        "Module": _identities(nn.Module),
        "TensorBase": [(name, id(value)) for name, value in vars(torch._C.TensorBase).items()],
        "VF": _identities(torch._VF),
        "linalg": _identities(torch.linalg),
        "autograd": _identities(torch.autograd),
        "init": _identities(nn.init),
        "distributed": _identities(torch.distributed),
        "optimizer hooks": [list(vars(torch_optimizer)[name]) for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")],
        "global module hooks": {key: list(value.items()) for key, value in registries.items()},
        "full backward hook kind": torch_module._global_is_full_backward_hook,
        "thread": _identities(threading.Thread),
        "excepthooks": (id(threading.excepthook), id(sys.excepthook)),
        "engine": id(torch.autograd._engine_run_backward),
        "hooks of nodes": id(vars(torch.autograd.function._HookMixin)["_register_hook"]),
        "modes": _mode_stack(),
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
        "device": torch.get_default_device(),
        "trace": (sys.gettrace(), sys.getprofile(), sys.displayhook),
    }


@pytest.fixture(autouse=True)
def mode_stack_put_back() -> Iterator[None]:
    """A mode left on by one failing test must not fail the others."""
    before = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
    yield
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()
    for mode in before:
        torch._C._push_on_torch_function_stack(mode)


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [key for key in {**before, **after} if before.get(key) != after.get(key)]


@pytest.fixture
def built() -> Iterator[Model]:
    torch.manual_seed(3)
    model = Model()
    run(model)  # whatever torch sets up at the first use is there now
    model.zero_grad()
    yield model


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("level", LEVELS)
def test_stop_and_step_leave_everything_as_it_was(built: Model, level: str, task: str, tmp_path: Path) -> None:
    debugger = configured(tmp_path, level=level, task=task, risk_level="ALL")
    optimizer = torch.optim.SGD(built.parameters(), lr=0.1)
    model_before, torch_before = model_state(built), torch_state()
    for _ in range(2):
        debugger.start(built)
        run(built)
        optimizer.step()
        debugger.stop()
        assert changes(torch_before, torch_state()) == []
        built_after_stop = model_state(built)
        debugger.step()
        built.zero_grad()
        assert changes(torch_before, torch_state()) == []
        assert changes(model_before, model_state(built)) == []
        # Between stop and step only observers of gradients may be left, and those stand on parameters alone.
        assert [key for key in changes(model_before, built_after_stop) if not key.startswith("parameter ")] == []


@pytest.mark.parametrize("level", LEVELS)
def test_step_without_stop_and_stop_while_modules_run_leave_everything_as_it_was(built: Model, level: str, tmp_path: Path) -> None:
    debugger = configured(tmp_path, level=level)
    model_before, torch_before = model_state(built), torch_state()
    debugger.start(built)
    run(built)
    debugger.step()
    assert changes(torch_before, torch_state()) == []
    handle = built.body[2].register_forward_hook(lambda *_: debugger.stop())
    debugger.start(built)
    run(built)
    handle.remove()
    debugger.step()
    built.zero_grad()
    assert changes(torch_before, torch_state()) == []
    assert changes(model_before, model_state(built)) == []


@pytest.mark.parametrize("level", LEVELS)
def test_an_exception_in_the_model_leaves_everything_as_it_was(built: Model, level: str, tmp_path: Path) -> None:
    class Stop(BaseException):
        pass

    debugger = configured(tmp_path, level=level)
    model_before, torch_before = model_state(built), torch_state()
    for error in (ValueError, KeyboardInterrupt, Stop):

        def fail(*_: Any, error: type[BaseException] = error) -> None:
            raise error

        handle = built.encoder.layers[0].linear1.register_forward_pre_hook(fail)
        debugger.start(built)
        with pytest.raises(error):
            run(built)
        handle.remove()
        run(built)
        debugger.stop()
        debugger.step()
        built.zero_grad()
        assert changes(torch_before, torch_state()) == []
        assert changes(model_before, model_state(built)) == []


@pytest.mark.parametrize("level", LEVELS)
def test_functions_of_torch_are_the_originals_all_the_time(built: Model, level: str, tmp_path: Path) -> None:
    relu, gelu, add, forward = F.relu, F.gelu, torch.add, built.head.forward.__func__
    functions = _identities(F), _identities(torch)
    debugger = configured(tmp_path, level=level)
    assert F.relu is relu
    debugger.start(built)
    assert F.relu is relu and torch.add is add and (_identities(F), _identities(torch)) == functions
    run(built)
    assert built.activation is gelu is F.gelu and "forward" not in vars(built.head) and built.head.forward.__func__ is forward
    debugger.stop()
    assert F.relu is relu
    debugger.step()
    assert F.relu is relu and (_identities(F), _identities(torch)) == functions


@pytest.mark.parametrize("level", LEVELS)
def test_a_forward_exchanged_while_recording_is_used(built: Model, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    debugger = configured(tmp_path, level=level)
    debugger.start(built)
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x * 0)
    assert torch.equal(built.body(torch.randn(3, 4)), torch.zeros(3, 6))


def _pickled(model: nn.Module) -> nn.Module:
    return pickle.loads(pickle.dumps(model))


def _saved(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES: dict[str, Callable[[nn.Module], nn.Module]] = {"deepcopy": copy.deepcopy, "pickle": _pickled, "torch.save": _saved}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", COPIES)
def test_a_copy_made_while_recording_computes_on_its_own_and_is_not_recorded(built: Model, kind: str, level: str, tmp_path: Path) -> None:
    debugger = configured(tmp_path, level=level)
    debugger.start(built)
    run(built)
    twin = COPIES[kind](built)
    x = torch.randn(3, 4)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(2)
    doubled = copy.deepcopy(built)
    debugger.stop()
    with torch.no_grad():
        for parameter in doubled.parameters():
            parameter.mul_(2)
    expected = doubled(x)
    debugger.start(built)
    assert torch.equal(twin(x), expected)
    twin(x).sum().backward()
    debugger.stop()
    debugger.step()
    assert all(p.grad is not None for p in twin.parameters())
    modules = {name.rpartition(".")[2] for name in Run(tmp_path / "dump").step().names if name.startswith("Module.")}
    assert modules == ({"0"} if level != "L1" else set()), "calls of the copy stand under the original's names"


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_shallow_copy_is_not_recorded_under_the_original_names(level: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    debugger = configured(tmp_path, level=level)
    debugger.start(model)
    twin = copy.copy(model[0])
    model(torch.randn(1, 4))
    twin(torch.randn(1, 4))
    debugger.stop()
    debugger.step()
    assert [name for name in Run(tmp_path / "dump").step().names if name.startswith("Module.")] == ["Module.0.Linear.forward.0"]


def test_a_model_pickled_while_recording_loads_without_msprobe(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    debugger = configured(tmp_path, level="mix")
    debugger.start(model)
    model(torch.randn(1, 4))
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    code = (
        "import pickle, sys, torch; model = pickle.load(open(sys.argv[1], 'rb')); print(model(torch.ones(1, 4)).shape[1]);"
        "assert not any(name.startswith('msprobe') for name in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model.pkl")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "4"), done.stderr


ORDERS = ["enter start leave stop", "enter start stop leave", "start enter stop leave", "start enter leave stop"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("order", ORDERS)
def test_a_device_context_and_the_window_in_any_order(order: str, level: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    debugger = configured(tmp_path, level=level)
    context, before, inside = torch.device("meta"), torch_state(), False
    for action in order.split():
        if action == "enter":
            context.__enter__()
        elif action == "leave":
            context.__exit__(None, None, None)
        elif action == "start":
            debugger.start(model)
        else:
            debugger.stop()
        inside = action == "enter" or (inside and action != "leave")
        assert torch.empty(1).device.type == ("meta" if inside else "cpu"), action
        assert model(torch.ones(1, 2, device="cpu")).device.type == "cpu"
    debugger.step()
    assert changes(before, torch_state()) == []


@pytest.mark.parametrize("order", ORDERS)
def test_a_function_mode_of_the_user_and_the_window_in_any_order(order: str, tmp_path: Path) -> None:
    class Counting(TorchFunctionMode):
        count = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Counting.count += 1
            return func(*args, **(kwargs or {}))

    debugger, mode, before = configured(tmp_path, level="L1"), Counting(), torch_state()
    expected = 0
    inside = False
    for action in order.split():
        if action == "enter":
            mode.__enter__()
        elif action == "leave":
            mode.__exit__(None, None, None)
        else:
            getattr(debugger, action)()
        inside = action == "enter" or (inside and action != "leave")
        torch.add(torch.ones(1), 1)
        expected += inside
        assert Counting.count == 2 * expected, action
    debugger.step()
    assert changes(before, torch_state()) == []


@pytest.mark.parametrize("in_c", [True, False])
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_function_mode_around_everything_sees_nothing_of_a_step(
    level: str, in_c: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer to a read of a parameter's hooks does not keep ours there either."""

    class Refusing(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(getattr(func, "__name__", ""))
            if seen[-1] in ("__get__", "__set__"):
                raise RuntimeError("no attributes in here")
            return func(*args, **(kwargs or {}))

    def run(debugger: Any) -> tuple[list[str], list[str]]:
        start, stop, step = (getattr(debugger, name) if debugger else lambda *_: None for name in ("start", "stop", "step"))
        model, x = nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2, requires_grad=True)
        seen.clear()
        with Refusing():
            start(model)
            model(x).sum().backward()
            stop()
            step()
        return list(seen), [str(t._post_accumulate_grad_hooks or t._backward_hooks) for t in (*model.parameters(), x)]

    if not in_c:
        monkeypatch.setattr(common_case, "hot", None)
    seen: list[str] = []
    assert run(configured(tmp_path, level=level)) == run(None)


@pytest.mark.parametrize("order", ORDERS)
def test_the_default_device_and_the_window_in_any_order(order: str, tmp_path: Path) -> None:
    """torch keeps a default device at the bottom of the stack of modes, and checks that it is there."""
    debugger, before, inside = configured(tmp_path, level="L1"), _mode_stack(), False
    try:
        for action in order.split():
            if action in ("enter", "leave"):
                torch.set_default_device("meta" if action == "enter" else None)
            else:
                getattr(debugger, action)()
            inside = action == "enter" or (inside and action != "leave")
            assert torch.empty(1).device.type == ("meta" if inside else "cpu"), action
    finally:
        debugger.stop()
        no_default_device()
    assert _mode_stack() == before


@pytest.mark.parametrize("level", LEVELS)
def test_stop_in_another_thread_leaves_everything_as_it_was(built: Model, level: str, tmp_path: Path) -> None:
    debugger = configured(tmp_path, level=level)
    model_before, torch_before = model_state(built), torch_state()
    debugger.start(built)
    run(built)
    other = threading.Thread(target=debugger.stop)
    other.start()
    other.join()
    debugger.step()
    built.zero_grad()
    torch.ones(1) + 1  # the mode of this thread goes at its next call
    assert changes(torch_before, torch_state()) == []
    assert changes(model_before, model_state(built)) == []


@pytest.mark.parametrize("level", LEVELS)
def test_hooks_that_the_user_registers_or_removes_meanwhile_are_the_users(built: Model, level: str, tmp_path: Path) -> None:
    debugger = configured(tmp_path, level=level)
    early = built.head.register_forward_hook(lambda *_: None)
    debugger.start(built)
    run(built)
    late = built.head.register_forward_hook(lambda *_: None, with_kwargs=False)
    kept = built.head.weight.register_post_accumulate_grad_hook(lambda p: None)
    early.remove()
    run(built)
    debugger.stop()
    debugger.step()
    assert list(built.head._forward_hooks) == [late.id]
    assert not built.head._forward_pre_hooks and not built.head._forward_hooks_with_kwargs and not built.head._forward_hooks_always_called
    assert list(built.head.weight._post_accumulate_grad_hooks) == [kept.id]


@pytest.mark.parametrize("level", LEVELS)
def test_no_activation_lives_longer(level: str, tmp_path: Path) -> None:
    """A forward whose result is dropped frees its graph at once, though recording goes on."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 4)))
    debugger = configured(tmp_path, level=level, risk_level="ALL")
    alive: list[weakref.ref[Any]] = []
    handle = model[1][0].register_forward_hook(lambda module, args, output: alive.append(weakref.ref(output)))
    gc.collect()
    gc.disable()
    try:
        debugger.start(model)
        out = (model(torch.randn(3, 4)) * 2).sum()
        assert alive[0]() is not None
        del out
        assert alive[0]() is None, "without a garbage collection"
    finally:
        gc.enable()
        handle.remove()


@pytest.mark.parametrize("level", LEVELS)
def test_what_a_step_held_is_free_some_steps_later(level: str, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    debugger = configured(tmp_path, level=level)
    freed: list[weakref.ref[Any]] = []
    for _ in range(8):
        x = torch.randn(2, 4, requires_grad=True)
        debugger.start(model)
        loss = model(x).sum()
        loss.backward()
        debugger.stop()
        debugger.step()
        freed += [weakref.ref(x), weakref.ref(loss)]
        model.zero_grad()
        del x, loss
    gc.collect()
    assert [reference() for reference in freed] == [None] * len(freed)
