"""Training and inference as transformers, Lightning, accelerate and torch.distributed document it, each under its own launcher.

Those that start interpreters of their own, each of which imports such a package, are slow.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launch import programs_of_packages as programs
from launch.runs import Ran, Runs

BIN = Path(sys.executable).parent


def both(runs: Runs, source: str, command: list[str], *options: str) -> Ran:
    """Without and with; lines with times are left out."""
    path = runs.script(source)
    without, done = runs.plain(*command, path), runs.recorded(*command, path, options=options)
    assert without.code == done.code == 0, done.err
    lines = [[line for line in ran.out.splitlines() if "runtime" not in line] for ran in (without, done)]
    assert lines[0] == lines[1] != []
    return done


def test_generate(packages: Runs) -> None:
    done = both(packages, programs.GENERATE, packages.client, "--level", "L0")
    assert len(done.steps()) == 3 and "taken as model: LlamaForCausalLM" in done.said
    assert [done.calls(step).count("model.layers.0.self_attn.q_proj.Linear.0") for step in range(3)] == [1, 1, 1]
    shapes = [done.data(step)["Module.model.embed_tokens.Embedding.forward.0"]["input_args"][0]["shape"] for step in range(3)]
    assert shapes == [[1, 3], [1, 1], [1, 1]]


def test_the_trainer_of_transformers(packages: Runs) -> None:
    done = both(packages, programs.TRAINER, packages.client)
    assert done.steps() == ["step0", "step1"]
    assert [done.calls(step).count(f"lm_head.Linear.{number}") for step in range(2) for number in range(3)] == [1, 1, 0] * 2
    assert any(re.match(r"not recorded as a model: LlamaForCausalLM, \d+ calls \(in evaluation", line) for line in done.said)


@pytest.mark.slow
def test_lightning(alone: Runs) -> None:
    pytest.importorskip("pytorch_lightning")
    done = both(alone, programs.LIGHTNING, [sys.executable])
    assert done.steps() == ["step0", "step1"] and "taken as model: Module" in done.said
    assert done.calls(1) == [
        *(f"net.{name}.0" for name in ("first.Linear", "norm.BatchNorm1d", "last.Linear", "Net")),
        "criterion.CrossEntropyLoss.0",
    ]


def test_accelerate(packages: Runs) -> None:
    done = both(packages, programs.ACCELERATE, packages.client)
    assert done.steps() == ["step0", "step1"] and "taken as model: Net" in done.said
    assert [done.calls(step).count("first.Linear.1") for step in range(2)] == [1, 1]  # two batches are one step


@pytest.mark.slow
def test_the_launcher_of_accelerate(alone: Runs) -> None:
    pytest.importorskip("accelerate")
    done = both(alone, programs.ACCELERATE, [str(BIN / "accelerate"), "launch", "--cpu", "--num_processes", "1"])
    assert done.steps() == ["step0", "step1"]
    assert [done.calls(step).count("first.Linear.1") for step in range(2)] == [1, 1]  # two batches are one step


def once_ended(run: Callable[..., Ran], *command: str) -> Ran:
    """A run whose processes came to their end: a thread of torch's own makes some abort there, with msprobe or without."""
    for _ in range(6):
        done = run(*command)
        if "terminate called without an active exception" not in done.err:
            break
    return done


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "calls"),
    [
        (programs.DDP, ["module.0.Linear.0", "module.1.ReLU.0", "module.2.Linear.0", "module.Sequential.0"]),
        (programs.FSDP, ["0.FSDPLinear.0", "1.ReLU.0", "2.FSDPLinear.0"]),
    ],
    ids=["ddp", "fsdp"],
)
def test_two_ranks(source: str, calls: list[str], alone: Runs) -> None:
    torchrun = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2", alone.script(source)]
    losses = []
    for run in (alone.plain, alone.recorded):
        done = once_ended(run, *torchrun)
        assert done.code == 0, done.err
        losses.append([(alone.directory / f"losses{rank}.txt").read_text() for rank in range(2)])
    assert losses[0] == losses[1]
    assert [done.calls(step, f"rank{rank}") for step in range(3) for rank in range(2)] == [calls] * 6
    assert f"recorded 3 steps (0-2) in each of 2 processes: {done.dump}" in done.said
