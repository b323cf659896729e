"""Real architectures: training keeps its bits, nothing goes wrong unseen, and each call that reaches the loss has its gradients."""

from __future__ import annotations

import copy
import fnmatch
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from capturing import Run, Step, configured, forget_debugger, parse, tensors
from models import MODELS
from nets import Training, bits, differences, seed, train
from reaching import Reached, calls_that_reach, plain_name
from running_again import Checker, load, requiring_grad

from msprobe.format.names import ApiName, ModuleName
from msprobe.format.names import parse as parse_name

DROPOUT = 0.2
TASKS = ("statistics", "tensor")
# Task tensor takes the statistics too, and all models are recorded with it. Statistics alone of these only, else where slow tests run; the
# networks of test_neutrality.py are recorded with both.
WITH_STATISTICS = {"bert", "llama", "mixtral", "resnet", "t5", "wav2vec2"}
IN_EACH_RUN = [name if name in WITH_STATISTICS else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]

_VIEW = r"a view was changed in place, and autograd keeps no gradient of what it was before( \(by [\w.]+\))?"
# Lines of dump_error_info.log that are no fault, as regular expressions.
EXPECTED_LINES = {
    "deepseek_v3": rf"Tensor\.(copy_|__getitem__)\.\d+\.backward: {_VIEW}",  # its rotary embedding fills views of an empty tensor
    "resnet": rf"(Functional\.dropout\.0\.backward|Torch\.flatten\.0\.backward|Module\.dropout\.Dropout\.backward\.0): {_VIEW}",
}
# Modules whose result takes no part in the loss.
UNUSED = {"llava": ["Module.model.vision_tower.post_layernorm.LayerNorm.forward.0"]}  # only the grid of features is used
# Functions of torch that only move, and that no list of overridable functions names.
ONLY_MOVE = {"pack_padded_sequence", "pad_packed_sequence"}

_SIDE_DOOR = "the router's logits leave the module by a hook and are part of the loss: more comes back than by the outputs"
_CHANGED = "its output is a view and changed in place: what comes back through it is unknown"
# Backward entries whose values are not those of the call alone, as shell patterns.
VALUES: dict[str, dict[str, str]] = {
    "mixtral": {f"Module.model.layers.*.{m}.backward.0": _SIDE_DOOR for m in ("MixtralDecoderLayer", "mlp.MixtralSparseMoeBlock")},
    "wav2vec2": {
        "Functional.linear.0.backward": _CHANGED,
        "Module.wav2vec2.feature_projection.projection.Linear.backward.0": _CHANGED,
        "Module.wav2vec2.feature_projection.Wav2Vec2FeatureProjection.backward.0": _CHANGED,
    },
}
# A file does not keep the layout in memory, and in another layout sums are taken in another order.
ULPS = {"resnet": 16}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors; a second thread only costs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """name, task -> what two watched steps of training came to, and their dump; made when first asked for."""

    @cache
    def run(name: str, task: str) -> tuple[dict[str, Any], Run]:
        forget_debugger()
        directory = tmp_path_factory.mktemp(f"{name}_{task}")
        debugger = configured(directory, level="mix", task=task, risk_level="ALL")

        def stop() -> None:
            debugger.stop()
            debugger.step()

        return train(MODELS[name], DROPOUT, debugger.start, stop, steps=2), Run(directory / "dump")

    return run


@cache
def plain(name: str) -> dict[str, Any]:
    """The outcome without the tool."""
    return train(MODELS[name], DROPOUT, lambda model: None, lambda: None, steps=2)


def unexpected_lines(name: str, step: Step) -> list[str]:
    """Lines of dump_error_info.log that are not in EXPECTED_LINES."""
    pattern = EXPECTED_LINES.get(name)
    return [line for line in step.errors.splitlines() if pattern is None or not re.fullmatch(pattern, line)]


