"""What is recorded of a model runner, held against a stand-in; the real one: test_vllm.py."""

from __future__ import annotations

import gc
import json
import logging
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import xxhash

from integrations.vllm.standin import InputBatch, configuration, ready, runner_module, scheduled
from msprobe.integrations.vllm import runner as watching
from msprobe.integrations.vllm.batch import batch_of
from msprobe.pytorch import PrecisionDebugger
from pytorch.capturing import Run


@pytest.fixture
def told() -> Iterator[list[str]]:
    texts: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    handler = Handler(logging.WARNING)
    logging.getLogger("msprobe").addHandler(handler)
    yield texts
    logging.getLogger("msprobe").removeHandler(handler)


def watched(path: Path, **config: Any) -> ModuleType:
    """The module of the runner, watched with this config.json; `dump_path` is `path / "dump"`."""
    module = runner_module()
    file = path / "config.json"
    file.write_text(json.dumps({"task": "statistics", "dump_path": str(path / "dump"), "level": "mix", **config}))
    watching.watch(module, str(file))
    return module


def metas(run: Run) -> list[dict[str, Any]]:
    return [json.loads((run.step(number).directory / "meta.json").read_text()) for number in run.steps]


A, B = [1, 5, 7, 9, 2, 3], [1, 8]


def engine(module: Any, **config: Any) -> Any:
    return ready(module.GPUModelRunner(configuration(**config)), a=A, b=B)


def steps(one: Any) -> list[Any]:
    """Three steps with tokens, and two without."""
    given: list[Any] = [one.execute_model(scheduled())]
    for counts in ({"a": 4}, {"a": 2, "b": 2}):
        given += [one.execute_model(scheduled(**counts)), one.sample_tokens(None)]
    return [*given, one.execute_model(scheduled())]


def test_a_step_is_one_call_with_tokens_and_its_sampling(tmp_path: Path) -> None:
    plain = steps(engine(runner_module()))
    assert steps(engine(watched(tmp_path))) == plain
    run = Run(tmp_path / "dump")
    assert run.steps == [0, 1]
    for number in run.steps:
        names = run.step(number).names
        assert "Module.mix.Linear.forward.0" in names and "Functional.softmax.0.forward" in "".join(names).replace("Torch", "Functional")
        assert not any(name.endswith(".forward.1") for name in names if name.startswith("Module."))


def test_which_rows_belong_to_which_request(tmp_path: Path) -> None:
    steps(engine(watched(tmp_path, level="L0")))
    first, second = (meta["batch"] for meta in metas(Run(tmp_path / "dump")))
    assert first["tokens"] == 4 and second["tokens"] == 4
    assert [(one["id"], one["rows"], one["positions"], one["prompt_tokens"]) for one in first["requests"]] == [("a", [0, 4], [0, 4], 6)]
    a, b = second["requests"]
    assert (a["id"], a["rows"], a["positions"]) == ("a", [0, 2], [4, 6]) and a["prompt"] == first["requests"][0]["prompt"]
    assert (b["id"], b["rows"], b["positions"], b["prompt_tokens"]) == ("b", [2, 4], [0, 2], 2) and b["prompt"] != a["prompt"]


def test_which_tokens_a_request_has_so_far(tmp_path: Path) -> None:
    """Two samples of one prompt differ in nothing else."""
    batch = InputBatch({"a": A, "b": B}, {"a": 4, "b": 0})
    runner = SimpleNamespace(input_batch=batch)
    batch.token_ids_cpu[0, 6] = 9  # generated
    batch.num_computed_tokens_cpu[0] = 6
    a, b = batch_of(runner, scheduled(a=1, b=2))["requests"]
    assert a["sequence"] == xxhash.xxh64_hexdigest(np.array([*A, 9], "<i4").tobytes()) != a["prompt"]
    assert b["sequence"] == b["prompt"]
    batch.token_ids_cpu[0, 6] = -1  # scheduled before it is known on the host
    a, b = batch_of(runner, scheduled(a=1, b=2))["requests"]
    assert "sequence" not in a and "prompt" in a and "sequence" in b


def test_which_adapter_a_request_has(tmp_path: Path) -> None:
    batch: Any = InputBatch({"a": A, "b": B}, {"a": 0, "b": 0})
    batch.request_lora_mapping = np.array([0, 3])
    batch.lora_id_to_lora_request = {3: SimpleNamespace(lora_name="german")}
    a, b = batch_of(SimpleNamespace(input_batch=batch), scheduled(a=1, b=2))["requests"]
    assert "lora" not in a and b["lora"] == "german"


@pytest.mark.parametrize("ranks", [1, 2])
def test_over_how_many_ranks_the_model_is_distributed(tmp_path: Path, ranks: int) -> None:
    steps(engine(watched(tmp_path, level="L0"), tensor=ranks))
    found = [meta.get("parallel") for meta in metas(Run(tmp_path / "dump"))]
    assert found == [{"tensor": 2, "pipeline": 1} if ranks == 2 else None] * 2


