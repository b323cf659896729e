"""What is told of calls that do not fit, and of values that do not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from capturing import forget_debugger
from overriding import TAKES, ZERO, Around, Takes, clean, configured, numbered, overridden, source, value
from torch import nn

from msprobe.config.result import LoadConfig
from msprobe.pytorch.load import targets
from msprobe.pytorch.load.override import Override


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
        'the class of "inner" in the model is Takes, not Taken; did you mean "Module.inner.Takes.forward.0"?',
        "WARNING [load] invalid module: Module.innr.Takes.forward.0: "
        'the model has no module "innr"; did you mean "Module.inner.Takes.forward.0"?',
        "WARNING [load] invalid module: Module.far.away.Takes.forward.0: "
        'the model has no module "far.away"; did you mean "Module.inner.Takes.forward.0"?',
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


def test_a_second_name_of_a_module(tmp_path: Path, log: list[str]) -> None:
    numbered(tmp_path)
    model = Around()
    model.again = nn.Sequential(model.inner)
    with overridden(tmp_path, ["Module.again.0.Takes.forward.0"], [nn.Identity(), model]):
        pass
    forget_debugger()
    with overridden(tmp_path, ["Module.1.again.0.Takes.forward.0"], [nn.Identity(), torch.compile(model, backend="eager")]):
        pass
    told = [line for line in log if "invalid module" in line]
    assert "same module" not in told[0]
    assert told[1] == (
        "WARNING [load] invalid module: Module.1.again.0.Takes.forward.0: "
        '"1.again.0" is the same module as "Module.1.inner.Takes": its calls are recorded, and counted, under that name'
    )


def test_many_wrong_entries_are_compared_with_few_names(tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding what looks alike costs time for every name of the model: a thousand wrong entries would take minutes."""
    compared: list[int] = []
    monkeypatch.setattr(targets, "get_close_matches", lambda wanted, names, n, cutoff: compared.append(len(names)) or [])
    monkeypatch.setattr(targets, "_MOST_COMPARED", 250)
    model = nn.Module()
    source(tmp_path, {})
    model.layers = nn.ModuleList([nn.Identity() for _ in range(99)])
    wrapped = [f"Module.module.layers.{n}.Identity.forward.0" for n in range(99)]  # a wrapper that is not there: known without comparing
    with overridden(tmp_path, [*wrapped, *(f"Module.else.{n}.Identity.forward.0" for n in range(99))], model):
        pass
    told = [line for line in log if "invalid module" in line]
    assert len(told) == 198 and told[7].endswith('no module "module.layers.7"; did you mean "Module.layers.7.Identity.forward.0"?')
    assert compared == [100, 100, 100]


def test_a_wrapper_that_the_source_did_not_have(tmp_path: Path, log: list[str]) -> None:
    model = nn.Module()
    source(tmp_path, {})
    model.module = Around()
    with overridden(tmp_path, [TAKES], model):
        pass
    told = f'WARNING [load] invalid module: {TAKES}: the model has no module "inner"; '
    assert told + 'did you mean "Module.module.inner.Takes.forward.0"?' in log
    forget_debugger()
    numbered(tmp_path)
    with overridden(tmp_path, [TAKES], model):
        model.module(ZERO)
    hint = (
        'the nearest would be "Module.module.inner.Takes.forward.0", but the source has none, only the call as configured, and load needs '
        "the same path in both: give start() the same part of the model as in the run that recorded the source"
    )
    assert told + hint in log and value(model.module.inner) == 0


@pytest.mark.parametrize("with_json", [False, True])
def test_another_class_at_the_path(tmp_path: Path, log: list[str], with_json: bool) -> None:
    """The source's name is wrong in this model, and the model's name is not in the source: neither may be recommended."""
    theirs = "Module.inner.TakesActivation.forward.1"
    dump = {theirs: {"input_args": [], "input_kwargs": {}, "output": []}} if with_json else None
    source(tmp_path, {f"{theirs}.input.0": torch.ones(2)}, dump=dump)
    model = Around()
    with overridden(tmp_path, [theirs], model):
        model(ZERO)
        model(ZERO)
    assert [line for line in log if line.startswith("WARNING")] == [
        f'WARNING [load] invalid module: {theirs}: the class of "inner" in the model is Takes, not TakesActivation; the source has the '
        'call as configured and none "Module.inner.Takes.forward.1", and load needs the same class in both: use it in the model, or '
        "msprobe isolate, which goes by the path alone",
        f"WARNING [load] 1 module(s) were configured but never matched during step 0: {theirs} (invalid, as start() has told)",
    ]
    assert value(model.inner) == 0


