from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msprobe.config import Config

Load = Callable[..., Config]
Problems = Callable[..., list[str]]

pytestmark = pytest.mark.usefixtures("all_built")


@pytest.mark.parametrize("task", ["overflow_check", "exception_dump"])
def test_tasks_of_mindspore(load: Load, problems: Problems, task: str) -> None:
    assert problems({"task": task, "level": "L2"}) == [
        f'config.json: "task" is "{task}": this task exists for MindSpore only; '
        'on PyTorch it must be "statistics", "tensor", "structure", "acc_check" or "nan_check"'
    ]
    assert load({"task": task, "level": "L2"}, framework="mindspore").task == task
    assert problems({"task": task}, framework="mindspore") == [f'config.json: "level" is "L1": must be "L2" with task "{task}"']


@pytest.mark.parametrize("task", ["acc_check", "nan_check"])
def test_tasks_of_pytorch(load: Load, problems: Problems, task: str) -> None:
    assert load({"task": task}).task == task
    assert problems({"task": task}, framework="mindspore") == [
        f'config.json: "task" is "{task}": this task exists for PyTorch only; '
        'on MindSpore it must be "statistics", "tensor", "structure", "overflow_check" or "exception_dump"'
    ]


def test_task_structure_uses_L0_or_mix(load: Load, warnings: list[str]) -> None:
    assert [load({"task": "structure", **level}).level for level in ({"level": "L0"}, {"level": "mix"}, {})] == ["L0", "mix", "mix"]
    assert warnings == []
    assert load({"task": "structure", "level": "L1"}).level == "mix"
    assert warnings == ['config.json: "level" is "L1": task structure works at level "L0" or "mix", "mix" is used']


def test_level_L2_needs_list(load: Load, problems: Problems) -> None:
    assert load({"task": "tensor", "level": "L2", "tensor": {"list": ["Functional.linear.0.forward"]}}).level == "L2"
    assert problems({"task": "tensor", "level": "L2", "tensor": {"list": None}}) == [
        'config.json: "tensor"."list" is null: level "L2" needs the name of the API here, such as ["Functional.linear.0.forward"]'
    ]
    assert load({"task": "tensor", "level": "L2"}, framework="mindspore").level == "L2"


def test_level_L2_of_mindspore_has_neither_scope_nor_tensor_list(load: Load, warnings: list[str]) -> None:
    section = {"scope": ["any", "number", "of names"], "tensor_list": ["MatMul"]}
    assert load({"level": "L2", "statistics": section}, framework="mindspore").level == "L2"
    remark = 'has no effect at level "L2": name kernels in "list"'
    assert warnings == [f'config.json: "statistics"."{name}" {remark}' for name in ("scope", "tensor_list")]


def test_async_dump_on_mindspore_has_the_same_rules(load: Load, problems: Problems) -> None:
    for level in ("L0", "L1", "mix", "debug"):
        assert load({"async_dump": True, "level": level}, framework="mindspore").async_dump
        assert load({"async_dump": True, "level": level, "task": "tensor", "tensor": {"list": ["relu"]}}, framework="mindspore").async_dump
    assert '"tensor"."list" is []: async_dump' in problems({"async_dump": True, "task": "tensor"}, framework="mindspore")[0]
    assert problems({"async_dump": True, "statistics": {"summary_mode": "md5"}}, framework="mindspore") == [
        'config.json: "statistics"."summary_mode" is "md5": async_dump cannot compute md5; use "statistics", or set async_dump to false'
    ]
    assert "and the level is" in problems({"async_dump": True, "level": "L2"}, framework="mindspore")[0]
    assert "and the task is" in problems({"async_dump": True, "task": "structure"}, framework="mindspore")[0]


def test_level_debug_saves_statistics_or_tensors(load: Load, problems: Problems, warnings: list[str]) -> None:
    assert load({"level": "debug", "task": "tensor"}).level == "debug"
    assert problems({"level": "debug", "task": "acc_check"}) == [
        'config.json: "level" is "debug": works with task "statistics" or "tensor" only, and the task is "acc_check"'
    ]
    load({"level": "debug", "statistics": {"tensor_list": ["relu"]}})
    assert warnings == ['config.json: "statistics"."tensor_list" has no effect at level "debug"']


@pytest.mark.parametrize("level", ["L0", "L1", "mix", "debug"])
def test_async_dump(load: Load, level: str) -> None:
    assert load({"async_dump": True, "level": level}).async_dump
    assert load({"async_dump": True, "level": level, "task": "tensor", "tensor": {"list": ["relu"]}}).async_dump
    assert load({"async_dump": True, "statistics": {"summary_mode": "xor"}}).async_dump


