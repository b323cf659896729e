"""Weights in two dtypes: one that is off is no pass where nobody trained, and none is blamed where the two runs were trained apart.

What is wanted of the weights' rows with --accept-dtype:

    nobody trained                                  pass, code 0
    trained apart, 1, 5, 50 steps                   never error: pass where a cast explains it, else warning or not compared
    one weight off by 25 or 5 %, others beside it   error, code 1
    one weight off, and no other                    warning or not compared
    one weight off by 1 %                           never pass: error where enough others tell
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import msprobe
from comparison.commands import compare
from msprobe.comparison.judging.weights import NOT_JUDGED

from .planting import record

WIDTH = 16
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, eps=1e-5),
}
SLOW = pytest.mark.slow
PAIRS = [
    ("bf16", "fp32"),
    pytest.param("fp16", "fp32", marks=SLOW),
    pytest.param("fp32", "fp64", marks=SLOW),
    pytest.param("bf16", "fp64", marks=SLOW),
]
SIZES = [1, 2, 3, 8, pytest.param(40, marks=SLOW)]


class Net(nn.Module):
    """So many weights: a linear without and with a bias, one and a half of them, else linears with a norm each."""

    def __init__(self, weights: int) -> None:
        super().__init__()
        if weights <= 2:
            layers: list[nn.Module] = [nn.Linear(WIDTH, WIDTH, bias=weights == 2)]
        elif weights == 3:
            layers = [nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH, bias=False)]
        else:
            each = (lambda: nn.Linear(WIDTH, WIDTH), lambda: nn.LayerNorm(WIDTH), nn.GELU)
            layers = [make() for _ in range(weights // 4) for make in each]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def step(model: nn.Module, seed: int) -> None:
    dtype = next(model.parameters()).dtype
    generator = torch.Generator().manual_seed(seed)
    x, wanted = (torch.randn(32, WIDTH, generator=generator).to(dtype) for _ in range(2))
    (model(x) - wanted).double().square().mean().backward()


def trained(weights: int, dtype: str, optimizer: str, steps: int) -> nn.Module:
    """`steps` of 0: nobody has trained it."""
    torch.manual_seed(5)
    model = Net(weights).to(DTYPES[dtype])
    update = OPTIMIZERS[optimizer](model.parameters())
    for number in range(steps):
        update.zero_grad()
        step(model, 100 + number)
        update.step()
    update.zero_grad()
    return model


def faulty(weights: int, dtype: str, which: int, by: float) -> nn.Module:
    torch.manual_seed(5)
    model = Net(weights)
    with torch.no_grad():
        [*model.parameters()][which].mul_(1.0 + by)
    return model.to(DTYPES[dtype])


Recorded = Callable[..., Path]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Matrices as small as these cost more to hand to other threads than to multiply."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The dump of a model, recorded once for the same arguments."""
    done: dict[tuple[Any, ...], Path] = {}

    def get(make: Callable[..., nn.Module], *how: Any, level: str = "L0", task: str = "statistics") -> Path:
        key = (make, *how, level, task)
        if key not in done:
            directory = tmp_path_factory.mktemp("run") / "dump"
            done[key] = record(directory, make(*how), lambda model, _: step(model, 1), level=level, task=task)
        return done[key]

    return get


def weights_of(result: msprobe.Comparison) -> dict[str, str]:
    """The word for each weight."""
    return {
        row["NPU Name"]: row["Result"] for row in result.records if ".forward." in row["NPU Name"] and ".parameters." in row["NPU Name"]
    }


def runs_apart() -> Iterator[tuple[str, int]]:
    return ((optimizer, steps) for optimizer in OPTIMIZERS for steps in (1, 5, 50))


@pytest.mark.parametrize(("low", "high"), PAIRS)
@pytest.mark.parametrize("weights", SIZES)
def test_runs_trained_apart_are_not_blamed(weights: int, low: str, high: str, recorded: Recorded) -> None:
    untrained = msprobe.compare(*(recorded(trained, weights, dtype, "SGD", 0) for dtype in (low, high)), accept_dtype=True)
    assert set(weights_of(untrained).values()) == {"pass"} and untrained.passed
    moved = 0
    for optimizer, steps in runs_apart():
        result = msprobe.compare(*(recorded(trained, weights, dtype, optimizer, steps) for dtype in (low, high)), accept_dtype=True)
        words = weights_of(result)
        assert len(words) == weights and "error" not in words.values(), (optimizer, steps)
        odd = [word for word in words.values() if word != "pass"]
        moved += bool(odd)
        told = "\n".join(result.compared[0].notes)
        assert ("of the other side's (first: " in told) == bool(odd)
        assert result.passed == ("not compared" not in words.values())
    assert moved  # else nothing was tried