def test_a_damaged_dump_json_is_told_though_the_hint_looked_at_it(tmp_path: Path, log: list[str]) -> None:
    root = source(tmp_path, {f"{TAKES}.input.0": torch.ones(2)})
    (root / "step0" / "proc1" / "dump.json").write_text("{")
    model = Around()
    with overridden(tmp_path, ["Module.inner.Taken.forward.0", TAKES], model):
        model(ZERO)
    assert any('did you mean "Module.inner.Takes.forward.0"?' in line for line in log)
    assert len([line for line in log if "files are looked for by the names of the calls" in line]) == 1
    assert value(model.inner) == 1


def by_path(directory: Path, names: list[str]) -> tuple[Override, list[str]]:
    """An override that goes by the path, and what its observer is told."""
    seen: list[str] = []
    load = LoadConfig(path=str(directory / "source"), modules=tuple(names))
    return Override(load, by_path=True, observe=lambda entry, role, path, arrived, loaded: seen.append(entry)), seen


def test_by_path_the_class_does_not_matter(tmp_path: Path, log: list[str]) -> None:
    numbered(tmp_path, calls=2, name="Module.inner.TakesActivation")
    names = [f"Module.inner.TakesActivation.forward.{n}" for n in range(3)] + ["Module.nowhere.Takes.forward.0"]
    override, seen = by_path(tmp_path, names)
    model = Around()
    override.start(model, 0, None)
    found = []
    for _ in range(2):
        model(ZERO)
        found.append(value(model.inner))
    override.stop()
    override.end_step()
    assert found == [1, 11] and seen == ["Module.inner.Takes.forward.0", "Module.inner.Takes.forward.1"]
    assert log[:2] == [
        "WARNING [load] modules whose class is another one in the source (in parentheses) get their inputs by path: "
        "Module.inner.Takes (TakesActivation)",
        "INFO [load] module validation: 3/4 modules valid in model",
    ]
    assert log[-2:] == [
        "WARNING [load] 2 module(s) were configured but never matched during step 0: Module.inner.Takes.forward.2 (called 2 times, so its "
        "calls are forward.0 and forward.1), Module.nowhere.Takes.forward.0 (invalid, as start() has told)",
        "INFO [load] step 0: replaced 2 inputs of 2 calls",
    ]


def test_by_path_the_right_class_goes_first(tmp_path: Path, log: list[str]) -> None:
    source(tmp_path, {"Module.inner.Other.forward.0.input.0": torch.zeros(2) + 5, f"{TAKES}.input.0": torch.ones(2)})
    override, _ = by_path(tmp_path, ["Module.inner.Other.forward.0", TAKES])
    model = Around()
    override.start(model, 0, None)
    model(ZERO)
    override.end_step()
    assert value(model.inner) == 1
    assert any("invalid module: Module.inner.Other.forward.0" in line for line in log)


def test_another_layout(tmp_path: Path, log: list[str]) -> None:
    source(tmp_path, {f"{TAKES}.input.0": torch.eye(2).to_sparse()})
    with overridden(tmp_path, [TAKES], model := Around()):
        model(torch.zeros(2, 2))
    assert isinstance(model.inner, Takes) and model.inner.args[0].is_sparse
    told = (
        "source shape=[2, 2] dtype=torch.float32 layout=torch.sparse_coo vs current shape=[2, 2] dtype=torch.float32 layout=torch.strided"
    )
    assert f"WARNING [load] tensor mismatch for {TAKES}.input.0: {told}, override may cause forward error" in log


COMPILES_LATE = """
import json, sys, torch
from msprobe.pytorch import PrecisionDebugger
model = torch.nn.Sequential(torch.nn.ReLU())
debugger = PrecisionDebugger(config_path=sys.argv[1])
debugger.start(model)
torch.compile(model, backend="eager")(torch.zeros(2))
debugger.stop()
"""


def test_code_that_is_compiled_after_the_start(tmp_path: Path) -> None:
    root = source(tmp_path, {"Module.0.ReLU.forward.0.input.0": torch.ones(2)})
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"load": {"path": str(root), "modules": ["Module.0.ReLU.forward.0"]}}))
    done = subprocess.run([sys.executable, "-c", COMPILES_LATE, str(config)], capture_output=True, text=True, check=True)
    said = done.stdout + done.stderr
    assert "Module.0.ReLU.forward.0 (never called, or in code that was first compiled after start(), which is not seen" in said
