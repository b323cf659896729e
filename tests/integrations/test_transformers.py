"""The callback for the Trainer of transformers: which steps there are, what is in them, and that nothing else changes."""

from __future__ import annotations

import copy
import gc
import inspect
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe.errors import MissingPackageError, MsprobeException, UsageError
from msprobe.pytorch import PrecisionDebugger
from pytorch.capturing import Run

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from transformers import Trainer, TrainerCallback

from integrations.ranks import as_torchrun
from integrations.trainers import Data, Losses, Net, outcome, trainer
from msprobe.integrations.steps import Steps
from msprobe.integrations.transformers import MsprobeCallback


def callback(directory: Path, **more: Any) -> MsprobeCallback:
    return MsprobeCallback(**{"level": "mix", "task": "statistics", "dump_path": str(directory / "dump"), **more})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "dump")


def forwards(run: Run, step: int) -> int:
    return sum(name.startswith("Module.fc.Linear.forward.") for name in run.step(step).names)


def is_off(model: torch.nn.Module) -> bool:
    session = PrecisionDebugger._session
    hooks = [module for module in model.modules() if module._forward_hooks or module._forward_pre_hooks]
    return session is not None and not session.on and session.step is None and not hooks


def test_an_optimizer_step_is_a_step(tmp_path: Path, run: Run) -> None:
    made = trainer(tmp_path, callback(tmp_path))
    made.train()
    assert run.steps == [0, 1, 2]
    for step in range(3):
        names = run.step(step).names
        assert {"Module.fc.Linear.forward.0", "Module.fc.Linear.backward.0", "Module.head.Linear.parameters_grad.0"} <= set(names)
        assert forwards(run, step) == 1
    assert is_off(made.model)


def test_gradient_accumulation_is_inside_and_evaluation_is_not(tmp_path: Path, run: Run) -> None:
    made = trainer(tmp_path, callback(tmp_path), gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=1, eval_on_start=True)
    made.train()
    made.evaluate()
    made.predict(Data())
    assert run.steps == [0, 1, 2]
    assert [forwards(run, step) for step in run.steps] == [2, 2, 2]


def test_micro_batches_that_are_left_over(tmp_path: Path, run: Run) -> None:
    """Two epochs of six batches with steps of four: the rest of each epoch is a step of its own, as it is for the Trainer."""
    made = trainer(tmp_path, callback(tmp_path), gradient_accumulation_steps=4, max_steps=-1, num_train_epochs=2)
    made.train()
    assert made.state.global_step in (2, 4)  # before transformers 5 the rests did not count for its limit
    assert [forwards(run, step) for step in run.steps] == [4, 2, 4, 2][: made.state.global_step]


@pytest.mark.parametrize("arguments", [{}, {"gradient_accumulation_steps": 2, "eval_strategy": "steps", "eval_steps": 2}, {"bf16": True}])
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_losses_weights_and_random_numbers_are_the_same(tmp_path: Path, run: Run, arguments: dict[str, Any], task: str) -> None:
    found = []
    for callbacks in ([], [callback(tmp_path, task=task, evaluation=True)]):
        losses = Losses()
        made = trainer(tmp_path, losses, *callbacks, **arguments)
        made.train()
        found.append(outcome(made, losses))
    assert found[0] == found[1] and len(found[0]) > 10
    assert len(run.steps) >= 3


def test_evaluation_where_it_is_asked_for(tmp_path: Path, run: Run) -> None:
    made = trainer(tmp_path, callback(tmp_path, evaluation=True), max_steps=1)
    made.evaluate()  # two batches of six
    made.predict(Data(6))
    made.train()
    assert run.steps == [0, 1, 2, 3]
    for step in range(3):
        assert forwards(run, step) == 1 and not any("backward" in name for name in run.step(step).names)
    assert "Module.fc.Linear.backward.0" in run.step(3).names
    assert is_off(made.model)


