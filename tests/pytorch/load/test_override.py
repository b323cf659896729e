"""start, stop and step with `load`: which calls are replaced when, what is recorded of it, what is told, and that nothing stays."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import Run, forget_debugger, parse, statistics
from overriding import TAKES, Around, Takes, configured, overridden, source
from torch import nn

from msprobe.config.result import LoadConfig
from msprobe.errors import MsprobeException, UsageError
from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch.load.override import Override

ZERO = torch.zeros(2)


def value(module: Any) -> float:
    """What the module was called with last."""
    return float(module.args[0].flatten()[0])


def numbered(directory: Path, calls: int = 3, steps: int = 1, name: str = "Module.inner.Takes") -> None:
    """A source whose input of call c in step s is 100 s + 10 c + 1."""
    for step in range(steps):
        source(directory, {f"{name}.forward.{c}.input.0": torch.full((2,), 100.0 * step + 10 * c + 1) for c in range(calls)}, step)


def clean(model: nn.Module) -> bool:
    """No module has hooks."""
    return all(not m._forward_pre_hooks and not m._forward_hooks and not m._forward_pre_hooks_with_kwargs for m in model.modules())


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


def test_one_step_of_the_source_for_all(tmp_path: Path) -> None:
    numbered(tmp_path, steps=2)
    model, seen = Around(), []
    debugger = configured(tmp_path, [TAKES], source_step=1)
    for _ in range(3):
        debugger.start(model)
        model(ZERO)
        seen.append(value(model.inner))
        debugger.step()
    assert seen == [101, 101, 101]


def test_a_step_that_the_source_does_not_have_is_told_and_the_next_is_loaded(tmp_path: Path, log: list[str]) -> None:
    source(tmp_path, {f"{TAKES}.input.0": torch.ones(2)}, step=1)
    model, seen = Around(), []
    debugger = configured(tmp_path, [TAKES])
    for _ in range(3):
        debugger.start(model)
        model(ZERO)
        seen.append(value(model.inner))
        debugger.step()
    assert seen == [0, 1, 0]
    told = [line for line in log if "nothing is replaced in this step" in line]
    assert [line.split(":")[0] for line in told] == ["WARNING [load] step 0", "WARNING [load] step 2"]
    assert f'{tmp_path / "source"} has no step0; "source_step" loads one step of it in every step' in told[0]


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


def test_entries_that_never_came(tmp_path: Path, log: list[str]) -> None:
    numbered(tmp_path)
    entries = [f"Module.inner.Takes.forward.{n}" for n in (0, 2, 7)]
    model = Around()
    model.other = nn.Identity()
    debugger = configured(tmp_path, [*entries, "Module.other.Identity.forward.0"])
    for calls in (2, 2, 5):
        debugger.start(model)
        for _ in range(calls):
            model(ZERO)
        debugger.stop()
        debugger.step()
    told = [line for line in log if "never matched" in line]
    begin = "WARNING [load] {} module(s) were configured but never matched during step {}: "
    never = "Module.other.Identity.forward.0 (never called)"
    assert told == [
        begin.format(3, 0)
        + f"{entries[1]} (called 2 times, so its calls are forward.0 and forward.1), "
        + f"{entries[2]} (called 2 times, so its calls are forward.0 and forward.1), {never}",
        begin.format(2, 2) + f"{entries[2]} (called 5 times, so its calls are forward.0 to forward.4), {never}",
    ]


def test_entries_that_no_module_fits(tmp_path: Path, log: list[str]) -> None:
    numbered(tmp_path)
    entries = ["inner.Takes", "inner.Taken", "innr.Takes", "far.away.Takes", "Around"]
    model = Around()
    with overridden(tmp_path, [f"Module.{name}.forward.0" for name in entries], model):
        model(ZERO)
    assert log[:5] == [
        "INFO [load] module validation: 1/5 modules valid in model",
        "WARNING [load] invalid module: Module.inner.Taken.forward.0: "
        'the class of "inner" in the model is Takes, not Taken; did you mean "Module.inner.Takes"?',
        'WARNING [load] invalid module: Module.innr.Takes.forward.0: the model has no module "innr"; did you mean "Module.inner.Takes"?',
        "WARNING [load] invalid module: Module.far.away.Takes.forward.0: "
        'the model has no module "far.away"; did you mean "Module.inner.Takes"?',
        "WARNING [load] invalid module: Module.Around.forward.0: it names the model itself, which is not recorded; name a module inside it",
    ]
    assert value(model.inner) == 1


def test_the_model_is_looked_at_once(tmp_path: Path, log: list[str]) -> None:
    numbered(tmp_path)
    model = Around()
    debugger = configured(tmp_path, [TAKES, "Module.x.Y.forward.0"])
    for _ in range(3):
        debugger.start(model)
        model(ZERO)
        debugger.step()
    assert len([line for line in log if "validation" in line]) == 1
    model.x = nn.Identity()
    debugger.start(model)
    debugger.step()
    assert len([line for line in log if "validation" in line]) == 2


def test_a_missing_file_leaves_the_value(tmp_path: Path, log: list[str]) -> None:
    source(tmp_path, {f"{TAKES}.input.1": torch.ones(2)})
    model, x, empty = Around(), torch.zeros(2), torch.zeros(0, 3)
    with overridden(tmp_path, [TAKES], model):
        model(x, ZERO, 3, empty)
    assert model.inner.args[0] is x
    assert model.inner.args[1].tolist() == [1, 1]
    assert model.inner.args[3] is empty
    file = tmp_path / "source" / "step0" / "proc1" / "dump_tensor_data" / f"{TAKES}.input.0.pt"
    assert [line for line in log if line.startswith("WARNING")] == [
        f"WARNING [load] no source for {TAKES}.input.0: {file} does not exist; the value that arrived is kept"
    ]


def test_a_damaged_or_dangerous_file_leaves_the_value(tmp_path: Path, log: list[str]) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "executed"),)

    root = source(tmp_path, {f"{TAKES}.input.3": torch.ones(2)})
    data = root / "step0" / "proc1" / "dump_tensor_data"
    (data / f"{TAKES}.input.0.pt").write_bytes(b"PK\3\4 torn")
    torch.save(Evil(), data / f"{TAKES}.input.1.pt")
    (data / f"{TAKES}.input.2.pt").write_bytes(pickle.dumps(Evil()))
    torch.save({"a": torch.ones(2)}, data / f"{TAKES}.input.4.pt")
    os.mkfifo(data / f"{TAKES}.input.5.pt")
    model = Around()
    with overridden(tmp_path, [TAKES], model):
        model(*[torch.zeros(2) for _ in range(6)])
    assert [float(a[0]) for a in model.inner.args] == [0, 0, 0, 1, 0, 0]
    assert not (tmp_path / "executed").exists()
    for number in (0, 1, 2, 4, 5):
        assert any(f"{TAKES}.input.{number} could not be replaced, the value that arrived is kept: " in line for line in log), number


def test_mismatch_as_documented(tmp_path: Path, log: list[str]) -> None:
    class A(Takes):
        pass

    model = nn.Module()
    model.blocks = nn.ModuleList([nn.Module()])
    model.blocks[0].attn = A()
    entry = "Module.blocks.0.attn.A.forward.0"
    source(tmp_path, {f"{entry}.input.0": torch.ones(4, 32, 128)})
    with overridden(tmp_path, [entry], model):
        model.blocks[0].attn(torch.zeros(8, 16, 128, dtype=torch.float16))
    assert model.blocks[0].attn.args[0].shape == (4, 32, 128)
    assert [line for line in log if line.startswith("WARNING")] == [
        "WARNING [load] tensor mismatch for Module.blocks.0.attn.A.forward.0.input.0: source shape=[4, 32, 128] dtype=torch.float32 vs "
        "current shape=[8, 16, 128] dtype=torch.float16, override may cause forward error"
    ]


def test_a_forward_error_by_a_mismatch_is_the_users_and_the_next_step_works(tmp_path: Path) -> None:
    entry = "Module.inner.Linear.forward.0"
    source(tmp_path, {f"{entry}.input.0": torch.ones(2, 5)})
    source(tmp_path, {f"{entry}.input.0": torch.ones(2, 3)}, step=1)
    model = Around(nn.Linear(3, 2))
    debugger = configured(tmp_path, [entry], dump_after_load=True)
    debugger.start(model)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model(torch.zeros(2, 3))
    debugger.step()
    debugger.start(model)
    assert torch.equal(model(torch.zeros(2, 3)), model.inner(torch.ones(2, 3)))
    debugger.step()
    assert clean(model)


def test_an_empty_tensor_needs_no_file(tmp_path: Path) -> None:
    record = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [0, 3], "Max": None, "Min": None, "Mean": None, "Norm": None}
    source(tmp_path, {}, dump={TAKES: {"input_args": [record], "input_kwargs": {}, "output": [record]}})
    model = Around()
    with overridden(tmp_path, [TAKES], model):
        model(torch.zeros(2, 3))
    assert model.inner.args[0].shape == (0, 3)


def test_the_data_name_is_believed(tmp_path: Path) -> None:
    record = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "data_name": "other.pt"}
    root = source(tmp_path, {"other": torch.ones(2), f"{TAKES}.input.0": ZERO - 1}, dump={TAKES: {"input_args": [record]}})
    model = Around()
    with overridden(tmp_path, [TAKES], model):
        model(ZERO)
    assert value(model.inner) == 1
    forget_debugger()
    record["data_name"] = f"../../../step0/proc1/dump_tensor_data/{'other.pt'}"  # no file name: it is not followed
    source(tmp_path, {}, dump={TAKES: {"input_args": [record]}})
    with overridden(tmp_path, [TAKES], model):
        model(ZERO)
    assert value(model.inner) == -1
    forget_debugger()
    (root / "step0" / "proc1" / "dump.json").write_text("{broken")
    with overridden(tmp_path, [TAKES], model):
        model(ZERO)
    assert value(model.inner) == -1


def test_other_hooks_of_the_user(tmp_path: Path) -> None:
    """Hooks that were there see what arrived; those of the recorder, and those that come later, what was put in."""
    numbered(tmp_path)
    model, seen = Around(), []
    model.inner.register_forward_pre_hook(lambda m, args: seen.append(float(args[0][0])))
    model.inner.register_forward_pre_hook(lambda m, args, kwargs: ((args[0] + 1,), kwargs), with_kwargs=True)
    with overridden(tmp_path, [TAKES], model, dump_after_load=True):
        model.inner.register_forward_pre_hook(lambda m, args: seen.append(float(args[0][0])))
        model(ZERO)
    assert seen == [0, 1]
    assert Run(tmp_path / "dump").step().data[TAKES]["input_args"][0]["Max"] == 1
    assert len(model.inner._forward_pre_hooks) == 3


def test_nothing_of_ours_goes_along_with_a_copy(tmp_path: Path) -> None:
    numbered(tmp_path)
    model = Around()
    with overridden(tmp_path, [TAKES], model):
        copied = copy.deepcopy(model)
        shallow = copy.copy(model.inner)
        stream = io.BytesIO()
        torch.save(model, stream)
        for other in (copied, pickle.loads(pickle.dumps(model))):
            other(ZERO)
            assert value(other.inner) == 0
        shallow(ZERO)
        assert value(shallow) == 0
        model(ZERO)
        assert value(model.inner) == 1
    stream.seek(0)
    loaded = torch.load(stream, weights_only=False)
    loaded(ZERO)
    assert value(loaded.inner) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripting_inside_the_window(tmp_path: Path) -> None:
    source(tmp_path, {"Module.inner.ReLU.forward.0.input.0": torch.ones(2)})
    model = Around(nn.ReLU())
    with overridden(tmp_path, ["Module.inner.ReLU.forward.0"], model):
        scripted = torch.jit.script(model.inner)
        assert scripted(ZERO - 1).tolist() == [0, 0]
        assert model(ZERO).tolist() == [1, 1]


def test_a_scripted_module_is_told(tmp_path: Path, log: list[str]) -> None:
    model = Around(torch.jit.script(nn.ReLU()))
    name = f"Module.inner.{type(model.inner).__name__}.forward.0"
    source(tmp_path, {f"{name}.input.0": torch.ones(2)})
    with overridden(tmp_path, [name], model):
        assert model(ZERO).tolist() == [0, 0]
    assert any("it is a scripted module, which takes no hooks" in line for line in log)


def test_compiled_code_sees_it(tmp_path: Path) -> None:
    source(tmp_path, {"Module.inner.ReLU.forward.0.input.0": torch.ones(2)})
    model = Around(nn.ReLU())
    compiled = torch.compile(model, backend="eager")
    assert compiled(ZERO).tolist() == [0, 0]
    with overridden(tmp_path, ["Module.inner.ReLU.forward.0"], compiled):
        assert compiled(ZERO).tolist() == [1, 1]
    assert compiled(ZERO).tolist() == [0, 0]
    assert clean(model)


def test_the_inference_path_of_an_encoder_stays(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    model = Around(encoder)
    entry = "Module.inner.TransformerEncoder.forward.0"
    recorded, mask = torch.randn(2, 3, 8), torch.tensor([[False, False, True], [False, False, False]])
    source(tmp_path, {f"{entry}.input.0": recorded, f"{entry}.kwargs.src_key_padding_mask": mask})
    with torch.no_grad():
        expected = encoder(recorded, src_key_padding_mask=mask)
        with overridden(tmp_path, [entry], model):
            found = model(torch.randn(2, 3, 8), src_key_padding_mask=torch.zeros(2, 3, dtype=torch.bool))
    assert torch.equal(found, expected)  # padded rows are zero on that path only
    assert clean(model)


def test_an_error_of_ours_leaves_the_value(tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    numbered(tmp_path)
    model, x = Around(), torch.zeros(2)

    def fails(*_: Any) -> None:
        raise RuntimeError("ours")

    with overridden(tmp_path, [TAKES], model):
        monkeypatch.setattr("msprobe.pytorch.load.source.StepSource.find", fails)
        model(x)
        assert model.inner.args[0] is x
    assert any("could not be replaced, the value that arrived is kept: RuntimeError('ours')" in line for line in log)


def test_an_exception_of_the_users_signal_handler_is_not_swallowed(tmp_path: Path) -> None:
    numbered(tmp_path)
    model = Around()

    class Timeout(Exception):
        pass

    def handler(*_: Any) -> None:
        raise Timeout

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with overridden(tmp_path, [TAKES], model):
            session = PrecisionDebugger._session
            assert session is not None and session.override is not None
            session.override._inputs._observe = lambda *_: os.kill(os.getpid(), signal.SIGUSR1)
            with pytest.raises(Timeout):
                model(ZERO)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_forked_child_replaces_nothing(tmp_path: Path) -> None:
    numbered(tmp_path)
    model = Around()
    with overridden(tmp_path, [TAKES], model):
        pid = os.fork()
        if pid == 0:
            try:
                model(ZERO)
                os._exit(0 if value(model.inner) == 0 and clean(model) else 1)
            except BaseException:
                os._exit(2)
        assert os.waitpid(pid, 0)[1] == 0
        model(ZERO)
        assert value(model.inner) == 1


def test_several_processes_in_the_source(tmp_path: Path) -> None:
    for place in ("proc7", "proc12"):
        source(tmp_path, {f"{TAKES}.input.0": torch.ones(2)}, place=place)
    model = Around()
    debugger = configured(tmp_path, [TAKES])
    with pytest.raises(MsprobeException, match=r"has the directories of several processes, proc7, proc12: remove all but") as caught:
        debugger.start(model)
    assert str(tmp_path / "source" / "step0") in str(caught.value)
    assert clean(model)
    (tmp_path / "source" / "step0" / "proc7" / "dump_tensor_data" / f"{TAKES}.input.0.pt").unlink()
    for directory in ("proc7/dump_tensor_data", "proc7"):
        (tmp_path / "source" / "step0" / directory).rmdir()
    debugger.start(model)
    model(ZERO)
    debugger.step()
    assert value(model.inner) == 1


def test_several_processes_in_a_later_step_are_a_warning(tmp_path: Path, log: list[str]) -> None:
    numbered(tmp_path, steps=2)
    source(tmp_path, {f"{TAKES}.input.0": torch.ones(2)}, step=1, place="proc2")
    model = Around()
    debugger = configured(tmp_path, [TAKES])
    for expected in (1, 0):
        debugger.start(model)
        model(ZERO)
        assert value(model.inner) == expected
        debugger.step()
    assert any("the directories of several processes, proc1, proc2" in line for line in log)


def test_ranks_of_the_source(tmp_path: Path) -> None:
    for rank in (0, 3):
        source(tmp_path, {f"{TAKES}.input.0": torch.full((2,), rank + 1.0)}, place=f"rank{rank}")
    model = Around()
    debugger = configured(tmp_path, [TAKES])
    with pytest.raises(MsprobeException, match=r'holds rank0, rank3, and this process has no rank: say which one to load by "source_rank"'):
        debugger.start(model)
    debugger.start(model, rank_id=3)
    model(ZERO)
    debugger.step()
    assert value(model.inner) == 4
    forget_debugger()
    with overridden(tmp_path, [TAKES], model, source_rank=0):
        model(ZERO)
    assert value(model.inner) == 1
    forget_debugger()
    debugger = configured(tmp_path, [TAKES], source_rank=1)
    with pytest.raises(MsprobeException, match=r"has no rank1, but rank0, rank3$"):
        debugger.start(model)


def test_a_rank_that_is_not_selected_or_not_there(tmp_path: Path, log: list[str]) -> None:
    source(tmp_path, {f"{TAKES}.input.0": torch.ones(2)}, place="rank0")
    model = Around()
    debugger = configured(tmp_path, [TAKES], rank=[0, 2])
    seen = []
    for rank in (0, 1, 2, None):
        debugger.start(model, rank_id=rank)
        model(ZERO)
        seen.append(value(model.inner))
        debugger.stop()
        debugger.set_init_step(0)
        debugger.step()
        debugger.set_init_step(0)
    assert seen == [1, 0, 0, 0]
    assert any('has no rank2, but rank0; "source_rank" loads one rank of it on every rank; nothing is replaced' in line for line in log)
    assert any('"load"."rank" is set, but this process has no rank' in line for line in log)


def test_the_one_directory_there_is(tmp_path: Path) -> None:
    """A source of one process for a run with a rank, and the other way round."""
    source(tmp_path, {f"{TAKES}.input.0": torch.ones(2)}, place="proc5")
    source(tmp_path, {f"{TAKES}.input.0": torch.ones(2) * 2}, step=1, place="rank4")
    model = Around()
    debugger = configured(tmp_path, [TAKES])
    seen = []
    for rank in (0, None):
        debugger.start(model, rank_id=rank)
        model(ZERO)
        seen.append(value(model.inner))
        debugger.step()
    assert seen == [1, 2]


@pytest.mark.parametrize("relative", [True, False])
def test_a_relative_path_is_that_of_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: bool) -> None:
    numbered(tmp_path)
    monkeypatch.chdir(tmp_path)
    model = Around()
    debugger = configured(tmp_path, [TAKES], path="source" if relative else str(tmp_path / "source"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    debugger.start(model)
    model(ZERO)
    debugger.step()
    assert value(model.inner) == 1


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
