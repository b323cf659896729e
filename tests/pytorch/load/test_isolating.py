"""The session in a process that `msprobe isolate` has started. The whole of it: tests/isolation."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import forget_debugger
from torch import nn

from msprobe.comparison.measure_tensors import from_metrics
from msprobe.format import isolation
from msprobe.format.tensor_file import TensorData
from msprobe.numerics import PairMetrics
from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch.load import isolating


def data(values: Any, dtype: torch.dtype = torch.float32) -> TensorData:
    return isolating._data(torch.tensor(values, dtype=dtype))


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64, torch.float8_e4m3fn],
)
@pytest.mark.parametrize("shape", [(), (0,), (3, 4)])
def test_values_of_every_kind_are_compared(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.arange(1, 13)[:1].reshape(()) if shape == () else torch.arange(12)[: torch.Size(shape).numel()].reshape(shape)).to(
        dtype
    )
    line = isolating._measured(tensor, isolating._data(tensor))
    assert "metrics" not in line and line["shape"] == line["golden_shape"] == list(shape)
    if tensor.numel():
        other = isolating._measured(torch.zeros(shape).to(dtype), isolating._data(tensor))
        assert from_metrics(PairMetrics(**other["metrics"]), other["dtype"], other["golden_dtype"]).agreement.name == "DIFFERENT"


def test_views_devices_and_classes() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    assert "metrics" not in isolating._measured(base.t(), isolating._data(base.t().clone()))
    conjugated = torch.complex(base, base).conj()
    assert "metrics" not in isolating._measured(conjugated, isolating._data(conjugated.resolve_conj()))
    assert "metrics" in isolating._measured(conjugated, isolating._data(torch.complex(base, base)))
    assert "metrics" not in isolating._measured(base.to_sparse(), isolating._data(base))
    nan = torch.tensor([float("nan"), 1.0])
    assert "metrics" not in isolating._measured(nan, isolating._data(nan))
    assert isolating._measured(base, data([1.0]))["golden_shape"] == [1]
    with pytest.raises(ValueError, match="meta"):
        isolating._data(torch.ones(3, device="meta"))


class Spoil(torch.nn.Module):
    def forward(self, x: torch.Tensor, more: Any = None, *, key: Any = None) -> torch.Tensor:
        x.mul_(2)
        if key is not None:
            key["a"][0].add_(1)
        return x + 1


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.spoil = torch.nn.Linear(2, 2), Spoil()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.spoil(self.fc(x), key={"a": [torch.ones(2)]})


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> isolation.Orders:
    """A golden dump of Net, and orders to isolate it."""
    torch.manual_seed(0)
    run(Net(), PrecisionDebugger(task="tensor", level="L0", dump_path=str(tmp_path / "golden"), step=[0]))
    forget_debugger()
    (label,) = (path.name for path in (tmp_path / "golden" / "step0").iterdir())
    calls = ("Module.fc.Linear.forward.0", "Module.spoil.Spoil.forward.0")
    orders = isolation.Orders(
        str(tmp_path / "golden"), str(tmp_path / "work"), str(tmp_path / "events"), 0, (label,), {label: calls}, to_the_end=True
    )
    orders.write(tmp_path / "orders")
    monkeypatch.setenv(isolation.VARIABLE, str(tmp_path / "orders"))
    return orders


def run(net: torch.nn.Module, debugger: PrecisionDebugger) -> None:
    for _ in range(2):
        debugger.start(net)
        net(torch.ones(1, 2)).sum().backward()
        debugger.stop()
        debugger.step()


def test_the_scripts_configuration_does_not_hold(orders: isolation.Orders, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = Net()
    with torch.no_grad():
        net.fc.bias.add_(1)
    run(net, PrecisionDebugger(task="statistics", level="L1", dump_path=str(tmp_path / "own"), step=[1]))
    assert not (tmp_path / "own").exists()
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["step0"]
    (directory,) = (tmp_path / "work" / "step0").iterdir()
    lines = list(isolation.read_lines(directory / isolation.ARRIVED))
    assert [(line["call"].split(".")[1], line["key"], "metrics" in line, "changed_in_place" in line) for line in lines] == [
        ("fc", "input.0", False, False),
        ("spoil", "input.0", True, False),
        ("spoil", "input.key.a.0", False, False),
        ("spoil", "input.0", False, True),
        ("spoil", "input.key.a.0", False, True),
    ]
    events = [(line["event"], line.get("step")) for line in isolation.read_lines(tmp_path / "events")]
    assert events == [("constructed", None), ("start", 0), ("recording", 0), ("recorded", 0), ("start", 1)]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_a_module_of_another_class_gets_its_inputs_by_path(orders: isolation.Orders, tmp_path: Path) -> None:
    """The comparison pairs such calls, so they need golden inputs too."""

    class Spoiler(Spoil):
        pass

    torch.manual_seed(0)
    net = Net()
    net.spoil = Spoiler()
    with torch.no_grad():
        net.fc.bias.add_(1)
    run(net, PrecisionDebugger())
    (directory,) = (tmp_path / "work" / "step0").iterdir()
    lines = [line for line in isolation.read_lines(directory / isolation.ARRIVED) if "changed_in_place" not in line]
    assert [(line["call"], line["key"], "metrics" in line) for line in lines] == [
        ("Module.fc.Linear.forward.0", "input.0", False),
        ("Module.spoil.Spoiler.forward.0", "input.0", True),
        ("Module.spoil.Spoiler.forward.0", "input.key.a.0", False),
    ]


def test_the_script_ends_after_its_step(orders: isolation.Orders, tmp_path: Path) -> None:
    dataclasses.replace(orders, to_the_end=False).write(tmp_path / "orders")
    with pytest.raises(SystemExit) as ended:
        run(Net(), PrecisionDebugger())
    assert ended.value.code == 0


def test_a_rank_that_the_golden_run_does_not_have(orders: isolation.Orders, tmp_path: Path) -> None:
    debugger = PrecisionDebugger()
    debugger.start(Net(), rank_id=3)
    debugger.step()
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("module", "draws"),
    [
        (nn.Dropout(0.1), True),
        (nn.Dropout(0.1).eval(), True),
        (nn.Dropout(0.0), False),
        (nn.LSTM(2, 2, 2, dropout=0.1), True),
        (nn.LSTM(2, 2, 2), False),
        (nn.Linear(2, 2), False),
        (nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)), True),
    ],
)
def test_modules_that_may_draw_random_numbers(module: nn.Module, draws: bool) -> None:
    assert isolating._draws(module) is draws