@pytest.mark.parametrize("name", MODELS)
def test_the_models_train(name: str) -> None:
    """Otherwise the rest would show little: a finite loss, and all but a few parameters have gradients."""
    outcome = plain(name)
    dtype, _, _, content = outcome["loss 0"]
    assert math.isfinite(torch.frombuffer(bytearray(content), dtype=getattr(torch, dtype.removeprefix("torch."))).item())
    arrived: dict[str, bool] = {}  # in one of the steps: dropout may leave out a layer in the other
    for key, value in outcome.items():
        if key.startswith("step ") and " gradient " in key:
            parameter = key.split(" gradient ")[1]
            arrived[parameter] = arrived.get(parameter, False) or (value is not None and any(value[-1]))
    assert sum(arrived.values()) > 0.8 * len(arrived)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        pytest.param(name, task, marks=[pytest.mark.slow] * (task == "statistics" and name not in WITH_STATISTICS))
        for name in MODELS
        for task in TASKS
    ],
)
def test_training_has_the_same_bits_and_nothing_goes_wrong(runs: Any, name: str, task: str) -> None:
    outcome, run = runs(name, task)
    assert differences(plain(name), outcome) == []
    assert run.steps == [0, 1]
    for number in run.steps:
        step = run.step(number)
        assert len(step.names) > 100
        assert unexpected_lines(name, step) == []
        assert set(parse(step.directory / "meta.json")["not_recorded"]) == set(step.errors.splitlines())


def without_files(record: Any) -> Any:
    """A record without the names of tensor files."""
    if isinstance(record, dict):
        return {key: without_files(value) for key, value in record.items() if key != "data_name"}
    return [without_files(value) for value in record] if isinstance(record, list) else record


# They show memory that nobody has written yet, or write a part of it.
UNINITIALISED = {"new_empty", "empty", "empty_like", "new", "copy_", "__getitem__", "__setitem__", "scatter_"}


@pytest.mark.parametrize("name", IN_EACH_RUN)
def test_both_tasks_record_the_same(runs: Any, name: str) -> None:
    """The same calls in the same order, and the same values. A backward entry that is open while the files are flushed stands later."""
    compared = 0
    for number in (0, 1):
        statistics, tensor = (runs(name, task)[1].step(number).data for task in TASKS)
        assert [text for text in statistics if ".forward" in text] == [text for text in tensor if ".forward" in text]
        assert set(statistics) == set(tensor)
        different = {text for text in statistics if repr(statistics[text]) != repr(without_files(tensor[text]))}
        assert [text for text in different if ".backward" in text or text.split(".")[1] not in UNINITIALISED] == []
        compared += len(statistics) - len(different)
    assert compared > 250


@pytest.mark.parametrize("name", MODELS)
def test_each_tensor_has_its_file(runs: Any, name: str) -> None:
    step = runs(name, "tensor")[1].step(1)
    named = {record["data_name"] for record in tensors(list(step.data.values())) if "data_name" in record}
    assert named == {file.name for file in (step.directory / "dump_tensor_data").iterdir()}
    assert all("data_name" in record for record in tensors(list(step.data.values())) if record["Max"] is not None)


def with_gradients(step: Step) -> dict[str, list[bool]]:
    """Plain name of an operation -> for each of its recorded differentiable calls, in order, whether it has a backward entry."""
    data = step.data
    found: dict[str, list[bool]] = defaultdict(list)
    inside = {name for names, frames in step.stack.values() if "_grouped_mm_fallback_backward" in str(frames) for name in names}
    for text, entry in data.items():
        name = parse_name(text)
        if not isinstance(name, ApiName) or name.direction != "forward" or text in inside:
            continue
        if requiring_grad([entry["input_args"], entry["input_kwargs"]]) and requiring_grad(entry.get("output")):
            found[plain_name(name.api)].append(text.replace(".forward", ".backward") in data)
    return dict(found)


@cache
def reached(name: str) -> Reached:
    return calls_that_reach(MODELS[name], DROPOUT)


def unwatched() -> set[str]:
    """Plain names of what is written down as not recorded."""
    text = resources.files("msprobe.pytorch.dump.api_dump").joinpath("unwatched_ops.yaml").read_text(encoding="utf-8")
    return {plain_name(api) for reasons in yaml.safe_load(text).values() for names in (reasons or {}).values() for api in names} | ONLY_MOVE


@pytest.mark.parametrize("name", MODELS)
def test_each_call_that_reaches_the_loss_has_its_gradients(runs: Any, name: str) -> None:
    """Which those are is found by another function mode and a walk over the graph, and is the same call for call."""
    step = runs(name, "tensor")[1].step(0)
    expected, got = reached(name).apis, with_gradients(step)
    assert set(expected) - set(got) <= unwatched()
    assert set(got) - set(expected) == set()
    for api, calls in got.items():
        assert len(calls) == len(expected[api]), api
        missing = [number for number, (has, should) in enumerate(zip(calls, expected[api], strict=True)) if should and not has]
        assert missing == [], api
        # The graph no longer leads to a view that was changed in place later, though its observers may have seen gradients.
        if name not in EXPECTED_LINES:
            assert calls == expected[api], api


