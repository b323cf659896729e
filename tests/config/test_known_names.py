from __future__ import annotations

from collections.abc import Callable

import pytest

from msprobe.config import Config

Load = Callable[..., Config]

pytestmark = pytest.mark.usefixtures("all_built")


@pytest.mark.parametrize("name", ["slice", "request_id", "diff_check", "custom_op_namespaces"])
def test_fields_of_other_versions_have_no_effect_whatever_their_value(load: Load, warnings: list[str], name: str) -> None:
    plain = load()
    assert load({name: [{"dim": -1}], "statistics": {name: 3}}) == plain
    assert warnings == [
        f'config.json: "{name}" has no effect: msprobe does not have this feature',
        f'config.json: "statistics"."{name}" has no effect: msprobe does not have this feature',
    ]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"ranks": [0]}, '"ranks" is not a known field and has no effect; did you mean "rank"?'),
        ({"Task": "tensor"}, '"Task" is not a known field and has no effect; did you mean "task"?'),
        ({"list": ["relu"]}, '"list" has no effect at the top level: move it into the section "statistics"'),
        ({"task": "tensor", "list": ["relu"]}, '"list" has no effect at the top level: move it into the section "tensor"'),
        ({"bench_path": "x"}, '"bench_path" has no effect at the top level: move it into the section "tensor"'),
        ({"statistics": {"level": "L0"}}, '"statistics"."level" has no effect in section "statistics": move it to the top level'),
        (
            {"statistics": {"sumary_mode": "md5"}},
            '"statistics"."sumary_mode" is not a known field and has no effect; did you mean "summary_mode"?',
        ),
        (
            {"statistics": {"white_list": []}},
            '"statistics"."white_list" has no effect in section "statistics": it belongs into "acc_check"',
        ),
        (
            {"task": "tensor", "tensor": {"tensor_list": ["a"]}},
            '"tensor"."tensor_list" has no effect in section "tensor": it belongs into "statistics" or "nan_check"',
        ),
        ({"structure": {"x": 1}}, '"structure"."x" is not a known field and has no effect'),
        ({"zzz\n": 1}, '"zzz\\n" is not a known field and has no effect; known are task, dump_path, '),
        (
            {"load": {"path": ".", "modules": ["Module.a.B.forward.0"], "steps": []}},
            '"load"."steps" is not a known field and has no effect; did',
        ),
    ],
)
def test_unknown_fields(load: Load, warnings: list[str], content: dict[str, object], text: str) -> None:
    load(content)
    assert len(warnings) == 1
    assert warnings[0].startswith(f"config.json: {text}")


def test_fields_of_mindspore_on_pytorch(load: Load, warnings: list[str]) -> None:
    assert load({"statistics": {"device": "nonsense"}}).section.device == "host"
    assert load({"task": "tensor", "tensor": {"file_format": 3}}).section.file_format == "npy"
    assert warnings == [
        'config.json: "statistics"."device" has no effect: it is for MindSpore',
        'config.json: "tensor"."file_format" has no effect: it is for MindSpore',
    ]


def test_fields_of_pytorch_on_mindspore(load: Load, warnings: list[str]) -> None:
    content = {"risk_level": "CORE", "dump_enable": True, "load": {}, "task": "tensor", "tensor": {"bench_path": "x", "diff_nums": 3}}
    config = load(content, framework="mindspore")
    assert (config.risk_level, config.dump_enable, config.load, config.section.bench_path) == ("FOCUS", None, None, None)
    names = ['"risk_level"', '"dump_enable"', '"load"', '"tensor"."bench_path"', '"tensor"."diff_nums"']
    assert warnings == [f"config.json: {name} has no effect: it is for PyTorch" for name in names]


def test_the_name_of_the_schema_is_no_unknown_field(load: Load, warnings: list[str]) -> None:
    load({"$schema": "./config.schema.json"})
    assert warnings == []
    load({"statistics": {"$schema": "x"}})
    assert len(warnings) == 1


def test_wrong_values_in_sections_that_are_not_used_are_warnings(load: Load, warnings: list[str]) -> None:
    load({"task": "statistics", "tensor": {"list": "relu"}, "acc_check": None})
    assert warnings == [
        'config.json: "tensor"."list" is "relu": must be a list, for example ["Torch.relu.3.backward", "linear"] '
        '(section not used by task "statistics")'
    ]