def test_async_dump_of_tensors_needs_list_except_at_level_debug(load: Load, problems: Problems) -> None:
    assert load({"async_dump": True, "task": "tensor", "level": "debug"}).async_dump
    assert problems({"async_dump": True, "task": "tensor"}) == [
        'config.json: "tensor"."list" is []: async_dump with task tensor keeps whole tensors in device memory until the step ends, '
        "so name here what is to be recorded"
    ]


def test_async_dump_does_not_go_with_md5_or_other_tasks_or_L2(problems: Problems) -> None:
    assert problems({"async_dump": True, "statistics": {"summary_mode": "md5"}}) == [
        'config.json: "statistics"."summary_mode" is "md5": '
        'async_dump cannot compute md5; use "statistics" or "xor", or set async_dump to false'
    ]
    assert problems({"async_dump": True, "task": "acc_check"}) == [
        'config.json: "async_dump" is true: works with task "statistics" or "tensor" only, and the task is "acc_check"'
    ]
    assert problems({"async_dump": True, "level": "L2", "statistics": {"list": ["a"]}}) == [
        'config.json: "async_dump" is true: works at level "L0", "L1", "mix" or "debug" only, and the level is "L2"'
    ]


API = ["Tensor.add.0.forward", "Torch.linalg.norm.1.backward"]
MODULE = ["Module.a.B.forward.0", "Module.0.c.D.backward.0.pass1"]
MODULE_FORM = "must be a module name such as Module.conv1.Conv2d.forward.0"
API_FORM = "must be an API name such as Functional.relu.0.forward"


@pytest.mark.parametrize(
    ("level", "scope"),
    [("L0", MODULE), ("L1", API), ("L1", ["__main__.add.0.forward"] * 2), ("mix", MODULE), ("mix", API), ("mix", [API[0], MODULE[1]])],
)
def test_good_scopes(load: Load, level: str, scope: list[str]) -> None:
    assert load({"level": level, "statistics": {"scope": scope}}).section.scope == tuple(scope)


@pytest.mark.parametrize(
    ("level", "scope", "wrong", "reason"),
    [
        ("L0", [MODULE[0], API[0]], 1, f'{MODULE_FORM} at level "L0"'),
        ("L1", [MODULE[0], API[0]], 0, f'{API_FORM} at level "L1"'),
        ("mix", [API[0], "relu"], 1, f"{MODULE_FORM}, or an API name such as Functional.relu.0.forward"),
        ("mix", ["Cell.a.B.forward.0", API[0]], 0, f"{MODULE_FORM}, or an API name such as Functional.relu.0.forward"),
        ("L1", [API[0], ""], 1, f'{API_FORM} at level "L1"'),
    ],
)
def test_wrong_names_in_scope(problems: Problems, level: str, scope: list[str], wrong: int, reason: str) -> None:
    assert problems({"level": level, "statistics": {"scope": scope}}) == [
        f'config.json: "statistics"."scope"[{wrong}] is {json.dumps(scope[wrong])}: {reason}'
    ]


@pytest.mark.parametrize(
    ("level", "name", "meant"),
    [
        ("L1", "Functional.relu", "Functional.relu.0.forward"),
        ("L1", "Functional.relu.2", "Functional.relu.2.forward"),
        ("L1", "Torch.linalg.norm.1.bakward", "Torch.linalg.norm.1.backward"),
        ("L1", "Functional.relu.forward.2", "Functional.relu.2.forward"),
        ("L0", "Module.a.B", "Module.a.B.forward.0"),
        ("L0", "Module.0.a.B.1.backward", "Module.0.a.B.backward.1"),
        ("mix", "Module.a.B.2", "Module.a.B.forward.2"),
        ("L0", "Functional.relu.0", None),
        ("L1", "relu", None),
        ("L1", "Module.a.B.forward", None),
    ],
)
def test_an_incomplete_name_in_scope_is_completed_in_the_message(problems: Problems, level: str, name: str, meant: str | None) -> None:
    (text,) = problems({"level": level, "statistics": {"scope": [name, (MODULE if level == "L0" else API)[0]]}})
    assert text.startswith(f'config.json: "statistics"."scope"[0] is "{name}": must be ')
    assert text.partition("; did you mean ")[2] == (f'"{meant}"?' if meant else "")


def test_scope_does_not_go_with_level_L2(problems: Problems) -> None:
    found = problems({"task": "tensor", "level": "L2", "tensor": {"list": ["Functional.relu.0.forward"], "scope": API}})
    reason = 'does not work at level "L2": name the API in "list", and leave scope out'
    assert found == [f'config.json: "tensor"."scope" is {json.dumps(API)}: {reason}']


@pytest.mark.parametrize("name", ["scope", "list"])
def test_level_debug_selects_nothing(load: Load, warnings: list[str], name: str) -> None:
    load({"level": "debug", "statistics": {name: ["a", "b"]}})
    assert warnings == [f'config.json: "statistics"."{name}" has no effect at level "debug", where only what save() is given is recorded']


