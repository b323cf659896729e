from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.comparison.mapping.files import read_layers, read_mapping, read_names
from msprobe.comparison.mapping.rules import How, Select, TensorRule
from msprobe.errors import UsageError

WHOLE = """
modules: {target.path: golden.path}
classes: {QKVParallelLinear: Linear}
tensors:
  - target: layers.*.self_attn.qkv_proj.output.0
    golden: [layers.*.self_attn.q_proj.output.0, layers.*.self_attn.k_proj.output.0, layers.*.self_attn.v_proj.output.0]
    how: {concat: -1}
  - {target: a.weight, golden: a.weight, how: transpose}
  - {target: b.output.0, golden: [b.output.0, b.output.1], how: sum}
  - {target: c.weight, golden: c.weight, how: {shard: {dim: 0, over: tp}}}
  - {target: d.output.0, golden: d.output.0, how: {select: {dim: 1, start: 0, stop: 4}, flatten: [0, 1], mask: model.input.attention_mask}}
calls: {Tensor.__add__: Torch.add}
groups: {tp: [[0, 1], [2, 3]]}
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_the_whole_schema(tmp_path: Path) -> None:
    names, tensors = read_mapping(written(tmp_path / "m.yaml", WHOLE))
    assert (names.modules, names.classes) == ({"target.path": "golden.path"}, {"QKVParallelLinear": "Linear"})
    assert names.calls == {"Tensor.__add__": "Torch.add"}
    assert tensors.rules[0].golden[1] == "layers.*.self_attn.k_proj.output.0" and tensors.rules[0].how == How(concat=-1)
    assert tensors.rules[1] == TensorRule("a.weight", ("a.weight",), How(transpose=(-2, -1)))
    assert tensors.rules[2].how == How(sum=True)
    assert tensors.rules[3].how == How(shard=0, over="tp")
    assert tensors.rules[4].how == How(select=Select(1, None, 0, 4), flatten=(0, 1), mask="model.input.attention_mask")
    assert tensors.group() == ((0, 1), (2, 3))


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "module: {a: b}",
            "module: there is no such field; did you mean `modules`\\? allowed are modules, classes, calls, tensors, groups",
        ),
        ("zzz: {a: b}", "zzz: there is no such field; allowed are modules, classes"),
        ("tensors: [{target: a.b, golden: a.b, haw: sum}]", "tensors.0.haw: there is no such field; did you mean `how`"),
        (
            "tensors: [{target: a.b, golden: [a.b, a.c], how: {conct: 0}}]",
            "how.conct: .* did you mean `concat`\\? allowed are shard, concat, sum",
        ),
        (
            "tensors: [{target: a.b, golden: a.b, how: {select: {dims: 0, index: 1}}}]",
            "did you mean `dim`\\? allowed are dim, index, start, stop",
        ),
        ("tensors: [{target: a.b, golden: a.b, how: {shard: {dim: 0, ovr: tp}}}]", "did you mean `over`"),
        (
            "tensors: [{target: a.b, golden: [a.b, a.c], how: sums}]",
            "no way 'sums' .*did you mean `sum`\\? allowed are sum, transpose, concat",
        ),
        ("tensors: [{target: a.b, golden: [a.b, a.c], how: concat}]", "`concat` needs a value, as in `how: {concat: -1}`"),
        ("tensors: [{target: a.b, golden: [a.b, a.c], how: 3}]", "3 says nothing of how tensors are put together: sum or transpose, or"),
        ("modules: [a]", "modules: Input should be a valid dictionary"),
        ("modules: {a: 3}", "modules.a: Input should be a valid string"),
        ("modules: {a: b.*}", r"modules: 'b.\*' has more `\*` than 'a'"),
        ("modules: {a..b: c}", "'a..b' is no name: parts joined by single dots are expected"),
        ("tensors: [{target: a.weight, golden: [b.weight, c.weight]}]", "several golden tensors need"),
        ("tensors: [{target: a.weight, golden: b.weight, how: sum}]", "concat and sum need several golden tensors"),
        ("tensors: [{target: a.weight, golden: [b, c], how: {concat: 0, sum: true}}]", "concat and sum exclude each other"),
        ("tensors: [{target: a.weight, golden: b.weight, how: {turn: 1}}]", "tensors.0.how.turn: there is no such field"),
        ("tensors: [{target: a.weight, golden: '*.weight'}]", r"has more `\*` than"),
        (
            "tensors: [{target: a.b, golden: a.b, how: {flatten: [3, 1]}}]",
            r"flatten goes from the first dimension to the last, as in \[1, 3\]",
        ),
        ("tensors: [{target: a.b, golden: a.b, how: {flatten: [-1, -2]}}]", r"as in \[-2, -1\]"),
        ("tensors: [{target: a.weight, golden: a.weight, how: {select: {dim: 0}}}]", "select needs `index`, or `start` and `stop`"),
        ("modules: {a: b}\nmodules: {c: d}", "`modules` stands twice, at line 1 and below"),
        ("classes: {A: B, A: C}", "`A` stands twice"),
        ("groups: {tp: []}", "groups: tp names no ranks"),
        ("groups: {tp: [[0], []]}", "groups: tp names no ranks"),
        ("groups: {tp: [[-1, 0]]}", "groups: tp names rank -1; ranks begin at 0"),
        ("groups: {tp: [[0, 1], [1, 2]]}", "groups: tp names rank 1 twice"),
        (
            "tensors: [{target: a.weight, golden: a.weight, how: {shard: {dim: 0, over: pp}}}]\ngroups: {tp: [[0, 1]]}",
            "there is no group 'pp', over which a.weight is sharded",
        ),
        (
            "prepare: {target: {reqest: same}}",
            "target.reqest: there is no such field; did you mean `request`\\? allowed are request, sequence, whole, modules_only, values$",
        ),
        ("prepare: {golden: {sequnce: true}}", "golden.sequnce: there is no such field; did you mean `sequence`"),
        (
            "prepare: {targt: {request: same}}",
            "prepare.targt: there is no such field; did you mean `target`\\? allowed are target, golden$",
        ),
        ("[" * 5000, "nested too deep"),
        ("!!python/object/apply:os.abort []", "is not valid YAML: could not determine a constructor"),
        ("- a", "must hold fields such as `modules:`"),
        ("modules:\n  a: 2020-13-45", "not valid YAML: line 2: `2020-13-45` is taken for a value of type timestamp, and it is none"),
        ("a: [", "is not valid YAML"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path / "m.yaml", text)
    with pytest.raises(UsageError, match=message) as caught:
        read_mapping(path)
    assert str(path) in str(caught.value)


def test_other_files(tmp_path: Path) -> None:
    assert read_names(written(tmp_path / "a", "A.b: C.d"), "API mapping", "x: y") == {"A.b": "C.d"}
    assert read_layers(written(tmp_path / "b", "TopLayer: {net: module}")) == {"TopLayer": {"net": "module"}}
    for text in ("[1]", "a: 1", "", "a: {b: c}"):
        with pytest.raises(UsageError, match=r"the API mapping .* must hold lines `x: y`"):
            read_names(written(tmp_path / "c", text), "API mapping", "x: y")
    bomb = "a: {b: [&c0 [x], " + ", ".join(f"&c{i} [{', '.join([f'*c{i - 1}'] * 9)}]" for i in range(1, 7)) + "]}"
    for text, message in (
        ("a: b", "'a' must hold lines"),
        ("a: {b: 1}", "a: `b: 1` must be two texts"),
        ("[]", "must hold `ClassName"),
        (bomb, "must be two texts"),
    ):
        with pytest.raises(UsageError, match=message) as caught:
            read_layers(written(tmp_path / "d", text))
        assert len(str(caught.value)) < 1000
    with pytest.raises(UsageError, match="does not exist"):
        read_layers(tmp_path / "none")
    with pytest.raises(UsageError, match="is a directory"):
        read_mapping(tmp_path)
