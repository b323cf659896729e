"""torch.compile with all its options, torch.func, and what else does not run as ordinary Python code."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
from capturing import Run, configured, tensors
from torch._dynamo.utils import counters

from msprobe.pytorch import PrecisionDebugger, debugger

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    torch._dynamo.reset()
    counters.clear()


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    """The log's lines."""
    logger = logging.getLogger("msprobe")
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "msprobe")
    yield lambda level=logging.INFO: [record.getMessage() for record in caplog.records if record.levelno >= level]
    logger.removeHandler(caplog.handler)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(torch.relu(self.fc(x))) + x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.out = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def net() -> Net:
    torch.manual_seed(3)
    return Net()


def train(model: Any, rows: int) -> list[torch.Tensor]:
    """Loss and gradients of one step, as copies."""
    loss = model(torch.ones(rows, 4)).square().sum()
    loss.backward()
    found = [loss.detach().clone()] + [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    return found


def compiles() -> int:
    return int(counters["stats"]["unique_graphs"])


def recorded(directory: Path, model: Any, level: str, sizes: tuple[int, ...]) -> list[Any]:
    """Each size is one step."""
    directory.mkdir(exist_ok=True)
    debugger = configured(directory, level=level, risk_level="ALL")
    for rows in sizes:
        debugger.start(model)
        train(model, rows)
        debugger.stop()
        debugger.step()
    return [Run(directory / "dump").step(number) for number in range(len(sizes))]


OPTIONS: dict[str, dict[str, Any]] = {
    "fullgraph": {"fullgraph": True, "backend": "eager"},
    "dynamic shapes": {"dynamic": True, "backend": "eager"},
    "dynamic shapes, fullgraph": {"dynamic": True, "fullgraph": True, "backend": "aot_eager"},
    "static shapes": {"dynamic": False, "backend": "eager"},
}


@pytest.mark.parametrize(("options", "level"), [*((options, "mix") for options in OPTIONS), ("fullgraph", "L0"), ("dynamic shapes", "L1")])
@pytest.mark.parametrize("how", ["torch.compile(model)", "model.compile()"])
def test_it_is_recorded_as_the_eager_model_and_not_compiled_anew(tmp_path: Path, options: str, level: str, how: str) -> None:
    model = net()
    sizes = (2, 3, 5)
    compiled = model
    if how == "torch.compile(model)":
        compiled = torch.compile(model, **OPTIONS[options])
    else:
        model.compile(**OPTIONS[options])
    before = [train(compiled, rows) for rows in sizes]
    graphs = compiles()
    assert graphs > 0
    watched = recorded(tmp_path / "compiled", compiled, level, sizes)
    assert compiles() == graphs
    after = [train(compiled, rows) for rows in sizes]
    assert compiles() == graphs, "compiled code is used again"
    assert all(torch.equal(a, b) for one, two in zip(before, after, strict=True) for a, b in zip(one, two, strict=True))
    PrecisionDebugger._instance = PrecisionDebugger._session = None
    eager = recorded(tmp_path / "eager", net(), level, sizes)
    for ours, theirs in zip(watched, eager, strict=True):
        assert ours.names == theirs.names and ours.data == theirs.data and ours.construct == theirs.construct
        assert not ours.errors


def test_guards_hold_while_windows_come_and_go(tmp_path: Path) -> None:
    """Compiled, recorded and compiled code take turns: nothing of ours is left that a guard could see."""
    model = torch.compile(net(), backend="eager", fullgraph=True)
    train(model, 2)
    graphs = compiles()
    session = configured(tmp_path, level="mix")
    for _ in range(4):
        session.start(model)
        train(model, 2)
        session.stop()
        train(model, 2)
        session.step()
        train(model, 2)
    assert compiles() == graphs


@pytest.mark.parametrize("options", [{"fullgraph": True}, {}], ids=["fullgraph", "with graph breaks"])
def test_start_inside_compiled_code_is_left_out_of_it_and_told(
    tmp_path: Path, told: Any, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """It neither breaks the graph nor records: compiled code cannot be watched from inside."""
    monkeypatch.setattr(debugger, "_traced", [])

    class Watches(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            PrecisionDebugger.start(self)
            y = super().forward(x)
            PrecisionDebugger.stop()
            PrecisionDebugger.step()
            return y

    configured(tmp_path, level="L1")
    model = torch.compile(Watches(), backend="eager", **options)
    for _ in range(3):
        model(torch.ones(1, 4))
    assert compiles() == 1 and not counters["graph_break"]
    assert len([line for line in told(logging.WARNING) if "start() is called inside code that is being compiled" in line]) == 1
    assert not (tmp_path / "dump").exists()


def test_start_outside_makes_code_that_starts_inside_run_eagerly(tmp_path: Path) -> None:
    class Watches(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            PrecisionDebugger.start(self)
            return super().forward(x)

    session = configured(tmp_path, level="mix", risk_level="ALL")
    outer = nn.Sequential(Watches())
    model = torch.compile(outer, backend="eager")
    session.start(model)
    model(torch.ones(1, 4))
    session.step()
    assert "Module.0.fc.Linear.forward.0" in Run(tmp_path / "dump").step().data


# --- torch.func -----------------------------------------------------------------------------------------------------------------------
WEIGHT = torch.full((4, 4), 0.5)


def of(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(torch.nn.functional.linear(x, WEIGHT)).sum()


TRANSFORMS = {
    "grad": lambda x: torch.func.grad(of)(x),
    "vmap": lambda x: torch.func.vmap(torch.relu)(x),
    "grad per sample": lambda x: torch.func.vmap(torch.func.grad(of))(x),
    "jacrev": lambda x: torch.func.jacrev(torch.tanh)(x[0]),
    "jacfwd": lambda x: torch.func.jacfwd(torch.tanh)(x[0]),
    "hessian": lambda x: torch.func.hessian(of)(x[0]),
    "vjp": lambda x: torch.func.vjp(torch.tanh, x)[1](x)[0],
    "jvp": lambda x: torch.func.jvp(torch.tanh, (x,), (x,))[1],
    "functionalize": lambda x: torch.func.functionalize(lambda y: y.clone().add_(1))(x),
    "functional_call": lambda x: torch.func.functional_call(BLOCK, dict(BLOCK.named_parameters()), (x,)),
    "grad of a module": lambda x: torch.func.grad(
        lambda p: torch.func.functional_call(BLOCK, p, (x,)).sum()
    )({name: parameter.detach() for name, parameter in BLOCK.named_parameters()})["fc.weight"],
    "ensemble": lambda x: torch.func.vmap(lambda p: torch.func.functional_call(BLOCK, p, (x,)))(
        {name: torch.stack([parameter.detach()] * 2) for name, parameter in BLOCK.named_parameters()}
    ),
}  # fmt: skip
torch.manual_seed(0)
BLOCK = Block()


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_function_transforms(tmp_path: Path, told: Any, level: str, task: str, transform: str) -> None:
    """The result is the same; values inside a transform are missing with the reason, and the closing line says so."""
    x = torch.arange(8.0).reshape(2, 4)
    plain = TRANSFORMS[transform](x)
    session = configured(tmp_path, level=level, risk_level="ALL", task=task)
    session.start(nn.Sequential(BLOCK))
    watched = TRANSFORMS[transform](x)
    torch.sigmoid(x)
    session.stop()
    session.step()
    assert torch.equal(plain, watched)
    assert not told(logging.ERROR)
    step = Run(tmp_path / "dump").step()
    if level != "L0":
        assert step.data["Torch.sigmoid.0.forward"]["output"][0]["Max"] == torch.sigmoid(x).max().item()
    inside = [record for record in tensors(step.data) if record["type"].startswith("torch._C._functorch")]
    assert all(record["Max"] is None and "data_name" not in record for record in inside)
    (closing,) = [line for line in told() if line.startswith("[step 0]")]
    assert ("inside a torch.func transform" in closing) == bool(inside) == ("inside a torch.func transform" in step.errors)
    if transform in ("grad", "vmap", "hessian") and level != "L0":
        assert inside


# --- copies that torch makes of a model ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_data_parallel_without_devices(tmp_path: Path, level: str) -> None:
    """On a CPU it calls the module itself."""
    model = nn.DataParallel(net())
    plain = train(model, 2)
    (step,) = recorded(tmp_path, model, level, (2,))
    assert all(torch.equal(a, b) for a, b in zip(plain, train(model, 2), strict=True))
    if level != "L1":
        assert {"Module.module.Net.forward.0", "Module.module.out.Linear.backward.0"} <= set(step.data)


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_replicas_are_named_as_not_recordable(tmp_path: Path, told: Any, level: str) -> None:
    """What DataParallel does with several devices: each call makes new modules. The modules themselves are left out, and that is said."""

    class Replicates(nn.DataParallel):
        def __init__(self, module: nn.Module) -> None:
            super().__init__(module)
            self.device_ids = [0, 1]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            replica = self.module.fc._replicate_for_data_parallel()
            replica.weight, replica.bias = self.module.fc.weight, self.module.fc.bias
            return replica(x)

    model = Replicates(Block())
    plain = model(torch.ones(1, 4))
    session = configured(tmp_path, level=level, risk_level="ALL")
    session.start(model)
    assert torch.equal(model(torch.ones(1, 4)), plain)
    session.step()
    step = Run(tmp_path / "dump").step()
    assert not [name for name in step.names if name.startswith("Module.")]
    assert "replicas" in step.errors and any("replicas" in line for line in told() if line.startswith("[step 0]"))
    assert ("Functional.linear.0.forward" in step.data) == (level == "mix")


def test_a_scripted_model_is_named_in_the_closing_line(tmp_path: Path, told: Any) -> None:
    session = configured(tmp_path, level="mix", risk_level="ALL")
    model = nn.Sequential(torch.jit.script(Block()), nn.Linear(4, 2))
    session.start(model)
    model(torch.ones(1, 4))
    session.step()
    (closing,) = [line for line in told() if line.startswith("[step 0]")]
    assert "a scripted module takes no hooks" in closing
    assert "Module.1.Linear.forward.0" in Run(tmp_path / "dump").step().data
    session.start(model[:1])
    torch.relu(model[:1](torch.ones(1, 4)))
    session.step()
    assert any(line.startswith("[step 1]") and line.endswith("no module inside of the model can be watched") for line in told())
