"""A small Llama of 24 blocks with random weights."""

from __future__ import annotations

import pytest

from isolation.scripts import LLAMA, Scripts

pytest.importorskip("transformers")


def test_a_fault_in_one_of_24_blocks_and_two_at_once(scripts: Scripts) -> None:
    command = scripts.write(LLAMA)
    scripts.record(command)
    result = scripts.isolate(command, "leaf")
    assert [(suspect.kind, suspect.call) for suspect in result.verdict.suspects] == [
        ("module", "Module.model.layers.17.mlp.down_proj.Linear.forward.0")
    ]
    assert scripts.runs == 1
    assert (
        result.verdict.suspects[0].explained
        == [
            "Module.model.LlamaModel.forward.0",
            "Module.model.layers.17.LlamaDecoderLayer.forward.0",
            "Module.model.layers.17.mlp.LlamaMLP.forward.0",
        ][1:]
    )

    result = scripts.isolate(command, "norm attention")
    norm, attention = result.verdict.suspects
    assert (norm.kind, norm.call) == ("module", "Module.model.layers.9.post_attention_layernorm.LlamaRMSNorm.forward.0")
    assert "modeling_llama.py:" in norm.code
    assert (attention.kind, attention.call) == ("between", "Module.model.layers.5.self_attn.o_proj.Linear.forward.0")
    assert attention.owner == "Module.model.layers.5.self_attn.LlamaAttention.forward.0"
    assert attention.after == "Module.model.layers.5.self_attn.v_proj.Linear.forward.0"
    assert attention.frame is not None and attention.frame.path.endswith("modeling_llama.py")
    assert scripts.runs == 1