def test_an_empty_text_selects_everything(load: Load, warnings: list[str]) -> None:
    assert load({"statistics": {"list": [""], "tensor_list": ["", "relu"]}}).section.list == ("",)
    assert warnings == [
        'config.json: "statistics"."list" holds "", which is a part of every name: everything is recorded',
        'config.json: "statistics"."tensor_list" holds "", which is a part of every name: all tensors are saved',
    ]


def test_scope_of_mindspore_names_cells(load: Load) -> None:
    scope = ["Cell.conv1.Conv2d.forward.0", "Cell.fc2.Dense.backward.0"]
    assert load({"level": "L0", "statistics": {"scope": scope}}, framework="mindspore").section.scope == tuple(scope)


@pytest.mark.parametrize("scope", [API[:1], [*API, API[0]]])
def test_scope_has_two_names(problems: Problems, scope: list[str]) -> None:
    assert problems({"statistics": {"scope": scope}}) == [
        f'config.json: "statistics"."scope" is {json.dumps(scope)}: '
        f"must hold exactly two names, the first and the last of the range, but holds {len(scope)}"
    ]


def test_nan_check(load: Load, problems: Problems) -> None:
    for mode in (["all"], ["forward"], ["output"], ["input", "output"]):
        assert load({"task": "nan_check", "nan_check": {"data_mode": mode}}).section.data_mode.output
    for mode in (["input"], ["forward", "input"]):
        assert problems({"task": "nan_check", "nan_check": {"data_mode": mode}}) == [
            f'config.json: "nan_check"."data_mode" is {json.dumps(mode)}: task nan_check looks at outputs: add "output", or use ["all"]'
        ]
    for level in ("L0", "mix", "debug", "L2"):
        assert f'config.json: "level" is "{level}": must be "L1" with task "nan_check"' in problems({"task": "nan_check", "level": level})


def test_bench_path(problems: Problems, load: Load, warnings: list[str]) -> None:
    def lines(**section: Any) -> list[str]:
        return problems({"task": "tensor", "tensor": section})

    where = 'config.json: "tensor"."bench_path" is'
    for mode in ("statistics", "md5", "xor"):
        assert load({"task": "tensor", "tensor": {"bench_path": ".", "summary_mode": mode}}).section.bench_path == "."
    assert lines(bench_path="/nope", summary_mode="md5") == [f'{where} "/nope": no such directory']
    Path("file").touch()
    assert lines(bench_path="file", summary_mode="md5") == [f'{where} "file": is a file, a directory is needed']
    together = problems({"task": "tensor", "async_dump": True, "tensor": {"bench_path": ".", "list": ["relu"]}})
    assert together[0].startswith(f'{where} ".": compares while the step runs, and async_dump has the values only when it ends')
    load({"task": "tensor", "tensor": {"diff_nums": 3}})
    assert warnings == ['config.json: "tensor"."diff_nums" has no effect without bench_path']
    warnings.clear()
    load({"task": "tensor", "level": "debug", "tensor": {"bench_path": "."}})
    assert warnings == ['config.json: "tensor"."bench_path" has no effect at level "debug"']


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs Linux's /proc")
@pytest.mark.parametrize(("framework", "level"), [("pytorch", "mix"), ("pytorch", "debug"), ("mindspore", "L0"), ("mindspore", "debug")])
def test_dump_path_where_not_even_root_can_write(problems: Problems, framework: str, level: str) -> None:
    assert problems({"dump_path": "/proc/foo", "level": level}, framework=framework) == [
        'config.json: "dump_path" is "/proc/foo": there is no permission to write in /proc, choose another directory'
    ]


def test_dump_path_with_something_in_the_way(problems: Problems, tmp_path: Path) -> None:
    Path("file").touch()
    assert problems({"dump_path": "file/x"}) == [
        f'config.json: "dump_path" is "file/x": {tmp_path}/file is a file, choose another directory'
    ]
    assert problems({"dump_path": "a\0"}) == [
        'config.json: "dump_path" is "a\\u0000": not a possible path (it contains characters that no path can have)'
    ]
    assert problems({"task": "acc_check", "acc_check": {"error_data_path": "file"}}) == [
        f'config.json: "acc_check"."error_data_path" is "file": {tmp_path}/file is a file, choose another directory'
    ]


def test_load_path_and_dump_path(load: Load, problems: Problems) -> None:
    modules = {"modules": ["Module.a.B.forward.0"]}
    assert problems({"load": {"path": "nope", **modules}})[0].startswith('config.json: "load"."path" is "nope": no such directory')
    assert load({"dump_path": None, "load": {"path": ".", **modules}}).dump_path == "./dump_path"
    assert problems({"dump_path": None, "load": {"path": ".", "dump_after_load": True, **modules}}) == [
        'config.json: "dump_path" is missing: it is required, for example "dump_path": "./dump_path"'
    ]
