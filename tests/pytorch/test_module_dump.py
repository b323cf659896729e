"""module_dump and module_dump_end: one module as a whole, and API data around it."""

from __future__ import annotations

import copy
import logging
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from against_golden import sample_differences
from capturing import Run, configured, environment, golden

import warm_python
from msprobe.errors import UsageError
from msprobe.pytorch import PrecisionDebugger, module_dump, module_dump_end
from msprobe.pytorch.dump.module_dump import single


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "dump")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    hooks = nn.modules.module._global_forward_hooks, nn.modules.module._global_forward_pre_hooks
    yield
    single._region = None
    assert [dict(one) for one in hooks] == [{}, {}]


@pytest.fixture
def told() -> Iterator[list[str]]:
    texts: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    handler = Handler(logging.INFO)
    logging.getLogger("msprobe").addHandler(handler)
    yield texts
    logging.getLogger("msprobe").removeHandler(handler)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU())


class Scaled(nn.Module):
    """Has a parameter of its own, children, and takes keywords."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([2.0, 3.0]))
        self.inner = net()

    def forward(self, x: torch.Tensor, *, shift: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.scale + shift


X = torch.ones(1, 2)


def end(debugger: PrecisionDebugger) -> None:
    debugger.stop()
    debugger.step()


def test_the_sample(tmp_path: Path, run: Run, told: list[str]) -> None:
    """The reference's sample moddump: start() without a model, two calls of the module, API data around it, two steps."""
    debugger = configured(tmp_path, **golden("moddump")["config"])
    model = net()
    for _ in range(2):
        debugger.start()
        z = torch.tanh(X)
        module_dump(model, "MyM")
        o = model(z)
        o = model(o)
        module_dump_end()
        F.softmax(o, -1).sum().backward()
        model(X)
        end(debugger)
    for number in (0, 1):
        theirs, ours = golden("moddump")["steps"][str(number)]["data"], run.step(number).data
        assert list(ours) == list(theirs)
        assert sample_differences(theirs, ours, values=False) == []
        assert run.step(number).construct == {}
    assert sum("(modules 1/1, APIs 5)" in line for line in told) == 2
    frames = run.step().frames("Module.MyM.Sequential.forward.0")
    assert frames[-1].endswith("o = model(z)") or any(frame.endswith("o = model(z)") for frame in frames)


def test_parameters_keywords_and_gradients(tmp_path: Path, run: Run) -> None:
    model = Scaled()
    debugger = configured(tmp_path, level="L1", risk_level="ALL")
    debugger.start()
    module_dump(model, "part")
    x, shift = torch.ones(1, 2, requires_grad=True), torch.zeros(2, requires_grad=True)
    out = model(x, shift=shift)
    module_dump_end()
    out.sum().backward()
    end(debugger)
    data = run.step().data
    assert set(data) == {
        "Module.part.Scaled.forward.0",
        "Module.part.Scaled.backward.0",
        "Module.part.Scaled.parameters_grad.0",
        "Tensor.sum.0.forward",
        "Tensor.sum.0.backward",
    }
    forward = data["Module.part.Scaled.forward.0"]
    assert list(forward) == ["input_args", "input_kwargs", "output", "parameters"]
    assert list(forward["input_kwargs"]) == ["shift"] and list(forward["parameters"]) == ["scale"]
    assert forward["parameters"]["scale"]["Max"] == 3.0 and forward["output"][0]["shape"] == [1, 2]
    assert len(data["Module.part.Scaled.backward.0"]["output"]) == 2
    assert list(data["Module.part.Scaled.parameters_grad.0"]) == ["scale"]


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_with_a_model_at_the_other_levels(tmp_path: Path, run: Run, level: str) -> None:
    """Modules of the model given to start() are silent in between, the module itself has the name it was given."""
    model = nn.Sequential(net(), nn.Linear(2, 2))
    debugger = configured(tmp_path, level=level, risk_level="ALL")
    debugger.start(model)
    model[1](X)
    module_dump(model[0], "mine")
    o = model(X)
    torch.tanh(o)
    module_dump_end()
    model[0](X)
    end(debugger)
    modules = [name for name in run.step().forward() if name.startswith("Module.")]
    assert modules == [
        "Module.1.Linear.forward.0",
        "Module.mine.Sequential.forward.0",
        "Module.0.0.Linear.forward.0",
        "Module.0.1.ReLU.forward.0",
        "Module.0.Sequential.forward.0",
    ]
    apis = [name for name in run.step().forward() if not name.startswith("Module.")]
    assert apis == ([] if level == "L0" else [f"Functional.{name}.forward" for name in ("linear.0", "linear.1", "relu.0")])
    construct = run.step().construct
    assert construct["Module.mine.Sequential.forward.0"] is None
    assert construct["Module.0.0.Linear.forward.0"] == "Module.0.Sequential.forward.0"


