"""The gradients of every recorded call are those that torch.autograd.grad gives for that call alone, run again from the dump."""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from capturing import Run, Step, configured, forget_debugger, tensors
from nets import NETS, Training, seed
from running_again import Checker, load, same

# Calls that draw random numbers give others when run again; tensors inside torch.func transforms have no values of their own.
NOT_RUN_AGAIN = {"dropouts", "function_transforms"}
# A file does not keep the layout in memory (channels_last, expanded, transposed), and in another layout sums are taken in another order.
# Where one output is made from another, the tool subtracts what comes from inside the call.
ULPS = {"recurrent_cells": 2, "decoder": 2, "convolutions": 4, "mixtral": 4, "llama_with_cache_and_eager_attention": 4}

_HOOKED = "the user's hook stands between our observer and the call"
_ASKED = "only the input's gradient was asked for: the engine leaves out the parameters'"
_SIDE_DOOR = "the router's logits leave the module by a hook and are part of the loss: more comes back than by the outputs"
_SECOND = "the second derivative of the weight flows through the call's own transposition"
# Backward entries whose values are not those of the call alone, as shell patterns.
VALUES: dict[str, dict[str, str]] = {
    "user_hooks": {"Functional.linear.2.backward": _HOOKED, "Module.4.Linear.backward.0": _HOOKED},
    "double_backward": {
        "Functional.linear.0.backward": _ASKED,
        "Functional.linear.1.backward": _ASKED,
        "Functional.linear.0.backward.pass1": _SECOND,
        "Functional.linear.1.backward.pass1": _SECOND,
    },
    "mixtral": {
        "Module.model.layers.*.MixtralDecoderLayer.backward.0": _SIDE_DOOR,
        "Module.model.layers.*.MixtralSparseMoeBlock.backward.0": _SIDE_DOOR,
    },
    "identity_of_arguments": {"Module.0._Identity.backward.0": "asks whether its arguments are the caller's"},
}

_NO_GRAD = "called under no_grad; a view or an in-place result says requires_grad all the same"
_UNUSED = "its differentiable result is not used"
# Forward entries with a differentiable output that took no part in the backward pass.
NO_PART: dict[str, dict[str, str]] = {
    "own_functions": {"Tensor.add_.0.forward": _NO_GRAD},
    "average_by_deepcopy": {f"Tensor.lerp_.{n}.forward": _NO_GRAD for n in range(4)},
    "normed_weights": {"Tensor.t.0.forward": _NO_GRAD},
    "mixtral": {"Torch.topk.2.forward": _UNUSED, "Torch.topk.3.forward": _UNUSED},
}
# Filled from torch.empty: what was there before is any number.
UNINITIALISED = {"mixtral": ("Tensor.__setitem__.1.forward", "Tensor.__setitem__.2.forward")}
# The entry of a call that raised is open to the end of the step: a flush meanwhile writes others before it.
PLACED_LATE = {"caught_errors"}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors; a second thread only costs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def recorded(name: str, directory: Path, level: str = "mix", task: str = "tensor") -> tuple[Step, Any, Training]:
    """One training step of a network: the dump, the model as it was before, and the training as it is after."""
    forget_debugger()
    directory.mkdir(exist_ok=True)
    seed()
    training = NETS[name](0.0)
    before = copy.deepcopy(training.model)
    debugger = configured(directory, level=level, task=task, risk_level="ALL")
    debugger.start(training.model)
    training.forward_backward(0)
    debugger.stop()
    debugger.step()
    return Run(directory / "dump").step(), before, training


def checker_of(name: str, directory: Path, task: str = "tensor") -> Checker:
    step, before, training = recorded(name, directory, task=task)
    return Checker(step, before, training.context, ULPS.get(name, 0))