def test_evaluation_alone_is_told_to_be_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = trainer(tmp_path, callback(tmp_path))
    made.evaluate()
    assert not (tmp_path / "dump").exists()
    session = PrecisionDebugger._session
    assert session is not None
    session.at_exit()
    assert "MsprobeCallback(evaluation=True)" in caplog.text


def test_resuming_counts_from_the_checkpoint(tmp_path: Path, run: Run) -> None:
    trainer(tmp_path, max_steps=2, save_strategy="steps", save_steps=2).train()
    made = trainer(tmp_path, callback(tmp_path), max_steps=4)
    made.train(resume_from_checkpoint=True)
    assert made.state.global_step == 4
    assert run.steps == [2, 3]


def test_a_second_training_counts_on(tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "msprobe")
    made = trainer(tmp_path, callback(tmp_path), max_steps=2)
    made.train()
    made.train()
    assert run.steps == [0, 1, 2, 3]
    assert "step 2 is the first of this training, after 0 steps of its own count" in caplog.text


def test_numbers_and_configuration_of_the_users_own(tmp_path: Path, run: Run) -> None:
    (tmp_path / "c.json").write_text(json.dumps({"task": "statistics", "level": "L0", "dump_path": str(tmp_path / "dump"), "step": [11]}))
    debugger = PrecisionDebugger(str(tmp_path / "c.json"))
    debugger.set_init_step(10)
    trainer(tmp_path, MsprobeCallback(debugger=debugger)).train()
    assert run.steps == [11]


def test_level_debug_and_a_callback_without_arguments(tmp_path: Path) -> None:
    debugger = PrecisionDebugger(level="debug", dump_path=str(tmp_path / "dump"))

    class Saves(Trainer):
        def training_step(self, model: Any, inputs: Any, *more: Any, **others: Any) -> Any:
            debugger.save(inputs["x"], "x")
            return super().training_step(model, inputs, *more, **others)

    trainer(tmp_path, MsprobeCallback(), kind=Saves, max_steps=2).train()
    for step in range(2):
        (path,) = (tmp_path / "dump" / f"step{step}").glob("*/debug.json")
        assert "x.0.debug" in path.read_text()


class Broken(Exception):
    pass


class Breaks(Trainer):
    """Overrides training_step; fails in the second step of its first training."""

    at: tuple[int, type[BaseException]] | None = (1, Broken)

    def training_step(self, model: Any, inputs: Any, *more: Any, **others: Any) -> Any:
        result = super().training_step(model, inputs, *more, **others)
        if self.at is not None and self.state.global_step == self.at[0]:
            kind, self.at = self.at[1], None
            raise kind("CUDA out of memory.")
        return result


def test_an_exception_ends_the_step_and_passes(tmp_path: Path, run: Run) -> None:
    made = trainer(tmp_path, callback(tmp_path), kind=Breaks)
    with pytest.raises(Broken) as caught:
        made.train()
    assert caught.value.__context__ is None
    assert run.steps == [0, 1] and forwards(run, 1) == 1
    assert is_off(made.model)
    torch.tanh(torch.ones(2))
    made.train()
    assert run.steps == [0, 1, 2, 3, 4]


def test_ctrl_c(tmp_path: Path, run: Run) -> None:
    made = trainer(tmp_path, callback(tmp_path), kind=Breaks)
    made.at = (0, KeyboardInterrupt)  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        made.train()
    assert run.steps == [0] and is_off(made.model)


def test_smaller_batches_after_an_out_of_memory(tmp_path: Path, run: Run) -> None:
    """auto_find_batch_size begins anew inside of one train()."""
    made = trainer(tmp_path, callback(tmp_path), kind=Breaks, auto_find_batch_size=True, max_steps=2)
    made.at = (1, torch.cuda.OutOfMemoryError)  # type: ignore[attr-defined]
    made.train()
    assert run.steps == [0, 1, 2, 3]


def test_added_later_and_twice(tmp_path: Path, run: Run) -> None:
    made = trainer(tmp_path, max_steps=2)
    made.add_callback(callback(tmp_path))
    made.add_callback(MsprobeCallback())
    made.train()
    assert run.steps == [0, 1] and [forwards(run, step) for step in run.steps] == [1, 1]


