"""start, stop and step with `load`: which calls are replaced when, and what is recorded of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import Run, forget_debugger, parse, statistics
from overriding import TAKES, ZERO, Around, clean, configured, numbered, overridden, source, value
from torch import nn

from msprobe.config.result import LoadConfig
from msprobe.errors import UsageError
from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch.load.override import Override


def test_calls_are_counted_in_a_step_and_not_from_start_to_stop(tmp_path: Path) -> None:
    """Gradient accumulation: forward.0 and forward.1 are different calls."""
    numbered(tmp_path, calls=3, steps=2)
    model = Around()
    debugger = configured(tmp_path, ["Module.inner.Takes.forward.0", "Module.inner.Takes.forward.2"])
    seen = []
    for _ in range(2):
        for _ in range(3):
            debugger.start(model)
            model(ZERO)
            seen.append(value(model.inner))
            debugger.stop()
            model(ZERO - 5)  # outside of the window: not a call that counts
            assert value(model.inner) == -5
        debugger.step()
    assert seen == [1, 0, 21, 101, 0, 121]


def test_two_micro_batches_get_two_gradients(tmp_path: Path) -> None:
    entry = "Module.inner.ReLU.forward"
    first, second = torch.tensor([1.0, -1.0]), torch.tensor([-1.0, 2.0])
    source(tmp_path, {f"{entry}.0.input.0": first, f"{entry}.1.input.0": second})
    model, w = Around(nn.ReLU()), torch.tensor([1.0, 1.0], requires_grad=True)
    with overridden(tmp_path, [f"{entry}.0", f"{entry}.1"], model):
        for factor in (3.0, 5.0):
            model(w * factor).sum().backward()
    assert torch.equal(w.grad, 3 * (first > 0).float() + 5 * (second > 0).float())


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_load_alone_writes_nothing_at_any_level(tmp_path: Path, level: str, log: list[str]) -> None:
    numbered(tmp_path)
    model = Around()
    with overridden(tmp_path, [TAKES], model, level=level):
        model(ZERO)
        assert not PrecisionDebugger._session.window  # type: ignore[union-attr]
    assert value(model.inner) == 1
    assert not (tmp_path / "dump").exists()
    assert log == [
        "INFO [load] module validation: 1/1 modules valid in model",
        "INFO [load] step 0: replaced 1 input of 1 call",
    ]
    assert clean(model)


@pytest.mark.parametrize("dump", [True, False])
def test_level_debug(tmp_path: Path, dump: bool) -> None:
    """What is saved by hand is saved where recording is wanted at all."""
    numbered(tmp_path)
    model = Around()
    with overridden(tmp_path, [TAKES], model, level="debug", dump_after_load=dump) as debugger:
        debugger.save(model(ZERO), "seen")
    assert value(model.inner) == 1
    assert (tmp_path / "dump").exists() is dump
    if dump:
        (file,) = (tmp_path / "dump").rglob("debug.json")
        assert parse(file)["data"]["seen.0.debug"]["Max"] == 1


def test_it_needs_no_dump_path(tmp_path: Path) -> None:
    numbered(tmp_path)
    config = {"level": "L1", "load": {"path": str(tmp_path / "source"), "modules": [TAKES]}}
    (tmp_path / "c.json").write_text(json.dumps(config))
    debugger, model = PrecisionDebugger(config_path=str(tmp_path / "c.json")), Around()
    debugger.start(model)
    model(ZERO)
    debugger.stop()
    debugger.step()
    assert value(model.inner) == 1


def test_the_model_is_needed_at_level_L1_too(tmp_path: Path) -> None:
    numbered(tmp_path)
    debugger = configured(tmp_path, [TAKES], level="L1")
    with pytest.raises(UsageError, match=r"start\(model\): model is missing; load replaces inputs of modules and needs it"):
        debugger.start()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.ReLU()
        self.third = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(self.second(self.first(x)))


def recorded_source(directory: Path, model: nn.Module, x: torch.Tensor, **arguments: Any) -> None:
    """What the model takes in and gives out for x, as `directory / "source"`."""
    debugger = PrecisionDebugger(task="tensor", level="L0", dump_path=str(directory / "source"), **arguments)
    debugger.start(model)
    model(x).sum().backward()
    debugger.stop()
    debugger.step()
    forget_debugger()
    model.zero_grad()


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_what_is_recorded_is_what_the_module_saw(tmp_path: Path, level: str) -> None:
    torch.manual_seed(0)
    model, x = Net(), torch.randn(4, 3)
    recorded_source(tmp_path, model, x)
    golden = Run(tmp_path / "source").step().data
    other = x + 1
    with overridden(tmp_path, ["Module.second.ReLU.forward.0"], model, level=level, dump_after_load=True):
        model(other).sum().backward()
    step = Run(tmp_path / "dump").step()
    data, errors = step.data, step.errors
    assert errors == ""
    names = list(data)
    if level != "L1":
        same = (
            "Module.second.ReLU.forward.0",
            "Module.third.Linear.forward.0",
            "Module.third.Linear.backward.0",
            "Module.second.ReLU.backward.0",
        )
        for name in same:
            assert data[name] == golden[name], name
        assert data["Module.first.Linear.forward.0"]["output"] != golden["Module.first.Linear.forward.0"]["output"]
        # The graph goes on through the replaced tensor: what came before has gradients, those of the values that were put in.
        (into,), (out,) = data["Module.first.Linear.backward.0"]["input"], golden["Module.second.ReLU.backward.0"]["output"]
        assert statistics(into) == statistics(out)
        assert data["Module.first.Linear.parameters_grad.0"]["weight"][0]["shape"] == [3, 3]
        assert set(golden) <= set(data)
    if level != "L0":
        apis = [name for name in names if not name.startswith("Module.")]
        assert apis == [
            "Functional.linear.0.forward",
            "Functional.relu.0.forward",
            "Functional.linear.1.forward",
            "Tensor.sum.0.forward",
            "Tensor.sum.0.backward",
            "Functional.linear.1.backward",
            "Functional.relu.0.backward",
            "Functional.linear.0.backward",
        ]
        relu = data["Functional.relu.0.forward"]["input_args"][0]
        assert relu["Max"] == golden["Module.second.ReLU.forward.0"]["input_args"][0]["Max"]
    if level == "mix":
        assert step.construct["Functional.relu.0.forward"] == "Module.second.ReLU.forward.0"
    assert clean(model)


def test_the_weights_gradients_are_those_of_the_values_put_in(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Net(), torch.randn(4, 3)
    recorded_source(tmp_path, model, x)
    expected = torch.autograd.grad(model(x).sum(), [model.third.weight, model.first.bias])
    with overridden(tmp_path, ["Module.second.ReLU.forward.0"], model):
        model(x + 1).sum().backward()
    assert torch.equal(model.third.weight.grad, expected[0])
    assert torch.equal(model.first.bias.grad, expected[1])  # does not depend on x


def test_several_modules_in_any_order(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Net(), torch.randn(4, 3)
    recorded_source(tmp_path, model, x)
    wanted = model(x)
    entries = [f"Module.{name}.forward.0" for name in ("third.Linear", "first.Linear", "second.ReLU")]
    with overridden(tmp_path, entries, model):
        assert torch.equal(model(x * 5), wanted)


def test_only_the_keyword(tmp_path: Path) -> None:
    entry = "Module.inner.Takes.forward.0"
    source(tmp_path, {f"{entry}.kwargs.hidden": torch.ones(2), f"{entry}.kwargs.states.1": torch.ones(2) * 2})
    model = Around()
    with overridden(tmp_path, [entry], model):
        model(hidden=ZERO, states=[3, ZERO], flag=None)
    kwargs = model.inner.kwargs
    assert list(kwargs) == ["hidden", "states", "flag"]
    assert (kwargs["hidden"].tolist(), kwargs["states"][0], kwargs["states"][1].tolist(), kwargs["flag"]) == ([1, 1], 3, [2, 2], None)
    assert model.inner.args == ()


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_of_models(tmp_path: Path, kind: Any) -> None:
    source(tmp_path, {"Module.1.inner.Takes.forward.0.input.0": torch.ones(2)})
    models = kind([Around(), Around()])
    with overridden(tmp_path, ["Module.1.inner.Takes.forward.0"], models):
        for model in models:
            model(ZERO)
    assert [value(model.inner) for model in models] == [0, 1]


def test_steps_that_are_skipped(tmp_path: Path) -> None:
    """The reference switches itself off for good at the first of them."""
    numbered(tmp_path, steps=4)
    model, seen = Around(), []
    debugger = configured(tmp_path, [TAKES], step=[1, "3-4"])
    for _ in range(4):
        debugger.start(model)
        model(ZERO)
        seen.append(value(model.inner))
        debugger.stop()
        debugger.step()
    assert seen == [0, 101, 0, 301]


def test_a_step_filter_of_the_dump_does_not_switch_it_off(tmp_path: Path) -> None:
    numbered(tmp_path, steps=3)
    section = {"path": str(tmp_path / "source"), "modules": [TAKES], "dump_after_load": True}
    config = {"dump_path": str(tmp_path / "dump"), "level": "L0", "step": [1], "load": section}
    (tmp_path / "c.json").write_text(json.dumps(config))
    debugger, model, seen = PrecisionDebugger(config_path=str(tmp_path / "c.json")), Around(), []
    for _ in range(3):
        debugger.start(model)
        model(ZERO)
        seen.append(value(model.inner))
        debugger.stop()
        debugger.step()
    assert seen == [1, 101, 201]
    assert Run(tmp_path / "dump").steps == [1]
    assert Run(tmp_path / "dump").step(1).data[TAKES]["input_args"][0]["Max"] == 101


def test_a_second_start_changes_nothing(tmp_path: Path) -> None:
    numbered(tmp_path)
    model = Around()
    with overridden(tmp_path, [TAKES], model) as debugger:
        debugger.start(model)
        model(ZERO)
        assert value(model.inner) == 1
        model(ZERO)
        assert value(model.inner) == 0


def test_a_range_of_tokens(tmp_path: Path) -> None:
    """Calls are counted from where the range begins, as the dump with the same range counts them."""
    numbered(tmp_path)
    model, seen = Around(), []
    debugger = configured(tmp_path, ["Module.inner.Takes.forward.0", "Module.inner.Takes.forward.1"])
    debugger.start(model, token_range=[1, 2])
    for _ in range(4):
        model(ZERO)
        seen.append(value(model.inner))
    debugger.stop()
    debugger.step()
    assert seen == [0, 1, 11, 0]
    assert clean(model)


def test_recording_that_is_switched_off_does_not_switch_it_off(tmp_path: Path) -> None:
    numbered(tmp_path)
    section = {"path": str(tmp_path / "source"), "modules": [TAKES], "dump_after_load": True}
    config = {"dump_path": str(tmp_path / "dump"), "level": "L0", "dump_enable": False, "load": section}
    (tmp_path / "c.json").write_text(json.dumps(config))
    debugger, model = PrecisionDebugger(config_path=str(tmp_path / "c.json")), Around()
    debugger.start(model)
    model(ZERO)
    debugger.step()
    assert value(model.inner) == 1
    assert not (tmp_path / "dump").exists()


def test_a_change_of_the_file_holds_from_the_next_step_on(tmp_path: Path) -> None:
    numbered(tmp_path, steps=4)
    model, seen, path = Around(), [], tmp_path / "c.json"

    def write(load: Any) -> None:
        path.write_text(json.dumps({"dump_path": str(tmp_path / "dump"), "level": "L1", "dump_enable": False, "load": load}))

    section = {"path": str(tmp_path / "source"), "modules": [TAKES]}
    write(section)
    debugger = PrecisionDebugger(config_path=str(path))

    def window() -> None:
        debugger.start(model)
        model(ZERO)
        seen.append(value(model.inner))
        debugger.stop()

    window()
    write({**section, "modules": ["Module.inner.Takes.forward.1"]})
    window()  # the step goes on as it began
    debugger.step()
    window()
    window()
    debugger.step()
    write({**section, "path": str(tmp_path / "nowhere")})
    window()
    window()
    debugger.step()
    write(None)
    window()
    window()
    debugger.step()
    assert seen == [1, 0, 0, 111, 0, 211, 0, 0]


def test_the_observer_and_the_provider_of_entries(tmp_path: Path, log: list[str]) -> None:
    source(tmp_path, {f"{TAKES}.input.0.0": torch.ones(2), f"{TAKES}.kwargs.k": torch.ones(2) * 2})
    model, seen, asked = Around(), [], []

    def entries() -> list[str]:
        asked.append(1)
        return [TAKES]

    def observe(*arguments: Any) -> None:
        seen.append(arguments)
        raise RuntimeError("of the observer")

    override = Override(LoadConfig(str(tmp_path / "source"), ("Module.none.X.forward.0",)), observe=observe, entries=entries)
    for _ in range(2):
        override.start(model, 0, None)
        override.stop()
    override.start(model, 0, None)
    model([ZERO], k=ZERO)
    override.end_step()
    override.start(model, 0, None)
    override.end_step()
    assert asked == [1, 1]  # once for each step
    assert [(entry, role, path) for entry, role, path, _, _ in seen] == [(TAKES, "input", ("0", "0")), (TAKES, "kwargs", ("k",))]
    assert all(arrived is ZERO for *_, arrived, _ in seen)
    assert [(loaded.dtype, loaded.shape, bytes(loaded.data)) for *_, loaded in seen] == [
        ("float32", (2,), torch.full((2,), n).numpy().tobytes()) for n in (1.0, 2.0)
    ]
    assert model.inner.args[0][0].tolist() == [1, 1]  # the observer's error is none of the user's
    assert any("the tensor that arrived could not be looked at: RuntimeError('of the observer')" in line for line in log)
    assert clean(model)
