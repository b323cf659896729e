"""Two runs that begin apart: unseeded, or in another dtype; and a gradient that was not set to zero."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe
from msprobe.comparison.options import Options
from msprobe.comparison.sentence import lead

from .dumps import api, module, tensor, write_dump

Json = dict[str, Any]


def linear(data: float, weight: float, shape: list[int] | None = None) -> Json:
    return {"Functional.linear.0.forward": api([tensor(data, shape=shape or [2, 3]), tensor(weight)], [tensor(data * weight)])}


def modules(data: float, weight: float) -> Json:
    return {
        "Module.norm.LayerNorm.forward.0": module([tensor(data)], [tensor(data)], weight=tensor(1.0)),
        "Module.fc.Linear.forward.0": module([tensor(data)], [tensor(data * weight)], weight=tensor(weight)),
    }


def told(root: Path, target: Json, golden: Json, step: int = 0, seeds: tuple[int | None, int | None] = (None, None)) -> list[str]:
    for side, data, seed in (("t", target, seeds[0]), ("g", golden, seeds[1])):
        directory = root / side / f"step{step}" / "rank0"
        write_dump(directory, data)
        if seed is not None:
            (directory / "meta.json").write_text(json.dumps({"torch_seed": seed}))
    return [line.text for line in describe(compare(root / "t", root / "g", root / "o"))]


@pytest.mark.parametrize("made", [linear, modules])
def test_other_data_and_other_weights_look_unseeded(made: Any, tmp_path: Path) -> None:
    first, advice, *_ = told(tmp_path, made(3.0, 5.0), made(2.0, 7.0), seeds=(11, 22))
    assert "they look unseeded, or begin from other checkpoints" in first
    assert "seed_all()" in advice
    assert "torch's seed was 11 in the target and 22 in the golden run" in advice


@pytest.mark.parametrize(
    ("seeds", "said"), [((11, 11), "the same in both, 11"), ((None, 11), "with the same data."), ((None, None), "with the same data.")]
)
def test_seeds_that_are_equal_or_unknown(seeds: tuple[int | None, int | None], said: str, tmp_path: Path) -> None:
    assert said in told(tmp_path, linear(3.0, 5.0), linear(2.0, 7.0), seeds=seeds)[1]


@pytest.mark.parametrize(
    ("target", "golden", "step"),
    [
        (linear(3.0, 5.0), linear(2.0, 5.0), 0),  # other data alone
        (linear(3.0, 5.0), linear(3.0, 7.0), 0),  # other weights alone
        (linear(3.0, 5.0), linear(2.0, 7.0), 4),  # not the begin of the run
        (linear(3.0, 5.0, [4, 3]), linear(2.0, 7.0, [2, 3]), 0),  # another model, or batch
    ],
)
def test_what_does_not_look_unseeded(target: Json, golden: Json, step: int, tmp_path: Path) -> None:
    assert not any("unseeded" in text or "seed_all" in text for text in told(tmp_path, target, golden, step))


@pytest.mark.parametrize(("step", "hint"), [(0, False), (1, True)])
def test_a_gradient_that_alone_differs_may_be_an_earlier_steps(step: int, hint: bool, tmp_path: Path) -> None:
    def dump(gradient: float) -> Json:
        return {**modules(3.0, 5.0), "Module.fc.Linear.parameters_grad.0": {"weight": [tensor(gradient)]}}

    first = told(tmp_path, dump(3.0), dump(2.0), step)[0]
    assert first.startswith("Everything before it equal, the gradient of `weight` in `fc` differs")
    assert ("it may hold an earlier step's gradient (zero_grad)" in first) is hint


@pytest.mark.parametrize("accept", [False, True])
def test_another_dtype_comes_before_a_weight_of_a_later_step(accept: bool, tmp_path: Path) -> None:
    for side, dtype, later in (("t", "bfloat16", 1.5), ("g", "float32", 1.0)):
        for step, weight in ((0, 1.0), (1, later)):
            record = tensor(2.0, dtype=dtype)
            data = {"Module.norm.LayerNorm.forward.0": module([record], [record], weight=tensor(weight, dtype=dtype), bias=record)}
            write_dump(tmp_path / side / f"step{step}" / "rank0", data)
    first = lead(compare(tmp_path / "t", tmp_path / "g", tmp_path / "o", Options(accept_dtype=accept)))
    leads = first.startswith("The target computes in torch.bfloat16, the golden run in torch.float32, from `norm` on (forward, step 0). ")
    assert leads is not accept
    assert "weight `weight` of `norm` differs (forward, step 1, rank 0)" in first
