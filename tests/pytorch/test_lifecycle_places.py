"""start, stop and step where users put them: inside a model in another file, around each token, in loops without any module."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from capturing import Run, configured, environment

import warm_python
from msprobe.pytorch import PrecisionDebugger

X = torch.ones(1, 2)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "dump")


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    """The log's lines."""
    logger = logging.getLogger("msprobe")
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "msprobe")
    yield lambda level=logging.INFO: [record.getMessage() for record in caplog.records if record.levelno >= level]
    logger.removeHandler(caplog.handler)


# --- inside a model -------------------------------------------------------------------------------------------------------------------
TRAIN = """
import torch
from msprobe.pytorch import PrecisionDebugger
debugger = PrecisionDebugger(config_path="config.json")
from module import ModuleOP
if __name__ == "__main__":
    module = ModuleOP()
    for _ in range(2):
        module(torch.randn(10, 8)).sum().backward()
"""
MODULE = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from msprobe.pytorch import PrecisionDebugger

class ModuleOP(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_1 = nn.Linear(8, 4)
        self.linear_2 = nn.Linear(4, 2)
    def forward(self, x):
        PrecisionDebugger.start()
        x1 = self.linear_1(x)
        PrecisionDebugger.stop()
        x2 = self.linear_2(x1)
        PrecisionDebugger.start()
        r1 = F.relu(x2)
        PrecisionDebugger.stop()
        return r1
"""


def test_the_manual_s_two_files(tmp_path: Path, run: Run) -> None:
    """No step() anywhere: everything is one step, ended with the program; the backward pass after stop() is in it."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "config.json").write_text('{"dump_path": "./dump", "level": "L1"}')
    done = subprocess.run(
        [*warm_python.command(), "train.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    step = run.step()
    names = [f"Functional.{name}.{i}.{way}" for i in (0, 1) for name in ("linear", "relu") for way in ("forward", "backward")]
    assert sorted(step.names) == sorted(names) and run.steps == [0]
    assert "step 0 was not ended by step(); it is ended now" in done.stderr


class Nested(nn.Module):
    """Starts and stops around parts of itself, at two depths."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.inner = Nested(depth - 1) if depth else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        PrecisionDebugger.start()
        x = torch.relu(x)
        if self.inner is not None:
            x = self.inner(x)
        PrecisionDebugger.stop()
        return torch.tanh(self.fc(x))


def test_a_start_inside_another_s_region_changes_nothing_and_the_first_stop_ends_it(tmp_path: Path, run: Run) -> None:
    configured(tmp_path, level="L1")
    model = Nested(2)
    for _ in range(2):
        model(X).sum().backward()
    PrecisionDebugger.step()
    assert sorted(name for name in run.step().names if "forward" in name) == [f"Torch.relu.{i}.forward" for i in range(6)]


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_module_that_gives_itself(tmp_path: Path, run: Run, level: str) -> None:
    """Several modules of one model start with themselves as the model: names count from each of them."""

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            PrecisionDebugger.start(self)
            x = self.fc(x)
            PrecisionDebugger.stop()
            return x

    configured(tmp_path, level=level)
    model = nn.Sequential(Part(), Part())
    for _ in range(2):
        model(X)
    PrecisionDebugger.step()
    assert [name for name in run.step().names if "Module" in name] == [f"Module.fc.Linear.forward.{i}" for i in range(4)]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


# --- models that change ---------------------------------------------------------------------------------------------------------------
def modules(run: Run, number: int) -> list[str]:
    return [name for name in run.step(number).names if name.startswith("Module")]


def test_a_model_that_changes_between_starts(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="L0")
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def once(given: Any = model) -> None:
        debugger.start(given)
        model(X)
        debugger.step()

    once()
    old, model[1] = model[1], nn.Tanh()
    once()
    model.append(nn.Linear(2, 2))
    once()
    del model[0]
    once()
    assert not old._forward_hooks
    assert modules(run, 0) == ["Module.0.Linear.forward.0", "Module.1.ReLU.forward.0"]
    assert modules(run, 1) == ["Module.0.Linear.forward.0", "Module.1.Tanh.forward.0"]
    assert modules(run, 2) == ["Module.0.Linear.forward.0", "Module.1.Tanh.forward.0", "Module.2.Linear.forward.0"]
    assert modules(run, 3) == ["Module.0.Tanh.forward.0", "Module.1.Linear.forward.0"]


def test_the_same_modules_in_other_containers(tmp_path: Path, run: Run) -> None:
    """F39 of the reference: hooked twice, counted twice."""
    debugger = configured(tmp_path, level="L0")
    model = nn.Sequential(nn.Linear(2, 2))
    for given in ([model], (model,), model, [model, model], nn.Sequential(model)):
        debugger.start(given)
        model(X)
        debugger.step()
    one = "Module.{}0.Linear.forward.0"
    assert [modules(run, number) for number in range(4)] == [[one.format("0.")], [one.format("0.")], [one.format("")], [one.format("0.")]]
    assert modules(run, 4) == ["Module.0.0.Linear.forward.0", "Module.0.Sequential.forward.0"]


def test_another_model_within_one_step(tmp_path: Path, run: Run) -> None:
    """Generator and discriminator: one step, one count of names."""
    debugger = configured(tmp_path, level="L0")
    generator, discriminator = nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    for model in (generator, discriminator, generator):
        debugger.start(model)
        model(X)
        debugger.stop()
    debugger.step()
    assert [name for name in modules(run, 0) if "Linear" in name] == [f"Module.0.Linear.forward.{i}" for i in range(3)]
    assert not generator[0]._forward_hooks and not discriminator[0]._forward_hooks


def test_a_module_that_is_added_inside_the_window_is_not_seen_until_the_next_start(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="L0")
    model = nn.Sequential(nn.Linear(2, 2))
    debugger.start(model)
    model.append(nn.ReLU())
    model(X)
    debugger.stop()
    debugger.start(model)
    model(X)
    debugger.step()
    assert modules(run, 0) == ["Module.0.Linear.forward.0", "Module.0.Linear.forward.1", "Module.1.ReLU.forward.0"]


# --- no module at all -----------------------------------------------------------------------------------------------------------------
def test_functions_and_optimizers_without_a_module(tmp_path: Path, run: Run) -> None:
    debugger = configured(tmp_path, level="L1", risk_level="ALL")
    weight = torch.ones(2, 2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.1)
    for _ in range(2):
        debugger.start()
        F.mse_loss(X @ weight, X).backward()
        optimizer.step()
        debugger.stop()
        debugger.step()
    for number in (0, 1):
        forward = run.step(number).forward()
        assert list(forward)[:2] == ["Tensor.__matmul__.0.forward", "Functional.mse_loss.0.forward"]
        assert "Functional.mse_loss.0.backward" in run.step(number).data and run.step(number).construct == {}


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_a_generator_that_yields_inside_the_window(tmp_path: Path, run: Run, level: str) -> None:
    """A loop that hands out one token at a time, with a window around each."""
    debugger = configured(tmp_path, level=level)
    model = nn.Sequential(nn.Linear(2, 2))

    def tokens() -> Iterator[torch.Tensor]:
        x = X
        while True:
            debugger.start(model)
            x = torch.tanh(model(x))
            yield x
            debugger.stop()
            debugger.step()

    stream = tokens()
    for _ in range(3):
        next(stream)
        torch.sigmoid(X)  # the consumer runs inside the window
    stream.close()
    debugger.step()
    for number in range(3):
        names = run.step(number).names
        assert [name for name in names if name.startswith(("Functional", "Torch"))] == [
            "Functional.linear.0.forward",
            "Torch.tanh.0.forward",
            "Torch.sigmoid.0.forward",
        ]
        assert ("Module.0.Linear.forward.0" in names) == (level == "mix")


# --- text generation ------------------------------------------------------------------------------------------------------------------
def llama() -> Any:
    os.environ["HF_HUB_OFFLINE"] = "1"
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        eos_token_id=None,
        bos_token_id=1,
        pad_token_id=0,
    )
    return transformers.LlamaForCausalLM(config).eval()


WORDS = torch.tensor([[1, 5, 9]])


@pytest.fixture(scope="module")
def model() -> Any:
    return llama()


def generate(model: Any, new: int, **more: Any) -> torch.Tensor:
    return model.generate(WORDS, max_new_tokens=new, do_sample=False, attention_mask=torch.ones_like(WORDS), **more)


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_range_of_tokens_of_generate(tmp_path: Path, run: Run, model: Any, level: str) -> None:
    """The cache shows which tokens these are: their queries are one word long, and their keys grow."""
    plain = generate(model, 6)
    debugger = configured(tmp_path, level=level)
    debugger.start(model, token_range=[1, 3])
    watched = generate(model, 6)
    debugger.stop()
    debugger.step()
    assert torch.equal(plain, watched)
    data = run.step().data
    if level == "L0":
        heads = [name for name in data if name.startswith("Module.lm_head.")]
        assert heads == [f"Module.lm_head.Linear.forward.{i}" for i in range(3)]
        assert [data[name]["input_args"][0]["shape"] for name in heads] == [[1, 1, 16]] * 3
        return
    attention = [entry for name, entry in data.items() if name.startswith("Functional.scaled_dot_product_attention.")]
    assert [entry["input_args"][1]["shape"][2] for entry in attention] == [4, 4, 5, 5, 6, 6]


def test_one_step_for_each_token(tmp_path: Path, run: Run, model: Any) -> None:
    """start, stop and step from inside generate(), by a criterion for stopping that never stops."""
    transformers = pytest.importorskip("transformers")
    debugger = configured(tmp_path, level="mix", step=["1-2"])
    plain = generate(model, 4)

    class EachToken(transformers.StoppingCriteria):
        def __call__(self, words: torch.Tensor, scores: Any, **more: Any) -> torch.Tensor:
            debugger.stop()
            debugger.step()
            debugger.start(model)
            return torch.zeros(len(words), dtype=torch.bool)

    debugger.start(model)
    assert torch.equal(plain, generate(model, 4, stopping_criteria=transformers.StoppingCriteriaList([EachToken()])))
    debugger.stop()
    debugger.step()
    assert run.steps == [1, 2]
    for number in (1, 2):
        step = run.step(number)
        keys = step.data["Functional.scaled_dot_product_attention.0.forward"]["input_args"][1]["shape"][2]
        assert keys == 3 + number and "Module.lm_head.Linear.forward.0" in step.data
        assert "Module.lm_head.Linear.forward.1" not in step.data


def test_all_of_generate_at_L1_without_the_model(tmp_path: Path, run: Run, model: Any) -> None:
    plain = generate(model, 3)
    debugger = configured(tmp_path, level="L1")
    debugger.start()
    assert torch.equal(plain, generate(model, 3))
    debugger.stop()
    debugger.step()
    assert sum(name.startswith("Functional.scaled_dot_product_attention.") for name in run.step().names) == 6


# --- the closing line -----------------------------------------------------------------------------------------------------------------
def test_the_closing_line_says_what_came_by_and_why_something_is_missing(tmp_path: Path, run: Run, told: Any) -> None:
    debugger = configured(tmp_path, level="mix", risk_level="FOCUS", task="tensor")
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), torch.jit.script(nn.Tanh()))
    debugger.start(model)
    model(X).reshape(2).sum()
    for _ in range(3):
        torch.relu(torch.ones(2, device="meta"))
    debugger.step()
    (closing,) = [line for line in told() if line.startswith("[step 0]")]
    step = run.step()
    apis = [name for name in step.forward() if not name.startswith("Module")]
    assert f"(modules 2/2, APIs {len(apis)}/{len(apis) + 1})" in closing, "reshape is left out by FOCUS"
    assert "not recorded: 7 (6 × a meta tensor has no values, 1 × a scripted module takes no hooks; see dump_error_info.log)" in closing
    size = sum(path.stat().st_size for path in step.directory.rglob("*") if path.name not in ("meta.json", "dump_error_info.log"))
    told_size = float(closing.partition(" MB, +")[0].rpartition(", ")[2])
    assert abs(told_size - size / 1e6) < 0.06
    assert len(step.errors.splitlines()) == 7