def test_weights_without_elements_are_told(tmp_path: Path) -> None:
    one = engine(watched(tmp_path, level="L0"))
    one.model.mix.spare = torch.nn.Parameter(torch.empty(0))
    steps(one)
    for meta in metas(Run(tmp_path / "dump")):
        assert meta["empty_weights"]["parameters"] == ["mix.spare"]


def test_the_sampling_is_recorded_where_apis_are(tmp_path: Path) -> None:
    steps(engine(watched(tmp_path, level="L0")))
    assert not any("softmax" in name for name in Run(tmp_path / "dump").step(0).names)


def test_the_second_kind_of_runner(tmp_path: Path) -> None:
    """It keeps the batch in its state, and runs dummies by execute_model."""
    module: Any = watched(tmp_path, level="L0")
    kind = module.GPUModelRunner
    one = engine(module)
    one.execute_model(scheduled(a=4))
    state = type("State", (), {"input_batch": one.input_batch})()
    batch = one.input_batch
    batch.num_computed_tokens_np = batch.num_computed_tokens_cpu
    del batch.num_computed_tokens_cpu, batch.token_ids_cpu
    other = type("Runner", (), {"input_batch": None, "execute_model_state": state})()
    assert batch_of(other, scheduled(a=4)) == {"tokens": 4, "requests": [{"id": "a", "rows": [0, 4], "positions": [0, 4]}]}
    one.sample_tokens(None)
    with pytest.raises(TypeError):  # this runner does not know it; what counts is that nothing was recorded
        kind.execute_model(one, scheduled(a=1), dummy_run=True)
    assert Run(tmp_path / "dump").steps == [0]


def test_what_ends_without_sampling(tmp_path: Path) -> None:
    one = engine(watched(tmp_path, level="L0"))
    assert one.execute_model(scheduled(a=4), "pooling") == "pooled"
    assert Run(tmp_path / "dump").steps == [0]
    one.execute_model(scheduled(a=2))  # and nobody samples
    assert one.execute_model(scheduled(b=2)) is None
    one.sample_tokens(None)
    assert [len(meta["batch"]["requests"]) for meta in metas(Run(tmp_path / "dump"))] == [1, 1, 1]


def test_an_exception_of_the_model_passes_and_the_next_step_works(tmp_path: Path) -> None:
    one = ready(engine(watched(tmp_path)), c=[-1])
    with pytest.raises(ValueError, match="a wrong token"):
        one.execute_model(scheduled(c=1))
    one.execute_model(scheduled(a=4))
    one.sample_tokens(None)
    run = Run(tmp_path / "dump")
    assert run.steps == [0, 1]
    assert [request["id"] for meta in metas(run) for request in meta["batch"]["requests"]] == ["c", "a"]


def test_an_exception_before_the_batch_is_known(tmp_path: Path, told: list[str]) -> None:
    one = engine(watched(tmp_path, level="L0"))
    with pytest.raises(KeyError):
        one.execute_model(scheduled(unknown=1))
    one.execute_model(scheduled(a=4))
    one.sample_tokens(None)
    assert Run(tmp_path / "dump").steps[-1] == 1 and not any("nothing more" in text for text in told)


def test_steps_ranks_and_the_switch(tmp_path: Path) -> None:
    steps(engine(watched(tmp_path, level="L0", step=[1])))
    assert Run(tmp_path / "dump").steps == [1]


def test_the_switch(tmp_path: Path) -> None:
    one = engine(watched(tmp_path, level="L0", dump_enable=False))
    one.execute_model(scheduled(a=4))
    one.sample_tokens(None)
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace("false", "true"))
    one.execute_model(scheduled(b=2))
    one.sample_tokens(None)
    assert Run(tmp_path / "dump").steps == [1]


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"eager": False, "mode": 3}, "compiled code"),
        ({"eager": False, "graphs": (2, 1)}, "captured graphs"),
        ({"eager": False, "graphs": 1}, "captured graphs"),
    ],
)
def test_what_is_not_eager_is_told_and_runs(tmp_path: Path, told: list[str], settings: dict[str, Any], words: str) -> None:
    assert steps(engine(watched(tmp_path), **settings)) == steps(engine(runner_module()))
    assert len(told) == 1 and words in told[0] and "--enforce-eager" in told[0]
    assert not (tmp_path / "dump").exists()


def test_eager_without_the_flag(tmp_path: Path) -> None:
    steps(engine(watched(tmp_path), eager=False))
    assert Run(tmp_path / "dump").steps == [0, 1]


def test_each_replica_has_a_rank_of_its_own(tmp_path: Path) -> None:
    steps(engine(watched(tmp_path, level="L0"), replicas=3, replica=2))
    assert Run(tmp_path / "dump").step(0).directory.name == "rank5"