def test_inside_of_a_module_that_is_recorded(tmp_path: Path, run: Run) -> None:
    """Class-level use: the calls stand in a forward in another file, inside a module that is open."""

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = net()
            self.last = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            module_dump(self.part, "part")
            x = self.part(x)
            module_dump_end()
            return self.last(x)

    model = nn.Sequential(Outer())
    debugger = configured(tmp_path, level="mix", risk_level="ALL")
    debugger.start(model)
    model(X).sum().backward()
    end(debugger)
    step = run.step()
    forward = list(step.forward())
    assert forward == [
        "Module.part.Sequential.forward.0",
        "Functional.linear.0.forward",
        "Module.0.last.Linear.forward.0",
        "Module.0.Outer.forward.0",
        "Tensor.sum.0.forward",
    ]
    assert step.construct["Module.part.Sequential.forward.0"] == "Module.0.Outer.forward.0"
    assert step.data["Module.0.Outer.forward.0"]["output"][0]["shape"] == [1, 2]


def test_start_and_stop_inside_a_forward(tmp_path: Path) -> None:
    """PrecisionDebugger.start() in the file that defines the model, several times a step, without step()."""
    (tmp_path / "model.py").write_text(
        """
import torch, torch.nn as nn, torch.nn.functional as F
from msprobe.pytorch import PrecisionDebugger, module_dump, module_dump_end
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(8, 4), nn.Linear(4, 2)
    def forward(self, x):
        PrecisionDebugger.start()
        x = self.linear_1(x)
        module_dump(self.linear_2, "second")
        x = self.linear_2(x)
        module_dump_end()
        PrecisionDebugger.stop()
        return F.relu(x)
"""
    )
    program = """
import torch
from msprobe.pytorch import PrecisionDebugger
debugger = PrecisionDebugger(dump_path="dump")
from model import Net
net = Net()
for _ in range(2):
    net(torch.randn(10, 8)).sum().backward()
"""
    (tmp_path / "train.py").write_text(program)
    done = subprocess.run(
        [*warm_python.command(), "train.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    step = Run(tmp_path / "dump").step()
    assert list(step.forward()) == [
        "Functional.linear.0.forward",
        "Module.second.Linear.forward.0",
        "Functional.linear.1.forward",
        "Module.second.Linear.forward.1",
    ]
    assert "Module.second.Linear.backward.1" in step.names and "Module.second.Linear.parameters_grad.1" in step.names


def test_the_module_carries_nothing(tmp_path: Path, run: Run) -> None:
    """Copies and pickles are as ever, a copy is not recorded, and a second module of the class neither."""
    model, other = net(), net()
    before = dict(vars(model))
    debugger = configured(tmp_path)
    debugger.start()
    module_dump(model, "m")
    assert dict(vars(model)) == before and not model._forward_hooks
    copy.deepcopy(model)(X)
    pickle.loads(pickle.dumps(model))(X)
    other(X)
    module_dump_end()
    end(debugger)
    assert run.step().names == []


def test_results_are_the_same_bits(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    encoder = nn.TransformerEncoder(layer, 2).eval()
    x, mask = torch.randn(2, 4, 8), torch.tensor([[False, False, True, True], [False] * 4])
    with torch.no_grad():
        plain = encoder(x, src_key_padding_mask=mask)
    debugger = configured(tmp_path)
    debugger.start()
    module_dump(encoder.layers[0].linear1, "inside")
    with torch.no_grad():
        watched = encoder(x, src_key_padding_mask=mask)
    module_dump_end()
    end(debugger)
    assert torch.equal(plain, watched)


def test_a_fast_path_module_itself(tmp_path: Path, run: Run) -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    debugger = configured(tmp_path)
    debugger.start()
    module_dump(encoder, "encoder")
    with torch.no_grad():
        encoder(src=torch.randn(2, 4, 8))
    module_dump_end()
    end(debugger)
    entry = run.step().data["Module.encoder.TransformerEncoder.forward.0"]
    assert list(entry["input_kwargs"]) == ["src"]


def test_a_region_that_nobody_ends(tmp_path: Path, run: Run, told: list[str]) -> None:
    first, second = net(), nn.Linear(2, 2)
    debugger = configured(tmp_path, risk_level="ALL")
    debugger.start()
    module_dump(first, "first")
    first(X)
    module_dump(second, "second")
    first(X)
    second(X)
    debugger.stop()
    debugger.start()
    first(X)
    module_dump_end()
    second(X)
    end(debugger)
    assert list(run.step().forward()) == [
        "Module.first.Sequential.forward.0",
        "Module.second.Linear.forward.0",
        "Functional.linear.0.forward",
        "Functional.relu.0.forward",
        "Functional.linear.1.forward",
    ]
    assert sum("no module_dump_end" in line for line in told) == 1


def test_the_same_module_twice(tmp_path: Path, run: Run) -> None:
    model = net()
    debugger = configured(tmp_path)
    debugger.start()
    for _ in range(2):
        module_dump(model, "m")
        model(X)
        module_dump_end()
        module_dump_end()
    module_dump(model, dump_name="n")
    model(X)
    module_dump_end()
    end(debugger)
    assert list(run.step().forward()) == [f"Module.{name}.Sequential.forward.{n}" for name, n in (("m", 0), ("m", 1), ("n", 0))]


def test_an_exception_in_the_module(tmp_path: Path, run: Run) -> None:
    model = net()
    debugger = configured(tmp_path, risk_level="ALL")
    debugger.start()
    module_dump(model, "m")
    with pytest.raises(RuntimeError):
        model(torch.ones(1, 3))
    model(X)
    module_dump_end()
    torch.tanh(X)
    end(debugger)
    assert list(run.step().forward()) == ["Module.m.Sequential.forward.0", "Module.m.Sequential.forward.1", "Torch.tanh.0.forward"]
    assert run.step().data["Module.m.Sequential.forward.0"]["output"] == [None]


def test_functions_of_the_user_and_threads_are_silent_too(tmp_path: Path, run: Run) -> None:
    from msprobe.pytorch import custom_api

    here = sys.modules[__name__]
    debugger = configured(tmp_path, risk_level="ALL")
    debugger.register_custom_api(here, "net")
    model = nn.Linear(2, 2)
    debugger.start()
    module_dump(model, "m")
    here.net()
    threads = [threading.Thread(target=torch.tanh, args=(X,)) for _ in range(2)]
    threads[0].start()
    threads[0].join()
    module_dump_end()
    threads[1].start()
    threads[1].join()
    debugger.restore_custom_api(here, "net")
    end(debugger)
    custom_api._registered.clear()
    assert run.step().names == ["Torch.tanh.0.forward"]


@pytest.mark.filterwarnings("error")
def test_a_compiled_module(tmp_path: Path, run: Run) -> None:
    model = torch.compile(net(), backend="eager")
    debugger = configured(tmp_path)
    debugger.start()
    module_dump(model, "m")
    model(X)
    module_dump_end()
    end(debugger)
    assert run.step().names == ["Module.m.Sequential.forward.0"]
    assert not model._orig_mod._forward_hooks and not model._orig_mod._forward_pre_hooks


def test_a_scripted_module(tmp_path: Path, run: Run) -> None:
    model = torch.jit.script(net())
    debugger = configured(tmp_path)
    debugger.start()
    module_dump(model, "m")
    model(X)
    module_dump_end()
    end(debugger)
    assert run.step().names == ["Module.m.RecursiveScriptModule.forward.0"]


def test_tensor_files(tmp_path: Path, run: Run) -> None:
    model = Scaled()
    debugger = configured(tmp_path, task="tensor")
    debugger.start()
    module_dump(model, "m")
    model(X, shift=torch.zeros(2))
    module_dump_end()
    end(debugger)
    names = {path.name.removeprefix("Module.m.Scaled.forward.0.") for path in (run.step().directory / "dump_tensor_data").iterdir()}
    assert names == {"input.0.pt", "kwargs.shift.pt", "output.0.pt", "parameters.scale.pt"}


def test_while_recording_is_off(tmp_path: Path, run: Run) -> None:
    model = net()
    debugger = configured(tmp_path, step=[1])
    module_dump(model, "m")
    for _ in range(3):
        debugger.start()
        module_dump(model, "m")
        model(X)
        module_dump_end()
        end(debugger)
    module_dump_end()
    assert run.steps == [1] and run.step(1).names == ["Module.m.Sequential.forward.0"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((3, "x"), "module is int; allowed: a torch.nn.Module"),
        ((nn.ReLU, "x"), "module is type"),
        (([nn.ReLU()], "x"), "module is list"),
        ((nn.ReLU(), 3), "module_name is 3; allowed: text"),
        ((nn.ReLU(), ""), "module_name is ''"),
        ((nn.ReLU(), None), "module_name is None"),
        ((nn.ReLU(),), "module_name is missing"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: tuple[Any, ...], text: str) -> None:
    configured(tmp_path)
    with pytest.raises(UsageError) as caught:
        module_dump(*arguments)
    assert text in str(caught.value) and str(caught.value).startswith("module_dump(module, module_name): ")


def test_without_a_debugger() -> None:
    for call in (lambda: module_dump(nn.ReLU(), "m"), module_dump_end):
        with pytest.raises(UsageError, match="no PrecisionDebugger yet"):
            call()