@pytest.mark.parametrize("name", [name for name in NETS if name not in NOT_RUN_AGAIN])
def test_gradients_are_those_of_the_call_alone(name: str, tmp_path: Path) -> None:
    checker = checker_of(name, tmp_path)
    calls = checker.calls("backward")
    apart = {pattern: fnmatch.filter(calls, pattern) for pattern in VALUES.get(name, {})}
    assert all(apart.values()), f"an exception that is none: {apart}"
    left_out = {entry for entries in apart.values() for entry in entries}
    wrong = [text for entry, parsed in calls.items() if entry not in left_out for text in checker.wrong(entry, parsed)]
    assert wrong == []
    assert sum(len(list(tensors(checker.data[entry]["output"]))) for entry in calls) >= 5, "too little was compared"


# What the optimizer sees is changed after the backward pass, or was never accumulated by it.
CHANGED_LATER = {"recurrent_cells", "functional_call", "function_transforms"}
# What a hook of the net makes of a parameter's gradient once autograd has added it up, and we have read it.
BY_HOOKS = {("user_hooks", "2", "weight"): lambda gradient: gradient.clamp(-0.05, 0.05)}


@pytest.mark.parametrize("name", [name for name in NETS if name not in CHANGED_LATER])
def test_parameter_gradients_are_those_the_optimizer_sees(name: str, tmp_path: Path) -> None:
    step, _, training = recorded(name, tmp_path, "L0")
    data = step.data
    models = [(f"{n}.", model) for n, model in enumerate(training.models)] if isinstance(training.model, list) else [("", training.model)]
    compared = 0
    for prefix, model in models:
        for path, module in model.named_modules():
            entry = f"Module.{prefix}{path}.{type(module).__name__}"
            if not path or f"{entry}.forward.0" not in data:
                continue
            for key, parameter in module._parameters.items():
                found = [data[text][key][0] for text in data if text.startswith(f"{entry}.parameters_grad.") and key in data[text]]
                expected = None if parameter is None else parameter.grad
                if expected is None:
                    assert found == []
                else:
                    change = BY_HOOKS.get((name, path, key), lambda gradient: gradient)
                    assert same(change(load(found[-1], step.directory)), expected, 0, 0.0), f"{entry} {key}"
                    compared += 1
    assert compared, "nothing was compared"


def _recomputed(checker: Checker, text: str) -> bool:
    """Whether a call belongs to a second forward of a checkpointed stage; with use_reentrant=False gradients belong to the first."""
    return any(a.startswith("Module.stages.") and a.endswith("_Stage.forward.1") for a in checker.ancestors(text))


@pytest.mark.parametrize("name", NETS)
def test_nothing_is_missing_and_parents_mirror_those_of_the_forward(name: str, tmp_path: Path) -> None:
    checker = checker_of(name, tmp_path, "statistics")
    missing = checker.missing()
    if name == "checkpoint_non_reentrant":
        missing = [text for text in missing if not _recomputed(checker, text)]
    # Where torch has no grouped matrix product, the operator of transformers that stands in takes views of leaves in its backward pass.
    missing = [text for text in missing if "_grouped_mm_fallback_backward" not in str(checker.step.frames(text))]
    assert sorted(missing) == sorted(NO_PART.get(name, {}))
    assert checker.wrong_parents() == []


@pytest.mark.parametrize("name", NETS)
def test_levels_agree(name: str, tmp_path: Path) -> None:
    """L0 and L1 record the same entries, with the same values, that mix has of modules and of APIs."""
    data = {level: recorded(name, tmp_path / level, level, "statistics")[0].data for level in ("L0", "L1", "mix")}
    modules = {text: entry for text, entry in data["mix"].items() if text.startswith("Module.")}
    apis = {text: entry for text, entry in data["mix"].items() if text not in modules}
    order = sorted if name in PLACED_LATE else list
    assert order(data["L0"]) == order(modules)
    assert order(data["L1"]) == order(apis)
    differing = [text for text, entry in data["mix"].items() if repr(data["L0" if text in modules else "L1"][text]) != repr(entry)]
    assert [text for text in differing if text not in UNINITIALISED.get(name, ())] == []
