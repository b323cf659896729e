"""Whatever goes wrong in the tool, the training is the plain one; what was lost is counted in the closing line."""

from __future__ import annotations

import inspect
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NoReturn

import pytest
import torch
import torch.nn.functional as F
from capturing import Run, Step, configured, forget_debugger
from nets import Training, differences, train
from torch import nn
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer

from msprobe.pytorch import debugger as debugger_room
from msprobe.pytorch import process, torch_internals
from msprobe.pytorch.dump import (
    backward_window,
    call_gradients,
    common_case,
    common_gradients,
    encoder,
    ended_step,
    gradients,
    graph_call,
    graph_pass,
    graph_walk,
    module_recorder,
    parameter_gradients,
    plain_values,
    recorder,
    step_record,
    tensor_saver,
    unusual,
    window,
)
from msprobe.pytorch.dump.api_dump import api_table, call_form, mode, operators
from msprobe.pytorch.dump.module_dump import hooks, naming
from msprobe.recording import (
    calling_place,
    calls,
    counters,
    meta,
    place,
    saved_nesting,
    selecting,
    selection,
    session,
    stacks,
    step,
    step_of_calls,
    tally,
    unrecorded,
)
from msprobe.recording import plain_values as values_of_all
from msprobe.writer import StepWriter, TensorPool, native_pool
from msprobe.writer.flusher import flusher
from msprobe.writer.native_pool import NativePool

ROOMS: list[ModuleType] = [
    *(debugger_room, process, selecting, backward_window, encoder, gradients, call_gradients, graph_call, graph_pass, graph_walk, place),
    *(
        parameter_gradients,
        plain_values,
        values_of_all,
        calling_place,
        recorder,
        module_recorder,
        step,
        step_of_calls,
        unrecorded,
        tally,
        meta,
        session,
        saved_nesting,
    ),
    *(
        step_record,
        ended_step,
        tensor_saver,
        unusual,
        window,
        api_table,
        call_form,
        mode,
        operators,
        hooks,
        naming,
        calls,
        counters,
        selection,
        stacks,
    ),
]
# What user code calls first: an error inside these is caught inside these, so they cannot be replaced as a whole.
ENTRANCES = {
    "PrecisionDebugger",
    "contained",
    "Recorder.api",
    "Recorder._defer_contained",
    "Recorder._raised_contained",
    "ModuleRecorder.module_before",
    "ModuleRecorder.module_after",
    "Recorder.optimizer_before",
    "Recorder.optimizer_after",
    "ParameterGradients.arrived",
    "ParameterGradients.record",
    "GradientObservers._end",
    "ModuleHooks._global_before",
    "ModuleHooks._global_after",
}
WRITER = [(StepWriter, n) for n in ["__init__", "add", "add_call", "add_stack", "error", "flush", "close"]]
POOL = [(owner, n) for owner in (TensorPool, NativePool) for n in ["submit", "submit_saver", "drain"]]


def functions() -> Iterator[Any]:
    """Every function and method that recording is made of, as (owner, name)."""
    for room in ROOMS:
        for name, value in vars(room).items():
            if getattr(value, "__module__", "") != room.__name__ or name in ENTRANCES or getattr(value, "_is_protocol", False):
                continue
            if isinstance(value, FunctionType):
                yield pytest.param(room, name, id=f"{room.__name__.rpartition('.')[2]}.{name}")
            elif inspect.isclass(value):
                for method, code in vars(value).items():
                    label = f"{name}.{method}"
                    if isinstance(code, FunctionType) and label not in ENTRANCES and (not method.startswith("__") or method == "__init__"):
                        yield pytest.param(value, method, id=label)
    for owner, name in [*WRITER, *POOL]:
        yield pytest.param(owner, name, id=f"{owner.__name__}.{name}")


FUNCTIONS = list(functions())
# An error there is said nowhere, because saying it is what fails, or loses nothing.
UNSAID = {"error", "report", "_late", "is_late", "told"}


class Planted(RuntimeError):
    pass


Plant = tuple[Any, str]


def plant(monkeypatch: pytest.MonkeyPatch, plants: list[Plant], error: type[BaseException] = Planted) -> dict[str, int]:
    """Make functions of the tool raise from now on; gives how often each one did."""
    raised: dict[str, int] = {}
    for owner, name in plants:

        def fail(*args: Any, name: str = name, **kwargs: Any) -> NoReturn:
            raised[name] = raised.get(name, 0) + 1
            raise error(f"planted in {name}")

        monkeypatch.setattr(owner, name, fail)
    return raised


