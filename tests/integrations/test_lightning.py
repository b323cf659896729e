"""The callback for Lightning: which steps there are, what is in them, and that nothing else changes."""

from __future__ import annotations

import copy
import importlib.util
import json
import logging
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from integrations.lightnings import loader, modules, outcome, trainer
from integrations.ranks import as_torchrun
from msprobe.errors import MissingPackageError
from msprobe.integrations import lightning as ours
from msprobe.integrations.lightning import MsprobeCallback
from msprobe.integrations.steps import Steps
from msprobe.pytorch import PrecisionDebugger
from pytorch.capturing import Run, environment

pytestmark = pytest.mark.filterwarnings("ignore")
PACKAGES = [name for name in ("pytorch_lightning", "lightning.pytorch") if importlib.util.find_spec(name.partition(".")[0]) is not None]
if not PACKAGES:
    pytest.skip("neither lightning nor pytorch_lightning is installed", allow_module_level=True)
FIRST = PACKAGES[0]


def callback(directory: Path, **more: Any) -> MsprobeCallback:
    return MsprobeCallback(**{"level": "mix", "task": "statistics", "dump_path": str(directory / "dump"), **more})


def module(kind: str = "automatic", package: str = FIRST) -> Any:
    torch.manual_seed(1)
    return modules(package)[kind]()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "dump")


def forwards(run: Run) -> list[int]:
    return [sum(name.startswith("Module.fc.Linear.forward.") for name in run.step(step).names) for step in run.steps]


def is_off(made: Any) -> bool:
    session = PrecisionDebugger._session
    hooks = [one for one in made.modules() if one._forward_hooks or one._forward_pre_hooks]
    return session is not None and not session.on and session.step is None and not hooks


@pytest.mark.parametrize("package", PACKAGES)
def test_a_batch_is_a_step(tmp_path: Path, run: Run, package: str) -> None:
    made = module(package=package)
    trainer(package, tmp_path, callback(tmp_path)).fit(made, loader(), loader())
    assert run.steps == [0, 1, 2, 3] and forwards(run) == [1, 1, 1, 1]
    names = run.step(2).names
    assert {"Module.fc.Linear.forward.0", "Module.fc.Linear.backward.0", "Module.head.Linear.parameters_grad.0"} <= set(names)
    assert is_off(made)


@pytest.mark.parametrize(
    ("kind", "arguments", "expected"),
    [
        ("automatic", {"accumulate_grad_batches": 3}, [3, 1]),  # the last batch of an epoch steps
        ("automatic", {"accumulate_grad_batches": 2, "max_epochs": 2}, [2, 2, 2, 2]),
        ("gan", {}, [2, 2, 2, 2]),
        ("accumulates", {}, [2, 2]),
        ("accumulates", {"limit_train_batches": 3}, [2, 1]),  # what no optimizer step came for
        ("automatic", {"accumulate_grad_batches": 2, "val_check_interval": 1}, [2, 2]),  # validation in the middle of a step
    ],
)
def test_accumulation_and_several_optimizers(tmp_path: Path, run: Run, kind: str, arguments: dict[str, Any], expected: list[int]) -> None:
    trainer(FIRST, tmp_path, callback(tmp_path), **arguments).fit(module(kind), loader(), loader())
    assert forwards(run) == expected


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("automatic", {}),
        ("automatic", {"precision": "bf16-mixed", "gradient_clip_val": 0.1}),
        ("automatic", {"precision": "64-true", "accumulate_grad_batches": 2}),
        ("gan", {}),
        ("accumulates", {"val_check_interval": 1}),
    ],
)
def test_losses_weights_and_random_numbers_are_the_same(tmp_path: Path, run: Run, kind: str, arguments: dict[str, Any]) -> None:
    found = []
    for callbacks in ([], [callback(tmp_path, evaluation=True)]):
        made = module(kind)
        data = loader()
        if arguments.get("precision") == "64-true":
            data.dataset.tensors = (data.dataset.tensors[0].double(), data.dataset.tensors[1])
        trainer(FIRST, tmp_path, *callbacks, **arguments).fit(made, data, data)
        found.append(outcome(made))
    assert found[0] == found[1] and len(found[0]) > 8
    assert len(run.steps) >= 2


