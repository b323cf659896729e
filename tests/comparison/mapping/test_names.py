from __future__ import annotations

import pytest

from msprobe.comparison.mapping.names import Names, fill, match, nearest_to, renaming, without_effect, without_effect_there
from msprobe.comparison.names import parse
from msprobe.comparison.rows import Call, calls_of

from ..dumps import api, module, tensor


def calls(*names: str) -> list[Call]:
    return [Call(name, parse(name), ()) for name in names]


def renamed(names: Names, name: str, *others: str, golden: tuple[str, ...] = ()) -> str:
    rename = renaming(names, calls(name, *others), calls(*golden))
    return rename(parse(name)) if rename is not None else parse(name).base


def test_the_longest_rule_for_a_path_wins() -> None:
    names = Names(modules={"transformer": "model", "transformer.h": "model.layers", "transformer.h.*.attn": "model.layers.*.self_attn"})
    assert renamed(names, "Module.transformer.h.3.attn.c_proj.Conv1D.forward.0") == "Module.model.layers.3.self_attn.c_proj.Conv1D"
    assert renamed(names, "Module.transformer.h.3.ln.LayerNorm.forward.0") == "Module.model.layers.3.ln.LayerNorm"
    assert renamed(names, "Module.transformer.wte.Embedding.forward.0") == "Module.model.wte.Embedding"
    assert renamed(names, "Module.transformers.x.Y.forward.0") == "Module.transformers.x.Y"


def test_classes_and_calls() -> None:
    names = Names(classes={"QKVParallelLinear": "Linear"}, calls={"Tensor.__add__": "Torch.add"})
    assert renamed(names, "Module.a.QKVParallelLinear.backward.0") == "Module.a.Linear"
    assert renamed(names, "Tensor.__add__.3.forward") == "Torch.add"
    assert renamed(names, "Tensor.__mul__.3.forward") == "Tensor.__mul__"


def test_cells_by_full_name_or_by_parts() -> None:
    """-cm, as the existing tool reads it."""
    assert renamed(Names(cells={"fc1.MyLinear": "fc2.Linear"}), "Module.fc1.MyLinear.forward.0") == "Module.fc2.Linear"
    assert renamed(Names(cells={"MyLinear": "Linear", "fc1": "fc2"}), "Module.fc1.MyLinear.forward.0") == "Module.fc2.Linear"
    assert renamed(Names(cells={"other": "x"}), "Module.fc1.MyLinear.forward.0") == "Module.fc1.MyLinear"


def test_layers_go_by_the_class_around() -> None:
    """-lm."""
    layers = {"TopLayer": {"net": "module"}, "Net": {"layers": "blocks"}, "Block": {"attn.qkv": "attention.query_key_value", "mlp": "ffn"}}
    others = ["Module.net.Net.forward.0", "Module.net.layers.1.Block.forward.0"]
    names = Names(layers=layers)
    qkv = "Module.module.blocks.1.attention.query_key_value.Linear"
    assert renamed(names, "Module.net.layers.1.attn.qkv.Linear.forward.0", *others) == qkv
    assert renamed(names, "Module.net.layers.1.mlp.up.Linear.forward.0", *others) == "Module.module.blocks.1.ffn.up.Linear"
    assert renamed(names, "Module.net.layers.1.norm.Norm.forward.0", *others) == "Module.module.blocks.1.norm.Norm"


@pytest.mark.parametrize("side", [0, 1])
def test_a_wrapper_of_one_side_is_looked_through(side: int) -> None:
    inner = [f"Module.{path}.Linear.forward.0" for path in ("a", "b.c", "d")]
    outer = [f"Module.module.{path}.Linear.forward.0" for path in ("a", "b.c", "d")]
    ours, theirs = (outer, inner) if side == 0 else (inner, outer)
    rename = renaming(Names(), calls(*ours), calls(*theirs))
    assert rename is not None
    assert [rename(parse(name)) for name in ours] == [parse(name).base for name in theirs]


def test_without_mapping_nothing_is_renamed() -> None:
    assert renaming(Names(), calls("Module.a.A.forward.0"), calls("Module.a.A.forward.0")) is None
    assert renaming(Names(), calls("Module.a.A.forward.0"), calls("Module.x.y.A.forward.0")) is None


def test_stars() -> None:
    assert match(["a", "*", "b", "*"], ["a", "1", "b", "2", "c"]) == ["1", "2"]
    assert match(["a"], ["b"]) is None and match(["a", "b"], ["a"]) is None
    assert fill("x.*.y.*", ["1", "2"]) == "x.1.y.2"


def test_what_the_target_does_not_have_is_told() -> None:
    data = {"Module.h.0.Block.forward.0": module([tensor()], [tensor()]), "Torch.add.0.forward": api([tensor()], [tensor()])}
    names = Names(
        modules={"h": "layers", "h.*": "layers.*", "hh": "layers"},
        classes={"Block": "Layer", "Blck": "Layer"},
        calls={"Torch.add": "Tensor.add", "Torch.mull": "Torch.mul"},
        layers={"TopLayer": {"h": "layers"}, "Blok": {"a": "b"}},
    )
    assert without_effect(names, calls_of(data, "")) == ["modules: hh", "classes: Blck", "calls: Torch.mull", "Blok"]


def test_what_the_golden_run_does_not_have() -> None:
    """A rule whose right side is misspelt would else rename everything to nothing."""
    golden = calls("Module.model.layers.0.Block.forward.0", "Torch.add.0.forward")
    names = Names(
        modules={"a": "model.layers", "b": "model.layer"},
        classes={"X": "Block", "Y": "Blok"},
        calls={"Tensor.__add__": "Tensor.add", "f": "Torch.ad"},
    )
    assert without_effect_there(names, golden) == ["modules: model.layer", "classes: Blok", "calls: Torch.ad"]
    assert nearest_to("modules: model.layer", golden) == "; nearest: model.layers, model.layers.*, model"
    assert nearest_to("classes: Blok", golden) == "; nearest: Block"
    assert nearest_to("calls: Torch.ad", golden) == "; nearest: Torch.add"
    assert nearest_to("calls: something else", golden) == ""