class Everything(nn.Module):
    """Reaches as much of the recording as a small model can."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.frozen, self.act = nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False), nn.ReLU(inplace=True)
        self.again = nn.Sequential(nn.Identity(), self.layer)

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        try:
            torch.matmul(x, x)
        except RuntimeError:
            x = self.act(self.layer(x) - self.frozen(x))
        y = F.softmax(self.again(x.T.mT) * x * scale, dim=-1)
        y = y + 1
        y[:, 0] = 1.0
        return y, y.square()


def everything(dropout: float) -> Training:
    model = nn.Sequential(Everything())

    def forward_backward(_: int) -> torch.Tensor:
        first, second = model[0](torch.randn(3, 4), scale=torch.ones(4, dtype=torch.float64).requires_grad_())
        loss = first.sum() + second.sum() + torch.ops.aten.relu(first).sum() + F.dropout(first, dropout).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        return loss

    return Training(model, torch.optim.SGD([*model[0].layer.parameters()], lr=0.1), forward_backward)


@cache
def plain() -> dict[str, Any]:
    return train(everything, 0.2, lambda model: None, lambda: None, steps=2)


def faulty(
    tmp_path: Path, plants: list[Plant], task: str = "statistics", error: type[Exception] = Planted
) -> tuple[dict[str, Any], dict[str, int]]:
    """Train with a faulty tool; the faults are planted once the debugger exists."""
    debugger = configured(tmp_path, level="mix", task=task, risk_level="ALL")

    def stop() -> None:
        debugger.stop()
        debugger.step()

    with pytest.MonkeyPatch.context() as patch:
        raised = plant(patch, plants, error)
        return train(everything, 0.2, debugger.start, stop, steps=2), raised


@pytest.fixture(autouse=True)
def torch_put_back() -> Iterator[None]:
    """A fault planted in what takes the recording off leaves it on."""
    tensor, run, engine = dict(vars(torch.Tensor)), threading.Thread.run, torch.autograd._engine_run_backward
    registries = [value for value in [*vars(torch_module).values(), *vars(torch_optimizer).values()] if isinstance(value, OrderedDict)]
    before = [dict(registry) for registry in registries]
    yield
    for name in [*vars(torch.Tensor)]:
        if name not in tensor:
            delattr(torch.Tensor, name)
        elif vars(torch.Tensor)[name] is not tensor[name]:
            setattr(torch.Tensor, name, tensor[name])
    threading.Thread.run = run  # type: ignore[method-assign]
    torch.autograd._engine_run_backward = engine
    for registry, content in zip(registries, before, strict=True):
        registry.clear()
        registry.update(content)
    if "torch._dynamo.eval_frame" in sys.modules:
        torch.compiler.set_stance("default")
    for left in torch_internals.modes_of_this_thread(mode.ApiMode):
        torch_internals.remove_mode(left)


WAYS = ["C", "Python"]


@pytest.fixture
def recorded_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the common case is recorded in C or, as where there was no compiler and in all other cases, by Python."""
    if request.param == "Python":
        monkeypatch.setattr(common_case, "hot", None)
        monkeypatch.setattr(native_pool, "_queue_type", None)
    elif common_case.hot is None:
        pytest.skip("there was no compiler when msprobe was installed")
    return str(request.param)


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], set[Plant]]:
    """Which of the functions are called at all while nothing is planted, for each task and each way of recording."""

    @cache
    def found(task: str, by: str) -> set[Plant]:
        forget_debugger()
        debugger = configured(tmp_path_factory.mktemp("called"), level="mix", task=task, risk_level="ALL")
        seen: set[Plant] = set()

        def stop() -> None:
            debugger.stop()
            debugger.step()

        def noting(owner: Any, name: str) -> Any:
            real = getattr(owner, name)

            def call(*args: Any, **kwargs: Any) -> Any:
                seen.add((owner, name))
                return real(*args, **kwargs)

            return call

        with pytest.MonkeyPatch.context() as patch:
            for owner, name in (one.values for one in FUNCTIONS):
                patch.setattr(owner, name, noting(owner, name))
            outcome = train(everything, 0.2, debugger.start, stop, steps=2)
        forget_debugger()
        assert differences(plain(), outcome) == []
        return seen

    return found


@pytest.mark.parametrize(("recorded_by", "least"), [("C", 100), ("Python", 140)], indirect=["recorded_by"])
def test_the_faults_are_many(called: Callable[[str, str], set[Plant]], recorded_by: str, least: int) -> None:
    assert len(called("statistics", recorded_by)) > least
    pool = NativePool if recorded_by == "C" else TensorPool
    assert {name for owner, name in called("tensor", recorded_by) if owner is pool} == {"submit", "drain"}