@pytest.mark.parametrize(("low", "high"), PAIRS)
@pytest.mark.parametrize("weights", SIZES)
def test_a_weight_that_is_off_is_no_pass(weights: int, low: str, high: str, recorded: Recorded) -> None:
    golden = recorded(trained, weights, high, "SGD", 0)
    for which in {0, weights // 2 - weights // 2 % 4 if weights > 3 else weights - 1}:
        for by in (0.25, 0.05, 0.01):
            result = msprobe.compare(recorded(faulty, weights, low, which, by), golden, accept_dtype=True)
            odd = [word for word in weights_of(result).values() if word != "pass"]
            assert len(odd) == 1, (which, by)
            if weights == 1:
                assert odd[0] in ("warning", "not compared")
            elif by > 0.01 or weights >= 8:
                assert odd == ["error"] and not result.passed, (which, by)


def test_a_weight_that_is_off_by_a_quarter_in_a_net_of_two(recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = recorded(faulty, 2, "bf16", 0, 0.25), recorded(trained, 2, "fp32", "SGD", 0)
    ran = compare(capsys, *paths, tmp_path / "o", "--accept-dtype")
    assert ran.code == 1
    assert ran.out.startswith("Inputs equal up to rounding, weight `weight` of `layers.0` differs (forward, step 0)")
    assert "error: The parameter differs." in ran.messages("Module.layers.0.Linear.forward.0.parameters.weight")
    assert "not judged" not in ran.out


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_single_weight_is_not_judged(task: str, recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is no other one that could tell whether it was trained."""
    name = "Module.layers.0.Linear.forward.0.parameters.weight"
    paths = recorded(faulty, 1, "bf16", 0, 0.05, task=task), recorded(trained, 1, "fp32", "SGD", 0, task=task)
    ran = compare(capsys, *paths, tmp_path / "o", "--accept-dtype")
    assert ran.code == 0 and ran.result(name) == "warning"
    said = ran.messages(name)
    assert said[0].startswith(
        "warning: no cast explains it, and whether the two runs were trained apart or it is another weight cannot be told"
    )
    assert said[1].startswith("size: within what rounding explains (")
    assert said[2].startswith("cast: more than rounding from one dtype to the other: its ")
    assert f"note: 1 of 1 weight is no cast of the other side's (first: {name}): either the two runs were trained apart" in ran.out
    assert f"; 1 of 1 weight was not judged (first: {name}: no cast of the golden run's)." in ran.out


def test_a_single_weight_that_is_far_off_is_not_compared(recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Farther than training apart in bf16 explains."""
    name = "Module.layers.0.Linear.forward.0.parameters.weight"
    paths = recorded(faulty, 1, "bf16", 0, 0.5), recorded(trained, 1, "fp32", "SGD", 0)
    ran = compare(capsys, *paths, tmp_path / "o", "--accept-dtype")
    assert ran.code == 1 and ran.result(name) == "not compared"
    assert ran.messages(name)[0] == f"not compared: {NOT_JUDGED}."
    assert (
        "  1 not compared although recorded; the first: Module.layers.0.Linear.forward.0.parameters.weight: no cast explains it" in ran.out
    )


def test_without_accept_dtype_the_dtype_is_the_error(recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = recorded(faulty, 1, "bf16", 0, 0.05), recorded(trained, 1, "fp32", "SGD", 0)
    ran = compare(capsys, *paths, tmp_path / "o")
    assert ran.code == 1 and {row["Result"] for row in ran.rows} == {"error"}
    assert "error: The parameter differs." not in ran.messages("Module.layers.0.Linear.forward.0.parameters.weight")
    assert "--accept-dtype" in ran.out and "1 of 1 weight was not judged" in ran.out
    assert "none passes" not in ran.out  # that is what --accept-dtype would say


def adapted(dtype: str, steps: int) -> nn.Module:
    """Eight frozen weights, and one that is trained."""
    torch.manual_seed(5)
    model = nn.Sequential(Net(8), nn.Linear(WIDTH, WIDTH, bias=False))
    model[0].requires_grad_(False)
    model = model.to(DTYPES[dtype])
    update = torch.optim.AdamW(model[1].parameters(), lr=1e-3)
    for number in range(steps):
        update.zero_grad()
        step(model, 100 + number)
        update.step()
    update.zero_grad()
    return model


def test_frozen_weights_say_nothing_about_a_trained_one(recorded: Recorded) -> None:
    result = msprobe.compare(recorded(adapted, "bf16", 40), recorded(adapted, "fp32", 40), accept_dtype=True)
    words = weights_of(result)
    frozen = [word for name, word in words.items() if ".0.layers." in name]
    assert len(frozen) == 8 and {*frozen} == {"pass"}
    assert words["Module.1.Linear.forward.0.parameters.weight"] == "warning"
