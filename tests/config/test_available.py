"""What is not built yet is refused by name; everything else loads."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from msprobe.config import Config, available, load_config

Load = Callable[..., Config]
Problems = Callable[..., list[str]]


def lines_about(problems: Problems, content: dict[str, Any], field: str, **arguments: Any) -> list[str]:
    return [line for line in problems(content, **arguments) if f"{field} is" in line]


@pytest.mark.parametrize(
    ("content", "field", "feature"),
    [
        ({"task": "acc_check"}, '"task"', "task acc_check"),
        ({"level": "L2", "statistics": {"list": ["a"]}}, '"level"', "recording PyTorch's kernels (level L2)"),
    ],
)
def test_not_yet(problems: Problems, content: dict[str, Any], field: str, feature: str) -> None:
    value: Any = content
    for name in field.replace('"', "").split("."):
        value = value[name]
    found = problems(content)
    assert len(found) == 1
    assert found[0].startswith(f"config.json: {field} is {json.dumps(value)}: {feature} is not available yet: ")


def test_the_packaged_file_is_for_mindspore_too(warnings: list[str]) -> None:
    config = load_config(framework="mindspore")
    assert (config.framework, config.task, config.level) == ("mindspore", "statistics", "L1")
    assert warnings == []


def test_arguments_are_refused_too(problems: Problems) -> None:
    assert problems(level="L2")[0].startswith('argument "level" is "L2": recording PyTorch\'s kernels')


def test_what_is_unknown_is_offered_only_what_can_be_used(problems: Problems) -> None:
    assert problems({"task": "tensr", "level": "L5"}) == [
        'config.json: "task" is "tensr": must be "statistics", "tensor", "structure" or "nan_check"; did you mean "tensor"?',
        'config.json: "level" is "L5": must be "L0", "L1", "mix" or "debug"',
    ]
    assert problems({"task": "none", "level": "L5"}, framework="mindspore") == [
        'config.json: "task" is "none": must be "statistics", "tensor", "structure", "overflow_check" or "exception_dump"',
        'config.json: "level" is "L5": must be "L0", "L1", "L2", "mix" or "debug"',
    ]


def test_only_what_is_there_is_recommended(problems: Problems) -> None:
    assert problems({"task": "acc_check"}) == [
        'config.json: "task" is "acc_check": task acc_check is not available yet: use "statistics", "tensor", "structure" or "nan_check"'
    ]
    for task in ("overflow_check", "exception_dump"):
        assert problems({"task": task}) == [
            f'config.json: "task" is "{task}": this task exists for MindSpore only; '
            'on PyTorch it must be "statistics", "tensor", "structure" or "nan_check"'
        ]


@pytest.mark.parametrize("rest", [{}, {"async_dump": True}, {"statistics": {"scope": ["a"]}}, {"task": "tensor"}])
def test_level_L2_is_said_to_be_missing_and_not_what_it_needs(problems: Problems, rest: dict[str, Any]) -> None:
    (line,) = problems({"level": "L2", **rest})
    assert line.startswith('config.json: "level" is "L2": recording PyTorch\'s kernels (level L2) is not available yet: use "L0", "L1"')


def test_async_md5_offers_xor(load: Load, problems: Problems) -> None:
    (line,) = problems({"async_dump": True, "statistics": {"summary_mode": "md5"}})
    assert line.endswith('async_dump cannot compute md5; use "statistics" or "xor", or set async_dump to false')
    assert load({"async_dump": True, "statistics": {"summary_mode": "xor"}}).section.summary_mode == "xor"


def test_what_is_wrong_anyway_gets_one_line(problems: Problems) -> None:
    assert len(problems({"task": "overflow_check"})) == 1


def test_available_now(load: Load) -> None:
    for task in ("statistics", "tensor"):
        for level in ("L0", "L1", "mix", "debug"):
            section = {"list": ["relu"], "data_mode": ["forward"], "summary_mode": "statistics"}
            content = {
                "task": task,
                "level": level,
                "rank": [0],
                "step": ["1-3"],
                "extra_info": False,
                "precision": "high",
                "risk_level": "CORE",
            }
            assert load({**content, task: section, "async_dump": False, "dump_enable": level == "L0", "load": None}).task == task
    assert load({"task": "tensor", "tensor": {"bench_path": None, "diff_nums": 1}}).section.diff_nums == 1
    assert load({"task": "tensor", "tensor": {"bench_path": ".", "diff_nums": 3}}).section.bench_path == "."
    assert load({"task": "nan_check", "nan_check": {"tensor_list": ["log"]}}).level == "L1"
    for mode in ("md5", "xor"):
        assert load({"task": "tensor", "tensor": {"summary_mode": mode}}).section.summary_mode == mode
        assert load({"statistics": {"summary_mode": mode}}).section.summary_mode == mode
    assert load({"async_dump": True}).async_dump is True
    assert load({"load": {"path": ".", "modules": ["Module.a.B.forward.0"]}}).load is not None
    assert load({"task": "structure"}).level == "mix"
    assert load({"level": "mix", "statistics": {"tensor_list": ["relu"], "scope": ["Tensor.a.0.forward", "Module.a.B.forward.0"]}})


def test_a_row_that_goes_makes_the_feature_available(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tuple(row for row in available.NOT_YET if row.feature != "task acc_check")
    assert len(rows) == len(available.NOT_YET) - 1
    monkeypatch.setattr(available, "NOT_YET", rows)
    assert load({"task": "acc_check"}).task == "acc_check"