@pytest.mark.parametrize("recorded_by", WAYS, indirect=True)
@pytest.mark.parametrize(("owner", "name"), FUNCTIONS)
def test_an_error_anywhere_changes_nothing_and_is_told(
    owner: Any, name: str, called: Callable[[str, str], set[Plant]], recorded_by: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = "tensor" if owner in (tensor_saver.TensorSaver, TensorPool, NativePool) else "statistics"
    if (owner, name) not in called(task, recorded_by) and owner is not StepWriter:  # the writer's are called at moments of their own, too
        pytest.skip("this training does not call it")
    capfd.readouterr()
    outcome, raised = faulty(tmp_path, [(owner, name)], task)
    told = capfd.readouterr().err
    assert differences(plain(), outcome) == []
    if raised and name not in UNSAID:
        assert re.search(r"not recorded: [1-9]|\[ERROR\]|\[WARNING\]", told), told
    if name != "__init__" and (owner, name) != (StepWriter, "close"):
        open_still = [writer for writer in flusher().live.values() if str(tmp_path) in str(getattr(writer, "directory", ""))]
        assert open_still == [], "every step that was ended has complete files"
    for path in (tmp_path / "dump").glob("step*/proc*/dump.json"):
        assert Step(path.parent).dump["level"] == "mix"


@pytest.mark.parametrize("recorded_by", WAYS, indirect=True)
@pytest.mark.parametrize("error", [MemoryError, RecursionError, KeyError, AttributeError])
def test_any_kind_of_error_stays_inside(error: type[Exception], recorded_by: str, tmp_path: Path) -> None:
    observers, parameters = common_gradients.COMMON if recorded_by == "C" else common_gradients.IN_PYTHON
    outcome, raised = faulty(tmp_path, [(encoder.Encoder, "output"), (observers, "watch"), (parameters, "watch")], error=error)
    assert differences(plain(), outcome) == []
    assert set(raised) == {"watch", "output"}


@pytest.mark.parametrize("helper", ["_encode_ready", "at_end", "_end", "close"])
@pytest.mark.parametrize("recorded_by", ["C"], indirect=True)
def test_an_error_in_what_gradients_in_c_ask_of_python_stays_inside(
    helper: str, recorded_by: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    observers, parameters = common_gradients.COMMON
    owner: Any = {"_encode_ready": StepWriter, "at_end": observers, "_end": parameters, "close": observers}[helper]
    outcome, raised = faulty(tmp_path, [(owner, helper)])
    assert differences(plain(), outcome) == []
    assert raised
    assert re.search(r"not recorded: [1-9]|\[ERROR\]|\[WARNING\]", capfd.readouterr().err)


@pytest.mark.parametrize("recorded_by", ["Python"], indirect=True)
@pytest.mark.parametrize("first", [(encoder.Encoder, "positional"), (encoder.Encoder, "output"), (StepWriter, "add")], ids=lambda p: p[1])
@pytest.mark.parametrize("reporting", [(StepWriter, "error"), (unrecorded.Unrecorded, "report")], ids=lambda p: p[1])
def test_an_error_in_the_reporting_of_an_error_stays_inside(first: Plant, reporting: Plant, recorded_by: str, tmp_path: Path) -> None:
    outcome, raised = faulty(tmp_path, [first, reporting])
    assert differences(plain(), outcome) == []
    assert len(raised) == 2


class Unhashable:
    """A callable that no table can be asked for."""

    __name__ = "unhashable"

    def __eq__(self, other: object) -> bool:
        return False

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if torch.overrides.has_torch_function_unary(x):
            return torch.overrides.handle_torch_function(self, (x,), x)
        return x * 2


def test_a_function_that_cannot_be_looked_up_is_called(tmp_path: Path) -> None:
    debugger = configured(tmp_path, level="L1")
    debugger.start()
    assert torch.overrides.has_torch_function_unary(torch.ones(1)), "the function below is handed to the mode"
    assert Unhashable()(torch.ones(2)).tolist() == [2.0, 2.0]


def test_ctrl_c_in_our_code_reaches_the_user_and_recording_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common_case, "hot", None)  # what is in C asks the encoder for unusual values only
    debugger = configured(tmp_path, level="mix", risk_level="ALL")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    debugger.start(model)
    for name in ("positional", "output"):
        with pytest.MonkeyPatch.context() as patch:
            plant(patch, [(encoder.Encoder, name)], KeyboardInterrupt)
            with pytest.raises(KeyboardInterrupt):
                model(torch.ones(1, 2))
        torch.relu(torch.ones(1))
    model(torch.ones(1, 2)).sum().backward()
    debugger.stop()
    debugger.step()
    step = Run(tmp_path / "dump").step()
    relu = [name for name in step.data if name.startswith("Torch.relu.")]
    assert [step.data[name]["output"][0]["Max"] for name in relu] == [1.0, 1.0]
    assert [step.construct[name] for name in relu] == [None, None], "the interrupted module is no longer open"
    last = [name for name in step.data if name.startswith("Module.0.Linear.forward")][-1]
    assert step.data[last]["output"][0]["shape"] == [1, 2]