@pytest.mark.parametrize("name", MODELS)
def test_each_module_call_is_recorded(runs: Any, name: str) -> None:
    """As often as plain hooks count; with gradients where they reach the loss; backward entries under their forward's parents."""
    step = runs(name, "tensor")[1].step(0)
    counted: dict[str, int] = defaultdict(int)
    for text in step.data:
        parsed = parse_name(text)
        if isinstance(parsed, ModuleName) and parsed.direction == "forward":
            counted[parsed.path] += 1
    assert dict(counted) == reached(name).modules
    checker = Checker(step, torch.nn.Identity())
    without = [text for text in checker.missing() if text.startswith("Module.")]
    assert without == UNUSED.get(name, [])
    assert checker.wrong_parents() == []


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_parameters_are_those_the_optimizer_got(runs: Any, name: str) -> None:
    outcome, run = runs(name, "tensor")
    for number in run.steps:
        step = run.step(number)
        last: dict[tuple[str, str], Any] = {}
        for text, entry in step.data.items():
            if ".parameters_grad." in text:
                path = text.removeprefix("Module.").split(".parameters_grad.")[0].rpartition(".")[0]
                last.update({(path, key): records[0] for key, records in entry.items()})
        called = {parsed.path for parsed in map(parse_name, step.data) if isinstance(parsed, ModuleName) and parsed.direction == "forward"}
        outcomes = {key.split(" gradient ")[1]: value for key, value in outcome.items() if key.startswith(f"step {number} ")}
        # A module whose parameters are used without calling it has no entries.
        inside = {key: value for key, value in outcomes.items() if key.rpartition(".")[0] in called and value is not None}
        compared = set()
        for (path, key), record in last.items():
            got, expected = bits(load(record, step.directory)), inside[f"{path}.{key}"]
            assert (got[:2], got[3]) == (expected[:2], expected[3]) or _same_elements(record, step, expected), f"{path}.{key}"
            compared.add(expected)
        assert set(inside.values()) <= compared


def _same_elements(record: dict[str, Any], step: Step, expected: Any) -> bool:
    """Equal where the gradient is not laid out row by row: the file is."""
    strides = expected[2]
    tensor = load(record, step.directory)
    laid_out = torch.empty_strided(tuple(tensor.shape), strides, dtype=tensor.dtype).copy_(tensor)
    return bits(laid_out) == expected


def recorded_once(name: str, directory: Path) -> tuple[Step, Any, Training]:
    """One step without dropout, which can be run again: the dump, the model as it was before, the training."""
    seed()
    training = MODELS[name](0.0)
    before = copy.deepcopy(training.model)
    debugger = configured(directory, level="mix", task="tensor", risk_level="ALL")
    debugger.start(training.model)
    training.forward_backward(0)
    debugger.stop()
    debugger.step()
    return Run(directory / "dump").step(), before, training


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_the_call_alone(name: str, tmp_path: Path) -> None:
    """Every backward entry against torch.autograd.grad of that call, run again from its entry and its files."""
    step, before, training = recorded_once(name, tmp_path)
    checker = Checker(step, before, training.context, ULPS.get(name, 4))
    calls = checker.calls("backward")
    apart = {pattern: fnmatch.filter(calls, pattern) for pattern in VALUES.get(name, {})}
    assert all(apart.values()), f"an exception that is none: {apart}"
    left_out = {entry for entries in apart.values() for entry in entries}
    assert [text for entry, parsed in calls.items() if entry not in left_out for text in checker.wrong(entry, parsed)] == []


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this torch has no grouped matrix product")
def test_the_experts_products_are_recorded(runs: Any) -> None:
    """Experts of a mixture are multiplied in one product, which only a private function of torch gives."""
    step = runs("mixtral", "statistics")[1].step(0)
    products = [text for text in step.data if text.startswith("Torch._grouped_mm.")]
    assert products and len([text for text in products if text.endswith(".backward")]) == len(products) / 2