def test_replicas_of_a_dense_model_have_one_each_too(tmp_path: Path) -> None:
    """vLLM tells each of them that it is the only one."""
    assert watching.rank_of(configuration(replicas=1, replica=0)) is None  # torch.distributed knows it
    steps(engine(watched(tmp_path, level="L0"), replicas=1, replica=2))
    assert Run(tmp_path / "dump").step(0).directory.name == "rank5"


def test_a_wrong_configuration_is_told_and_the_engine_runs(tmp_path: Path, told: list[str]) -> None:
    assert steps(engine(watched(tmp_path, level="L7"))) == steps(engine(runner_module()))
    assert len(told) == 1 and '"level"' in told[0] and "Traceback" not in told[0]
    (tmp_path / "config.json").unlink()
    module = runner_module()
    watching.watch(module, str(tmp_path / "config.json"))
    steps(engine(module))
    assert len(told) == 2 and f"MSPROBE_CONFIG is {tmp_path / 'config.json'}" in told[1]


def test_an_error_of_ours_is_told_and_the_engine_runs(tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("something that this version of vLLM does not have")

    monkeypatch.setattr(watching, "batch_of", broken)
    assert steps(engine(watched(tmp_path))) == steps(engine(runner_module()))
    assert len(told) == 1 and "does not have" in told[0]
    assert PrecisionDebugger._session is not None and PrecisionDebugger._session.window is None


def test_only_the_first_runner_is_recorded(tmp_path: Path, told: list[str]) -> None:
    module = watched(tmp_path, level="L0")
    one, draft = engine(module), engine(module)
    assert len(told) == 1 and "another engine" in told[0]
    draft.execute_model(scheduled(a=4))
    draft.sample_tokens(None)
    assert not (tmp_path / "dump").exists()
    one.execute_model(scheduled(a=4))
    draft.execute_model(scheduled(a=4))
    one.sample_tokens(None)
    assert Run(tmp_path / "dump").steps == [0]


def test_one_engine_after_another(tmp_path: Path, told: list[str]) -> None:
    """A runner that is gone is not kept alive, and the next one is recorded; the steps go on counting."""
    module = watched(tmp_path, level="L0")
    one = engine(module)
    one.model.mix.spare = torch.nn.Parameter(torch.empty(0))
    steps(one)
    gone = [weakref.ref(one), weakref.ref(one.model), weakref.ref(one.model.mix)]
    del one
    gc.collect()
    assert [reference() for reference in gone] == [None, None, None]
    steps(engine(module))
    run = Run(tmp_path / "dump")
    assert run.steps == [0, 1, 2, 3] and run.step(0).names == run.step(2).names
    assert ["empty_weights" in meta for meta in metas(run)] == [True, True, False, False]
    assert told == []


def test_after_a_mistake_the_next_engine_is_recorded(tmp_path: Path, told: list[str]) -> None:
    module = watched(tmp_path, level="L7")
    one = engine(module)
    steps(one)
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace("L7", "L0"))
    steps(engine(module))
    assert len(told) == 1 and Run(tmp_path / "dump").steps == [0, 1]


def test_a_runner_that_samples_inside_of_execute_model(tmp_path: Path) -> None:
    """As in older versions."""
    module: Any = runner_module()
    kind = module.GPUModelRunner
    del kind.sample_tokens
    (tmp_path / "config.json").write_text(json.dumps({"task": "statistics", "dump_path": str(tmp_path / "dump"), "level": "L0"}))
    watching.watch(module, str(tmp_path / "config.json"))
    one = engine(module)
    assert [one.execute_model(scheduled(a=count), "pooling") for count in (4, 2)] == ["pooled"] * 2
    assert Run(tmp_path / "dump").steps == [0, 1]


def test_a_runner_with_an_execute_model_of_its_own_is_told(tmp_path: Path, told: list[str]) -> None:
    module: Any = watched(tmp_path, level="L0")

    class OtherRunner(module.GPUModelRunner):  # type: ignore[misc, name-defined]
        def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None) -> str:
            return "something else"

    one = ready(OtherRunner(configuration()), a=A)
    assert one.execute_model(scheduled(a=4)) == "something else"
    assert len(told) == 1 and "OtherRunner has an execute_model of its own" in told[0]


def test_steps_that_are_not_selected_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server goes on for days after the last selected step."""
    looked: list[Any] = []
    monkeypatch.setattr(watching, "batch_of", lambda *_: looked.append(1))
    steps(engine(watched(tmp_path, level="L0", step=[1])))
    assert looked == [1] and Run(tmp_path / "dump").steps == [1]


def test_a_class_is_watched_once(tmp_path: Path) -> None:
    module: Any = watched(tmp_path)
    before = module.GPUModelRunner.execute_model
    watching.watch(module, "another.json")
    assert module.GPUModelRunner.execute_model is before and before.__name__ == "execute_model"