def test_validation_test_and_prediction(tmp_path: Path, run: Run) -> None:
    """Where they are asked for; the sanity check never."""
    made = module()
    limits = {f"limit_{name}_batches": 1 for name in ("train", "test", "predict")}
    all_of_it = trainer(FIRST, tmp_path, callback(tmp_path, evaluation=True), **limits)
    all_of_it.fit(made, loader(), loader())  # a batch, then two of validation
    all_of_it.validate(made, loader(), verbose=False)
    all_of_it.test(made, loader(), verbose=False)
    all_of_it.predict(made, loader())
    assert run.steps == list(range(7)) and forwards(run) == [1] * 7
    assert ["Module.fc.Linear.backward.0" in run.step(step).names for step in run.steps] == [True] + [False] * 6
    assert is_off(made)


def test_validation_in_the_middle_of_a_step_is_part_of_it(tmp_path: Path, run: Run) -> None:
    arguments = {"accumulate_grad_batches": 2, "val_check_interval": 1, "limit_train_batches": 2, "limit_val_batches": 1}
    trainer(FIRST, tmp_path, callback(tmp_path, evaluation=True), **arguments).fit(module(), loader(), loader())
    assert forwards(run) == [3, 1]


def test_not_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer(FIRST, tmp_path, callback(tmp_path)).validate(module(), loader(), verbose=False)
    assert not (tmp_path / "dump").exists()
    session = PrecisionDebugger._session
    assert session is not None
    session.at_exit()
    assert "MsprobeCallback(evaluation=True)" in caplog.text


@pytest.mark.parametrize("kind", ["automatic", "gan"])
def test_resuming_counts_from_the_checkpoint(tmp_path: Path, run: Run, kind: str) -> None:
    """In batches, also where two optimizers make the Trainer's global_step twice that."""
    first = trainer(FIRST, tmp_path, limit_train_batches=2)
    first.fit(module(kind), loader())
    first.save_checkpoint(tmp_path / "x.ckpt")
    again = trainer(FIRST, tmp_path, callback(tmp_path), limit_train_batches=2, max_epochs=2)
    again.fit(module(kind), loader(), ckpt_path=tmp_path / "x.ckpt")
    assert again.global_step == {"automatic": 4, "gan": 8}[kind]
    assert run.steps == [2, 3]


