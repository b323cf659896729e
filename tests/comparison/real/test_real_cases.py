"""Real cases end to end: a tiny model is recorded with and without a planted fault; the comparison names it, or finds none to name."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from msprobe.comparison.compare import compare
from msprobe.comparison.describe import describe
from msprobe.comparison.options import DEFAULTS, Options
from msprobe.comparison.outcome import Outcome

from . import faults
from .planting import llama, mixture, record, train

Golden = Callable[..., Path]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """The golden run of a kind, recorded once."""
    done: dict[tuple[Any, ...], Path] = {}

    def get(
        make: Callable[..., nn.Module] = llama, step: Any = train, level: str = "mix", task: str = "statistics", **changes: Any
    ) -> Path:
        key = (make, step, level, task, *changes.items())
        if key not in done:
            done[key] = record(tmp_path_factory.mktemp("golden") / "dump", make(**changes), step, level=level, task=task)
        return done[key]

    return get


def outcome(tmp_path: Path, target: Path, golden: Path, options: Options = DEFAULTS) -> tuple[Outcome, str]:
    found = compare(target, golden, tmp_path / "o", options)
    return found, "\n".join(line.text for line in describe(found))


def first(tmp_path: Path, model: nn.Module, golden: Path, step: Any = train, **how: str) -> str:
    """The sentence after `First difference`."""
    found, text = outcome(tmp_path, record(tmp_path / "target", model, step, **how), golden)
    assert found.exit_code == 1
    assert "This difference is within rounding" not in text, text
    return next(line for line in text.splitlines() if line.startswith("First difference"))


def assert_no_fault(found: Outcome, text: str) -> None:
    assert "First difference" not in text, text
    assert "agree up to rounding" in text
    assert found.reports[0].counts["not compared"] == 0
    wrong = [
        (name, messages)
        for report in found.reports
        for name, result, messages in _rows(report.csv)
        if result == "error" and not any("dtype" in message for message in messages)
    ]
    assert wrong == []


def _rows(path: Path | None) -> list[tuple[str, str, list[str]]]:
    """Name, result and messages of the rows of a CSV."""
    assert path is not None
    with open(path, encoding="utf-8", newline="") as stream:
        return [(row["NPU Name"], row["Result"], json.loads(row["Err_message"])) for row in csv.DictReader(stream)]


# Rounding, and no fault


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_eager_attention_against_sdpa(level: str, golden: Golden, tmp_path: Path) -> None:
    """The calls inside the two kinds of attention are not the same, and only one of them needs a mask."""
    target = record(tmp_path / "target", llama(attn_implementation="sdpa"), level=level)
    found, text = outcome(tmp_path, target, golden(level=level))
    assert_no_fault(found, text)
    assert "rows stand on one side only (first: " in text


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("seed", [7, 8])
def test_bf16_against_fp32(task: str, seed: int, golden: Golden, tmp_path: Path) -> None:
    target = record(tmp_path / "target", llama(seed=seed).bfloat16(), task=task)
    found, text = outcome(tmp_path, target, golden(task=task, seed=seed))
    assert_no_fault(found, text)
    assert "rows have another dtype on each side (first: " in text
    assert any("size: within what rounding explains (" in message for *_, messages in _rows(found.reports[0].csv) for message in messages)


def test_fp64_as_the_truth_of_fp32_and_bf16(golden: Golden, tmp_path: Path) -> None:
    truth = record(tmp_path / "truth", llama().double())
    target = record(tmp_path / "target", llama().bfloat16())
    found, text = outcome(tmp_path, target, golden(), Options(reference=str(truth)))
    assert_no_fault(found, text)
    assert "Both are within rounding of the truth wherever the reference can be compared" in text


# Faults


@pytest.mark.parametrize("level", ["mix", "L0"])
@pytest.mark.parametrize("scale", [0.2, 1e-4])
def test_rms_norm_with_a_tenfold_eps(level: str, scale: float, golden: Golden, tmp_path: Path) -> None:
    """Also where what is normalised is near zero."""
    model = llama(rms_norm_eps=1e-5, initializer_range=scale)
    text = first(tmp_path, model, golden(level=level, initializer_range=scale), level=level)
    assert "model.layers.0.input_layernorm.LlamaRMSNorm.forward.0" in text
    assert ("argument input.1 of Tensor.__add__" in text) == (level == "mix")


def test_rms_norm_with_a_tenfold_eps_beside_rounding(golden: Golden, tmp_path: Path) -> None:
    """The eps in bf16 is found against a golden run in fp32, in the first norm whose input is small enough to show it."""
    scale = 0.002
    target = record(tmp_path / "target", llama(rms_norm_eps=1e-5, initializer_range=scale).bfloat16(), level="L0")
    _, text = outcome(tmp_path, target, golden(level="L0", initializer_range=scale))
    assert "First difference: Module.model.layers.0.input_layernorm.LlamaRMSNorm.forward.0" in text


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_transposed_weight(task: str, golden: Golden, tmp_path: Path) -> None:
    text = first(tmp_path, faults.transposed_weight(), golden(task=task), task=task)
    assert "the parameter weight of Module.model.layers.1.self_attn.q_proj.Linear.forward.0 differs (inputs equal)" in text


def test_dropout_left_on(golden: Golden, tmp_path: Path) -> None:
    text = first(tmp_path, faults.dropout_left_on(), golden())
    assert "argument input.p of Functional.dropout.0.forward in Module.model.layers.0.self_attn.LlamaAttention.forward.0 differs" in text


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_wrong_causal_mask(task: str, golden: Golden, tmp_path: Path) -> None:
    text = first(tmp_path, faults.wrong_causal_mask(), golden(task=task), task=task)
    assert "Module.model.layers.0.self_attn.LlamaAttention.forward.0, before it calls Tensor.__add__" in text


def test_a_missing_residual(golden: Golden, tmp_path: Path) -> None:
    text = first(tmp_path, faults.missing_residual(), golden())
    assert "Module.model.layers.1.LlamaDecoderLayer.forward.0" in text or "Tensor.__add__" in text


def test_a_rotary_table_off_by_one(golden: Golden, tmp_path: Path) -> None:
    text = first(tmp_path, faults.rotary_off_by_one(), golden())
    assert "rotary_emb" in text or "Tensor.__add__" in text


def test_a_rotary_table_off_by_one_at_module_level(golden: Golden, tmp_path: Path) -> None:
    text = first(tmp_path, faults.rotary_off_by_one(), golden(level="L0"), level="L0")
    assert "Module.model.rotary_emb.LlamaRotaryEmbedding.forward.0" in text


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_one_expert_swapped(task: str, golden: Golden, tmp_path: Path) -> None:
    text = first(tmp_path, faults.one_expert_swapped(mixture()), golden(mixture, task=task), task=task)
    assert "of Module.model.layers.1.mlp.experts.MixtralExperts.forward.0 differ" in text


def test_a_tied_weight_untied(golden: Golden, tmp_path: Path) -> None:
    text = first(tmp_path, faults.untied_weight(), golden(tie_word_embeddings=True))
    assert "the gradient of weight in Module.lm_head.Linear.parameters_grad.0 differs (everything before it agrees)" in text


def test_a_gradient_clipped_before_accumulation(golden: Golden, tmp_path: Path) -> None:
    text = first(tmp_path, llama(), golden(step=faults.accumulate), faults.accumulate_and_clip_each)
    assert "_foreach_norm" in text and "clip_grad" in text


def test_labels_shifted_once_too_often(golden: Golden, tmp_path: Path) -> None:
    text = first(tmp_path, llama(), golden(), faults.label_shift)
    assert "input.1 (`target`) of Functional.cross_entropy.0.forward differs" in text
