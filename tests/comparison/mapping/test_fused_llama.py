"""Hugging Face's Llama against a rewrite with fused projections, as inference engines have it; one mapping file."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
llama = pytest.importorskip("transformers.models.llama.modeling_llama")

from torch import nn  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from msprobe.comparison.mapping.files import read_mapping  # noqa: E402
from msprobe.comparison.options import Options  # noqa: E402
from msprobe.comparison.outcome import PairReport  # noqa: E402

from ..alignment.runs import compared, record  # noqa: E402
from ..dumps import read_csv  # noqa: E402

MAPPING = """
tensors:
  - target: model.layers.*.self_attn.qkv_proj.output.0
    golden:
      - model.layers.*.self_attn.q_proj.output.0
      - model.layers.*.self_attn.k_proj.output.0
      - model.layers.*.self_attn.v_proj.output.0
    how: {concat: -1}
  - target: model.layers.*.mlp.gate_up_proj.output.0
    golden: [model.layers.*.mlp.gate_proj.output.0, model.layers.*.mlp.up_proj.output.0]
    how: {concat: -1}
"""


class FusedAttention(llama.LlamaAttention):  # type: ignore[misc, name-defined]
    """q, k and v come from one projection."""

    @classmethod
    def of(cls, plain: Any) -> Any:
        fused = copy.copy(plain)
        fused.__class__ = cls
        fused._modules = dict(plain._modules)
        parts = [fused._modules.pop(name) for name in ("q_proj", "k_proj", "v_proj")]
        fused.widths = [part.out_features for part in parts]
        fused.qkv_proj = joined(parts)
        return fused

    def forward(self, hidden_states: Any, position_embeddings: Any, attention_mask: Any = None, **kwargs: Any) -> Any:
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        parts = self.qkv_proj(hidden_states).split(self.widths, dim=-1)
        query, key, value = (part.view(shape).transpose(1, 2) for part in parts)
        query, key = llama.apply_rotary_pos_emb(query, key, *position_embeddings)
        kept = {"dropout": 0.0, "scaling": self.scaling}
        output, weights = llama.eager_attention_forward(self, query, key, value, attention_mask, **kept)
        return self.o_proj(output.reshape(*hidden_states.shape[:-1], -1).contiguous()), weights


class FusedMLP(llama.LlamaMLP):  # type: ignore[misc, name-defined]
    @classmethod
    def of(cls, plain: Any) -> Any:
        fused = copy.copy(plain)
        fused.__class__ = cls
        fused._modules = dict(plain._modules)
        fused.gate_up_proj = joined([fused._modules.pop(name) for name in ("gate_proj", "up_proj")])
        return fused

    def forward(self, x: Any) -> Any:
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(self.act_fn(gate) * up)


def joined(parts: list[Any]) -> Any:
    whole = nn.Linear(parts[0].in_features, sum(part.out_features for part in parts), bias=False)
    with torch.no_grad():
        whole.weight.copy_(torch.cat([part.weight for part in parts]))
    return whole


def model() -> Any:
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_implementation="eager",
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def fused(plain: Any) -> Any:
    for layer in plain.model.layers:
        layer.self_attn = FusedAttention.of(layer.self_attn)
        layer.mlp = FusedMLP.of(layer.mlp)
    return plain


def run(directory: Path, net: Any, **options: Any) -> Path:
    torch.manual_seed(11)
    ids = torch.randint(0, 64, (2, 7))

    def step() -> None:
        net(input_ids=ids, labels=ids).loss.backward()

    return record(directory, net, step, **options)


def mapped(path: Path) -> Options:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MAPPING, encoding="utf-8")
    names, tensors = read_mapping(path)
    return Options(names=names, tensors=tensors)


def rows(report: PairReport) -> dict[str, dict[str, str]]:
    assert report.csv is not None
    return {row["NPU Name"]: row for row in read_csv(report.csv) if row["NPU Name"] != "N/A"}


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_a_fused_llama_is_compared_value_by_value(tmp_path: Path, task: str, level: str) -> None:
    target, golden = run(tmp_path / "t", fused(model()), task=task, level=level), run(tmp_path / "g", model(), task=task, level=level)
    report = compared(target, golden, tmp_path / "o", mapped(tmp_path / "m.yaml"))
    found = rows(report)
    prefix = "Module.model.layers.1.self_attn"
    for key in ("forward.0.output.0", "forward.0.parameters.weight", "parameters_grad.0.weight", "backward.0.input.0"):
        row = found[f"{prefix}.qkv_proj.Linear.{key}"]
        assert row["Result"] == "pass", (key, row)
        parts = row["Bench Name"].split(";  ")
        assert [part.split(".")[5] for part in parts] == ["q_proj", "k_proj", "v_proj"]
        assert row["NPU Tensor Shape"] == row["Bench Tensor Shape"]
    assert found["Module.model.layers.0.mlp.gate_up_proj.Linear.forward.0.output.0"]["Result"] == "pass"
    assert found[f"{prefix}.qkv_proj.Linear.forward.0.input.0"]["Bench Name"] == f"{prefix}.q_proj.Linear.forward.0.input.0"
    gradient = found[f"{prefix}.qkv_proj.Linear.backward.0.output.0"]
    assert gradient["Result"] == "pass"
    if task == "statistics":  # those of the sum do not follow; the layer before recorded it
        assert gradient["Bench Name"].endswith(".backward.0.input.0" if level == "L0" else ".backward.input.0")
    else:
        assert gradient["Bench Name"].count(";") == 2
    assert report.counts["error"] == report.counts["warning"] == 0
    only = {row["NPU Name"] + row["Bench Name"] for row in read_csv(report.csv) if row["Result"] == "unmatched"}  # type: ignore[arg-type]
    assert not [name for name in only if "split" not in name and "chunk" not in name]


def test_a_wrong_part_is_found(tmp_path: Path) -> None:
    """Two rows of the weight of v exchanged: the fused projection is named, by its weight."""
    wrong = fused(model())
    with torch.no_grad():
        weight = wrong.model.layers[1].self_attn.qkv_proj.weight
        weight[[-1, -2]] = weight[[-2, -1]]
    report = compared(
        run(tmp_path / "t", wrong, task="tensor"), run(tmp_path / "g", model(), task="tensor"), tmp_path / "o", mapped(tmp_path / "m.yaml")
    )
    first = report.findings.beyond_rounding or report.findings.first
    assert first is not None
    assert first.call.name == "Module.model.layers.1.self_attn.qkv_proj.Linear.forward.0"
    assert first.kind == "parameter"


def test_without_the_mapping_the_projections_have_no_partner(tmp_path: Path) -> None:
    target, golden = run(tmp_path / "t", fused(model()), level="L0"), run(tmp_path / "g", model(), level="L0")
    found = rows(compared(target, golden, tmp_path / "o"))
    assert found["Module.model.layers.1.self_attn.qkv_proj.Linear.forward.0.output.0"]["Result"] == "unmatched"
    assert found["Module.model.layers.1.self_attn.o_proj.Linear.forward.0.output.0"]["Result"] == "pass"