def test_a_second_training_counts_on(tmp_path: Path, run: Run) -> None:
    once = callback(tmp_path)
    for _ in range(2):
        trainer(FIRST, tmp_path, once, limit_train_batches=2).fit(module(), loader())
    assert run.steps == [0, 1, 2, 3]


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt()])
def test_an_exception_ends_the_step_and_passes(tmp_path: Path, run: Run, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    made = module()
    made.fails = error
    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(signal, "signal", lambda number, action: handler)  # Lightning would ignore Ctrl-C from here on
    with pytest.raises((ValueError, SystemExit)) as caught:  # Lightning ends the process after Ctrl-C
        trainer(FIRST, tmp_path, callback(tmp_path)).fit(made, loader())
    if isinstance(error, ValueError):
        assert caught.value is error
    assert run.steps == [0, 1] and forwards(run) == [1, 1]
    assert is_off(made)


def test_a_debugger_of_the_users_own_at_level_debug(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(level="debug", dump_path=str(tmp_path / "dump"), step=[1])
    made = module()
    made.on_train_batch_start = lambda batch, batch_idx: debugger.save(batch[0], "x")
    trainer(FIRST, tmp_path, MsprobeCallback(debugger=debugger)).fit(made, loader())
    assert [path.parents[1].name for path in (tmp_path / "dump").glob("*/*/debug.json")] == ["step1"]


def test_copies_and_subclasses(tmp_path: Path, run: Run) -> None:
    class Mine(MsprobeCallback):
        pass

    first = Mine(level="mix", task="statistics", dump_path=str(tmp_path / "dump"))
    assert isinstance(first, Mine)
    for made in (first, copy.deepcopy(first), pickle.loads(pickle.dumps(callback(tmp_path)))):
        assert isinstance(made, MsprobeCallback)
        trainer(FIRST, tmp_path, made, limit_train_batches=1).fit(module(), loader())
    assert run.steps == [0, 1, 2]


def test_batches_whose_gradients_the_next_epoch_uses(tmp_path: Path, run: Run) -> None:
    """Epochs of three batches, an optimizer step at each second one: the rest of an epoch belongs to the next optimizer step."""
    made = module("accumulates")
    trainer(FIRST, tmp_path, callback(tmp_path), limit_train_batches=3, max_epochs=2).fit(made, loader())
    assert forwards(run) == [2, 3, 1]
    assert is_off(made)


@pytest.mark.skipif(len(PACKAGES) < 2, reason="only one of the packages is installed")
def test_both_packages_in_one_process(tmp_path: Path, run: Run) -> None:
    shared = callback(tmp_path)
    for package in PACKAGES:
        trainer(package, tmp_path, shared, limit_train_batches=1).fit(module(package=package), loader())
    assert forwards(run) == [1, 1]


def test_the_same_callback_twice_in_the_list(tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    twice = callback(tmp_path, evaluation=True)
    trainer(FIRST, tmp_path, twice, twice, accumulate_grad_batches=2, val_check_interval=1, limit_val_batches=1).fit(
        module(), loader(), loader()
    )
    assert forwards(run)[0] == 3  # two batches, and the validation in between
    assert [record.message for record in caplog.records if record.name == "msprobe" and record.levelno >= logging.WARNING] == []


def test_an_error_of_ours_does_not_end_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("planted")

    for name in ("begin", "end", "pause", "count_from", "explain"):
        monkeypatch.setattr(Steps, name, fails)
    made = trainer(FIRST, tmp_path, callback(tmp_path), accumulate_grad_batches=2)
    made.fit(module(), loader(), loader())
    assert made.global_step == 2
    assert "recording failed in MsprobeCallback.on_train_batch_start, the training goes on: RuntimeError('planted')" in caplog.text


def test_a_process_that_handed_the_callback_to_others_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As ddp_spawn does: this process records nothing itself."""
    pickle.dumps(callback(tmp_path))
    session = PrecisionDebugger._session
    assert session is not None
    session.at_exit()
    assert "nothing was recorded" in caplog.text
    assert "copies of MsprobeCallback may have recorded in processes that this one has started" in caplog.text


def test_a_checkpoint_holds_nothing_of_it(tmp_path: Path) -> None:
    made = trainer(FIRST, tmp_path, callback(tmp_path), limit_train_batches=1)
    made.fit(module(), loader())
    made.save_checkpoint(tmp_path / "x.ckpt")
    assert "Msprobe" not in str(torch.load(tmp_path / "x.ckpt", weights_only=False).get("callbacks"))


def test_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "_PACKAGES", ("no_such_package.pytorch",))
    with pytest.raises(MissingPackageError, match=r"pip install lightning"):
        MsprobeCallback()


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_the_other_package_is_not_imported(tmp_path: Path, package: str) -> None:
    other = {"pytorch_lightning": "lightning", "lightning.pytorch": "pytorch_lightning"}[package]
    source = (
        f"import sys, {package}; from msprobe.integrations.lightning import MsprobeCallback as M; "
        f"c = M(dump_path='d', level='L1'); assert isinstance(c, {package}.Callback); assert {other!r} not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", source], env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_two_ranks(tmp_path: Path) -> None:
    done = as_torchrun(tmp_path, "integrations.lightnings", str(tmp_path), FIRST)
    assert [rank.returncode for rank in done] == [0, 0], done
    for rank in range(2):
        without, recorded = json.loads((tmp_path / f"outcome{rank}.json").read_text())
        assert without == recorded
        for step in range(2):
            names = json.loads((tmp_path / "dump" / f"step{step}" / f"rank{rank}" / "dump.json").read_text())["data"]
            assert "Module.module.fc.Linear.forward.0" in names and "Module.module.head.Linear.parameters_grad.0" in names
