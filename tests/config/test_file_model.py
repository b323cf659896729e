"""Every field of the file: good values arrive, wrong ones give one line with field, value and what is allowed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msprobe.config import Config, DataMode

Load = Callable[..., Config]
Problems = Callable[..., list[str]]

pytestmark = pytest.mark.usefixtures("all_built")

TASKS = 'must be "statistics", "tensor", "structure", "acc_check" or "nan_check"'
LEVELS = 'must be "L0", "L1", "L2", "mix" or "debug"'
RISKS = 'must be "ALL", "CORE" or "FOCUS"'
NUMBER = 'must be a whole number such as 3, or a range such as "4-6"'
WORDS = 'must be "statistics", "md5" or "xor"'
MODES = 'must be "all", "forward", "backward", "input" or "output"'
EVERYTHING = DataMode()


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        *(("task", word, word) for word in ("statistics", "tensor", "structure", "acc_check", "nan_check")),
        ("task", "", "statistics"),
        ("task", None, "statistics"),
        *(("level", word, word) for word in ("L0", "L1", "mix", "debug")),
        ("level", "", "L1"),
        ("level", None, "L1"),
        ("dump_path", "a b;c*?", "a b;c*?"),
        ("dump_path", "数据/x", "数据/x"),
        *((name, None, set()) for name in ("rank", "step")),
        *((name, [], set()) for name in ("rank", "step")),
        *((name, [1, "4-6"], {1, 4, 5, 6}) for name in ("rank", "step")),
        *((name, ["4 - 6", 5, 5, "3"], {3, 4, 5, 6}) for name in ("rank", "step")),
        *((name, [0, 1000000], {0, 1000000}) for name in ("rank", "step")),
        *(("async_dump", value, value) for value in (True, False)),
        *(("dump_enable", value, value) for value in (True, False, None)),
        *(("extra_info", value, value) for value in (True, False)),
        *(("precision", value, value) for value in ("low", "high")),
        *(("risk_level", value, value) for value in ("ALL", "CORE", "FOCUS")),
        ("risk_level", None, "ALL"),
        ("risk_level", "", "ALL"),
        ("load", None, None),
    ],
)
def test_good_common_values(load: Load, warnings: list[str], field: str, value: Any, wanted: Any) -> None:
    assert getattr(load({field: value}), field) == wanted
    assert warnings == []


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("scope", [], ()),
        ("scope", None, ()),
        ("scope", ["Tensor.add.0.forward", "Torch.add.1.backward"], ("Tensor.add.0.forward", "Torch.add.1.backward")),
        ("list", ["Torch.add.0.forward", "relu", "relu", "name-regex(("], ("Torch.add.0.forward", "relu", "relu", "name-regex((")),
        ("list", None, ()),
        ("tensor_list", ["relu"], ("relu",)),
        ("tensor_list", None, ()),
        ("data_mode", ["all"], EVERYTHING),
        ("data_mode", ["all", "all"], EVERYTHING),
        ("data_mode", [], EVERYTHING),
        ("data_mode", None, EVERYTHING),
        ("data_mode", ["input", "output", "forward", "backward"], EVERYTHING),
        ("data_mode", ["forward"] * 5, DataMode(backward=False)),
        ("data_mode", ["backward", "output"], DataMode(forward=False, input=False)),
        ("data_mode", ["input"], DataMode(output=False)),
        ("summary_mode", "statistics", "statistics"),
        ("summary_mode", "md5", "md5"),
        ("summary_mode", "xor", "xor"),
        ("summary_mode", "", "statistics"),
        ("summary_mode", None, "statistics"),
    ],
)
def test_good_values_of_section_statistics(load: Load, warnings: list[str], field: str, value: Any, wanted: Any) -> None:
    assert getattr(load({"statistics": {field: value}}).section, field) == wanted
    assert warnings == []


@pytest.mark.parametrize(
    ("section", "wanted"),
    [
        ({"bench_path": ".", "summary_mode": "md5", "diff_nums": -1}, {"bench_path": ".", "summary_mode": "md5", "diff_nums": -1}),
        ({"bench_path": None}, {"bench_path": None, "diff_nums": 1}),
        (
            {"list": ["relu"], "scope": None, "data_mode": ["forward"]},
            {"list": ("relu",), "scope": (), "data_mode": DataMode(backward=False)},
        ),
    ],
)
def test_good_section_tensor(load: Load, warnings: list[str], section: Any, wanted: dict[str, Any]) -> None:
    found = load({"task": "tensor", "tensor": section}).section
    assert {name: getattr(found, name) for name in wanted} == wanted
    assert warnings == []


def test_good_sections_of_other_tasks(load: Load, warnings: list[str]) -> None:
    acc = load({"task": "acc_check", "acc_check": {"white_list": ["conv1d"], "black_list": None, "error_data_path": "~/e"}}).section
    assert (acc.white_list, acc.black_list, acc.error_data_path) == (("conv1d",), (), str(Path("~/e").expanduser()))
    nan = load({"task": "nan_check", "nan_check": {"tensor_list": ["truediv"], "data_mode": ["forward"]}}).section
    assert (nan.tensor_list, nan.data_mode) == (("truediv",), DataMode(backward=False))
    for mode in ("aicore", "atomic", "all"):
        config = load({"task": "overflow_check", "level": "L2", "overflow_check": {"check_mode": mode}}, framework="mindspore")
        assert config.section.check_mode == mode
    assert warnings == []


def test_good_values_of_mindspore(load: Load, warnings: list[str]) -> None:
    items = ["max", "negative zero count", "hash", "md5"]
    config = load({"statistics": {"device": "device", "summary_mode": items}}, framework="mindspore")
    assert (config.framework, config.section.device, config.section.summary_mode) == ("mindspore", "device", tuple(items))
    assert load({"task": "tensor", "tensor": {"file_format": "bin"}}, framework="mindspore").section.file_format == "bin"
    assert warnings == []


def test_good_load(load: Load, warnings: list[str]) -> None:
    modules = ["Module.relu.ReLU.forward.0", "Module.a.0.b.Linear.forward.12"]
    found = load({"load": {"path": ".", "modules": modules, "step": ["0-2"], "rank": None, "dump_after_load": True}}).load
    assert found is not None
    assert (found.path, found.modules, found.step, found.rank, found.dump_after_load) == (".", tuple(modules), {0, 1, 2}, set(), True)
    assert (found.cast, found.source_step, found.source_rank) == (False, None, None)
    more = {"cast": True, "source_step": 0, "source_rank": 3}
    found = load({"load": {"path": ".", "modules": modules, **more}}).load
    assert found is not None
    assert (found.cast, found.source_step, found.source_rank) == (True, 0, 3)
    assert warnings == []


def test_what_is_recorded_with_load(load: Load) -> None:
    section = {"path": ".", "modules": ["Module.a.B.forward.0"]}
    assert load({}).records
    assert not load({"load": section}).records
    assert load({"load": {**section, "dump_after_load": True}}).records


WRONG_COMMON = [
    *(("task", value, f'{TASKS}; did you mean "{hint}"?') for value, hint in (("tensr", "tensor"), ("Statistics", "statistics"))),
    *(("task", value, TASKS) for value in (3, ["tensor"], "free_benchmark", True, {})),
    *(("level", value, f'{LEVELS}; did you mean "{hint}"?') for value, hint in (("l1", "L1"), ("MIX", "mix"))),
    *(("level", value, LEVELS) for value in (1, [], False)),
    *(("dump_path", value, 'must be a string, for example "./dump_path"') for value in (3, ["a"], True, {})),
    *(
        (name, value, f"must be a list, for example {example}")
        for name, example in (("rank", '[1, "4-6"]'), ("step", '[0, 1, 2, "4-6"]'))
        for value in (0, "0", "4-6", {"a": 1}, True)
    ),
    *((name, value, "must be true or false") for name in ("async_dump", "extra_info") for value in ("true", 1, 0, None, "", [])),
    *(("dump_enable", value, "must be true or false") for value in ("true", 1, "", [])),
    *(("precision", value, 'must be "high" or "low"') for value in (1, None, "", "middle")),
    ("precision", "HIGH", 'must be "high" or "low"; did you mean "high"?'),
    ("risk_level", "core", f'{RISKS}; did you mean "CORE"?'),
    *(("risk_level", value, RISKS) for value in (1, "HIGH", ["ALL"])),
    *(
        ("load", value, 'must be an object, for example {"path": "/home/data_dump_a", "modules": ["Module.relu.ReLU.forward.0"]}')
        for value in ([], "abc", 1, True)
    ),
]


@pytest.mark.parametrize(("field", "value", "reason"), WRONG_COMMON)
def test_wrong_common_values(problems: Problems, field: str, value: Any, reason: str) -> None:
    assert problems({field: value}) == [f'config.json: "{field}" is {json.dumps(value)}: {reason}']


@pytest.mark.parametrize("field", ["rank", "step"])
def test_each_wrong_element_of_rank_and_step_has_a_line(problems: Problems, field: str) -> None:
    wrong = {1: ("6-4", 'the range is reversed, write "4-6"'), 3: (True, NUMBER), 4: (1.5, NUMBER), 5: (-1, "must be from 0 to 1000000")}
    assert problems({field: [1, "6-4", 2, True, 1.5, -1]}) == [
        f'config.json: "{field}"[{i}] is {json.dumps(value)}: {reason}' for i, (value, reason) in wrong.items()
    ]


WRONG_IN_SECTIONS = [
    *(
        ("statistics", name, value, f"must be a list, for example {example}")
        for name, example in (
            ("scope", '["Module.conv1.Conv2d.forward.0", "Module.fc2.Linear.forward.0"]'),
            ("list", '["Torch.relu.3.backward", "linear"]'),
            ("tensor_list", '["relu"]'),
            ("data_mode", '["forward", "input"]'),
        )
        for value in ("all", 1, {})
    ),
    ("statistics", "data_mode", ["all", "forward"], '"all" cannot be combined with other words'),
    *(("statistics", "summary_mode", value, WORDS) for value in (1, "max", {}, True)),
    ("statistics", "summary_mode", "MD5", f'{WORDS}; did you mean "md5"?'),
    (
        "statistics",
        "summary_mode",
        ["max"],
        'a list of statistics exists for MindSpore static graphs only; on PyTorch it must be "statistics", "md5" or "xor"',
    ),
    *(("tensor", "bench_path", value, 'must be a string, for example "./bench_dump_path"') for value in (3, [])),
    ("tensor", "bench_path", "", "must be the path of a directory, not an empty string"),
    *(("tensor", "diff_nums", value, "must be a whole number of 1 or more, or -1 for no limit") for value in (0, -2, "a", None, 1.5, True)),
    ("acc_check", "white_list", "conv1d", 'must be a list, for example ["conv1d", "conv2d"]'),
    ("acc_check", "error_data_path", 1, 'must be a string, for example "./"'),
    ("load", "dump_after_load", "true", "must be true or false"),
    ("load", "step", 0, 'must be a list, for example [0, "2-4"]'),
    ("load", "cast", 1, "must be true or false"),
    *(("load", "source_step", value, "must be one whole number from 0 to 1000000") for value in ([0], "0", -1, True, 1.0, 1000001)),
    ("load", "source_rank", "1-2", "must be one whole number from 0 to 1000000"),
    ("load", "modules", "Module.a.B.forward.0", 'must be a list, for example ["Module.relu.ReLU.forward.0"]'),
    ("load", "modules", [], "must name at least one module call; an empty list does not mean all"),
    ("load", "modules", ["Module.a.B.forward.0"] * 2, 'names "Module.a.B.forward.0" twice'),
]


@pytest.mark.parametrize(("section", "field", "value", "reason"), WRONG_IN_SECTIONS)
def test_wrong_values_in_sections(problems: Problems, section: str, field: str, value: Any, reason: str) -> None:
    content = {"path": ".", "modules": ["Module.a.B.forward.0"]} if section == "load" else {}
    task = "statistics" if section == "load" else section
    assert problems({"task": task, section: {**content, field: value}}) == [
        f'config.json: "{section}"."{field}" is {json.dumps(value)}: {reason}'
    ]


@pytest.mark.parametrize(
    ("section", "field", "value", "reason"),
    [
        *(("statistics", name, value, "must be a string") for name in ("scope", "list", "tensor_list") for value in (1, None, ["a"])),
        *(("statistics", "data_mode", value, MODES) for value in (1, None, "x")),
        ("statistics", "data_mode", "Input", f'{MODES}; did you mean "input"?'),
        ("load", "modules", 1, "must be a string"),
        ("load", "modules", "a.B.forward.0", 'must start with "Module."'),
        *(
            ("load", "modules", name, 'must end with ".forward.N", N being the number of the call, counted from 0')
            for name in ("Module.a.B", "Module.a.B.forward.-1", "Module.a.B.forward.")
        ),
        *(
            ("load", "modules", name, "only inputs of forward calls can be loaded, the name must not contain .backward.")
            for name in ("Module.a.B.backward.0", "Module.backward.x.B.forward.0")
        ),
        ("load", "rank", "x", NUMBER),
    ],
)
def test_wrong_elements(problems: Problems, section: str, field: str, value: Any, reason: str) -> None:
    good = {
        "scope": "Tensor.add.0.forward",
        "list": "a",
        "tensor_list": "a",
        "data_mode": "input",
        "modules": "Module.a.B.forward.0",
        "rank": 0,
    }
    content = {"path": ".", "modules": ["Module.a.B.forward.1"]} if section == "load" else {}
    content[field] = [good[field], value]
    assert problems({section: content}) == [f'config.json: "{section}"."{field}"[1] is {json.dumps(value)}: {reason}']


@pytest.mark.parametrize(
    ("section", "field", "value", "reason"),
    [
        ("statistics", "device", "npu", 'must be "device" or "host"'),
        ("statistics", "summary_mode", "xor", 'exists for PyTorch only; on MindSpore it must be "statistics" or "md5"'),
        ("statistics", "summary_mode", [], "must name at least one of "),
        ("statistics", "summary_mode", ["max", 3], "its elements must be "),
        ("tensor", "summary_mode", ["max"], 'a list of statistics belongs to task "statistics"; here it must be "statistics" or "md5"'),
        ("tensor", "file_format", "pt", 'must be "bin" or "npy"'),
        ("overflow_check", "check_mode", "core", 'must be "aicore", "atomic" or "all"; did you mean "aicore"?'),
    ],
)
def test_wrong_values_on_mindspore(problems: Problems, section: str, field: str, value: Any, reason: str) -> None:
    lines = problems({"task": section, "level": "L2", section: {field: value}}, framework="mindspore")
    assert len(lines) == 1
    assert lines[0].startswith(f'config.json: "{section}"."{field}" is {json.dumps(value)}: {reason}')


def test_load_without_a_path(problems: Problems) -> None:
    assert problems({"load": {"modules": ["Module.a.B.forward.0"]}}) == [
        'config.json: "load"."path" is missing: it is required, for example "/home/data_dump_a"'
    ]


def test_required_fields_of_load(problems: Problems) -> None:
    assert problems({"load": {}}) == [
        'config.json: "load"."path" is missing: it is required, for example "/home/data_dump_a"',
        'config.json: "load"."modules" is missing: it is required, for example ["Module.relu.ReLU.forward.0"]',
    ]


def test_a_section_is_an_object_or_null(load: Load, problems: Problems) -> None:
    assert load({"statistics": None}).section == load({}).section
    for value in ([], "x", 1):
        assert problems({"statistics": value}) == [f'config.json: "statistics" is {json.dumps(value)}: must be an object']