def test_the_same_callback_twice_in_the_list(tmp_path: Path, run: Run) -> None:
    twice = callback(tmp_path)
    trainer(tmp_path, twice, twice, max_steps=2).train()
    assert [forwards(run, step) for step in run.steps] == [1, 1]


class Stream(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    """It does not tell its length: the Trainer knows no last batch of an epoch."""

    def __iter__(self) -> Any:
        data = Data()
        return (data[index] for index in range(len(data)))


@pytest.mark.parametrize(("evaluation", "expected"), [(False, [4, 6]), (True, [4, 8])])
def test_micro_batches_whose_gradients_the_next_epoch_uses(tmp_path: Path, run: Run, evaluation: bool, expected: list[int]) -> None:
    """Epochs of six batches in steps of four: the rest of an epoch belongs to the next optimizer step, and what comes between too."""
    found = []
    for callbacks in ([], [callback(tmp_path, evaluation=evaluation)]):
        losses = Losses()
        made = trainer(
            tmp_path, losses, *callbacks, gradient_accumulation_steps=4, max_steps=2, eval_strategy="epoch" if evaluation else "no"
        )
        made.train_dataset = Stream()
        made.train()
        found.append(outcome(made, losses))
    assert found[0] == found[1]
    assert [forwards(run, step) for step in run.steps][:2] == expected
    assert is_off(made.model)


def test_the_methods_of_the_trainer_are_their_own_again(tmp_path: Path) -> None:
    """As soon as no callback is there any more; and while one is, they have the signature that they had."""
    gc.collect()
    methods = [vars(Trainer)[name] for name in ("train", "evaluation_loop")]
    before = [(method.__code__, dict(vars(method)), inspect.signature(method)) for method in methods]
    made = callback(tmp_path)
    copies = [copy.deepcopy(made), pickle.loads(pickle.dumps(made))]
    assert [inspect.signature(method) for method in methods] == [signature for _, _, signature in before]
    del made
    gc.collect()
    assert all(method.__code__ is not code for method, (code, _, _) in zip(methods, before, strict=True))
    copies.clear()
    gc.collect()
    assert [(method.__code__, dict(vars(method)), inspect.signature(method)) for method in methods] == before


def test_methods_of_the_trainer_that_others_wrap(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after the callback is made."""

    def wrap(name: str) -> None:
        inner = vars(Trainer)[name]
        monkeypatch.setattr(Trainer, name, lambda self, *args, **kwargs: inner(self, *args, **kwargs))

    kept = []
    for _ in range(2):
        for name in ("train", "evaluation_loop"):
            wrap(name)
        kept.append(callback(tmp_path, evaluation=True))
    for name in ("train", "evaluation_loop"):
        wrap(name)
    made = trainer(tmp_path, kept[0], max_steps=2)
    made.train()
    made.evaluate()
    assert [forwards(run, step) for step in run.steps] == [1, 1, 1, 1]
    assert is_off(made.model)


def test_an_error_of_ours_does_not_end_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("planted")

    made = trainer(tmp_path, callback(tmp_path, evaluation=True), max_steps=2)
    for name in ("begin", "end", "pause", "count_from"):
        monkeypatch.setattr(Steps, name, fails)
    made.train()
    made.evaluate()
    assert made.state.global_step == 2
    assert "recording failed in MsprobeCallback.on_step_begin, the training goes on: RuntimeError('planted')" in caplog.text


def test_a_training_inside_of_another_one(tmp_path: Path, run: Run) -> None:
    """The outer Trainer is known again afterwards, with the wrapper of its model."""
    shared = callback(tmp_path)
    inner = trainer(tmp_path, shared, max_steps=1)

    wrapped = []

    class Watches(TrainerCallback):  # type: ignore[misc]
        def on_epoch_begin(self, *_: Any, **__: Any) -> None:
            inner.train()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            wrapped.append(shared._model(None))

    outer = trainer(tmp_path, shared, Watches(), max_steps=1)
    outer.train()
    assert wrapped == [outer.model_wrapped]
    assert [forwards(run, step) for step in run.steps] == [1, 1]


def test_a_trainer_without_it_is_left_alone(tmp_path: Path, run: Run) -> None:
    callback(tmp_path)
    made = trainer(tmp_path)
    made.train()
    made.evaluate()
    assert not (tmp_path / "dump").exists()
    assert Trainer.train.__name__ == "train" and "resume_from_checkpoint" in str(__import__("inspect").signature(Trainer.train))


def test_copies_of_the_callback(tmp_path: Path, run: Run) -> None:
    first = callback(tmp_path)
    for made in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        trainer(tmp_path, made, max_steps=1).train()
    assert run.steps == [0, 1]


def test_a_loop_of_accelerates_own(tmp_path: Path, run: Run) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = Net()
    model, optimizer, loader = accelerator.prepare(
        net, torch.optim.SGD(net.parameters(), lr=0.1), torch.utils.data.DataLoader(Data(8), batch_size=2)
    )
    debugger = PrecisionDebugger(level="mix", task="statistics", dump_path=str(tmp_path / "dump"))
    batches = iter(loader)
    for _ in range(2):
        with debugger.record(model):
            for _ in range(2):
                with accelerator.accumulate(model):
                    accelerator.backward(model(**next(batches))["loss"])
                    optimizer.step()
                    optimizer.zero_grad()
    assert [forwards(run, step) for step in run.steps] == [2, 2]


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="debugger is str, not a PrecisionDebugger"):
        MsprobeCallback(debugger="config.json")
    debugger = PrecisionDebugger(level="L1", dump_path=str(tmp_path / "dump"))
    with pytest.raises(UsageError, match="give one of them"):
        MsprobeCallback("config.json", debugger=debugger)


def test_a_missing_package_is_one_message() -> None:
    from msprobe.integrations import steps

    with pytest.raises(ImportError, match=r"pip install transformers") as caught:
        steps.needed("no_such_package", "transformers")
    assert isinstance(caught.value, MissingPackageError) and isinstance(caught.value, MsprobeException)


def test_a_process_that_has_no_debugger_of_its_own_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was forked; or it was spawned, and unpickled a callback that had been given a debugger."""
    made = callback(tmp_path)
    session = PrecisionDebugger._session
    assert session is not None
    with monkeypatch.context() as patch:
        patch.setattr(session, "pid", -1)
        trainer(tmp_path, made, max_steps=2).train()
    given = MsprobeCallback(debugger=PrecisionDebugger())
    monkeypatch.setattr(PrecisionDebugger, "_session", None)
    trainer(tmp_path, given, max_steps=2).train()
    told = [record.message for record in caplog.records if record.levelno >= logging.WARNING and record.name == "msprobe"]
    assert ["forked" in text for text in told] == [True, False] and "give it config_path instead of debugger" in told[1]
    assert not (tmp_path / "dump").exists()


@pytest.mark.slow
def test_two_ranks_as_torchrun_starts_them(tmp_path: Path) -> None:
    """DistributedDataParallel as the Trainer makes it: the same bits on each rank, a directory for each, the wrapper's names."""
    done = as_torchrun(tmp_path, "integrations.trainers", str(tmp_path))
    assert [rank.returncode for rank in done] == [0, 0], done
    for rank in range(2):
        without, recorded = json.loads((tmp_path / f"outcome{rank}.json").read_text())
        assert without == recorded
        names = json.loads((tmp_path / "dump" / "step0" / f"rank{rank}" / "dump.json").read_text())["data"]
        assert "Module.module.fc.Linear.forward.1" in names
        assert "Module.module.head.Linear.parameters_grad.2" in names  # after the reduction
        assert (tmp_path / "dump" / "step1" / f"rank{rank}" / "dump.json").exists()
