from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msprobe.config import Config, load_config
from msprobe.config.loading import PACKAGED
from msprobe.errors import ConfigError

Load = Callable[..., Config]
Problems = Callable[..., list[str]]

SAMPLES: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "documented_configs.json").read_text())


def test_without_a_path_the_packaged_file_is_read(warnings: list[str]) -> None:
    config = load_config()
    assert (config.dump_path, config.source) == ("./dump_path", PACKAGED)
    assert warnings == []


def test_the_packaged_file_holds_the_documented_defaults(load: Load) -> None:
    packaged = json.loads(Path(PACKAGED).read_text())
    for task in ("statistics", "tensor"):
        default = load({"task": task, "dump_path": "./dump_path"})
        assert dataclasses.replace(load_config(task=task), source=default.source) == default
    assert packaged["dump_path"] == "./dump_path"


@pytest.mark.usefixtures("all_built")
@pytest.mark.parametrize("task", ["acc_check", "nan_check", "overflow_check"])
def test_the_packaged_sections_hold_the_documented_defaults(load: Load, task: str) -> None:
    framework, level = ("mindspore", "L2") if task == "overflow_check" else ("pytorch", "L1")
    default = load({"task": task}, framework=framework, level=level)
    assert load_config(task=task, framework=framework, level=level).section == default.section


def test_arguments_win_over_the_file(load: Load) -> None:
    content = {"task": "tensor", "dump_path": "file", "level": "L0", "step": [1], "statistics": {"list": ["a"]}, "tensor": {"list": ["b"]}}
    plain = load(content)
    assert (plain.task, plain.dump_path, plain.level, plain.step, plain.section.list) == ("tensor", "file", "L0", {1}, ("b",))
    other = load(content, task="statistics", dump_path="argument", level="mix", step=[2, "4-5"])
    assert (other.task, other.dump_path, other.level, other.step, other.section.list) == (
        "statistics",
        "argument",
        "mix",
        {2, 4, 5},
        ("a",),
    )
    assert load(content, task="", dump_path="", level="") == plain
    assert load(content, step=[]).step == frozenset()
    assert load(content, dump_path=Path("p"), step=range(2)).dump_path == "p"
    assert load(content, step=(1, "3")).step == load(content, step={1, "3"}).step == {1, 3}


def test_an_argument_also_replaces_a_wrong_value(load: Load) -> None:
    assert load({"level": "L9"}, level="L0").level == "L0"


@pytest.mark.parametrize(
    ("argument", "value", "line"),
    [
        ("task", "foo", 'argument "task" is "foo": must be "statistics", "tensor", '),
        ("task", 0, 'argument "task" is 0: must be "statistics", "tensor", '),
        ("level", "L9", 'argument "level" is "L9": must be "L0", "L1", '),
        ("dump_path", 3, 'argument "dump_path" is 3: must be a string, for example "./dump_path"'),
        ("step", 3, 'argument "step" is 3: must be a list, for example [0, 1, 2, "4-6"]'),
        ("step", {1: 2}, 'argument "step" is {"1": 2}: must be a list'),
        ("step", [0, "6-4"], 'argument "step"[1] is "6-4": the range is reversed, write "4-6"'),
        ("framework", "torch", 'argument "framework" is "torch": must be "pytorch" or "mindspore"; did you mean "pytorch"?'),
        ("framework", None, 'argument "framework" is null: must be "pytorch" or "mindspore"'),
    ],
)
def test_wrong_arguments(problems: Problems, argument: str, value: Any, line: str) -> None:
    found = problems(**{argument: value})
    assert len(found) == 1
    assert found[0].startswith(line)


def test_an_argument_whose_repr_fails_is_still_an_error_of_ours(problems: Problems) -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError

    assert problems(task=Hostile())[0].startswith('argument "task" is <Hostile>: must be ')


@pytest.mark.parametrize("path", [3, b"config.json", ["config.json"], object()])
def test_a_path_is_text(path: Any) -> None:
    with pytest.raises(ConfigError, match=r"^config_path is .*: must be the path of a configuration file"):
        load_config(path)


def test_paths_of_all_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("数据 a.conf").write_text('{"dump_path": "~/d"}')
    for path in ("数据 a.conf", Path("数据 a.conf"), tmp_path / "数据 a.conf", "~/数据 a.conf"):
        assert load_config(path).dump_path == f"{tmp_path}/d"


@pytest.mark.parametrize(("value", "state"), [({}, "is missing"), ({"dump_path": None}, "is missing"), ({"dump_path": ""}, 'is ""')])
def test_dump_path_is_required(problems: Problems, load: Load, value: dict[str, Any], state: str) -> None:
    text = json.dumps(value)
    assert problems(text) == [f'config.json: "dump_path" {state}: it is required, for example "dump_path": "./dump_path"']
    assert load(text, dump_path="x").dump_path == "x"


def test_several_problems_come_at_once(problems: Problems) -> None:
    content = {"rank": ["6-4"], "level": "l1", "extra_info": 0, "statistics": {"list": "relu", "data_mode": ["x"]}}
    assert [line.split(" is ")[0] for line in problems(content)] == [
        f"config.json: {place}" for place in ('"rank"[0]', '"level"', '"extra_info"', '"statistics"."list"', '"statistics"."data_mode"[0]')
    ]


def test_warnings_come_even_when_there_is_an_error(problems: Problems, warnings: list[str]) -> None:
    problems({"levle": "L0", "level": "x"})
    assert warnings == ['config.json: "levle" is not a known field and has no effect; did you mean "level"?']


def test_messages_are_single_short_printable_lines(problems: Problems) -> None:
    (line,) = problems('{"dump_path": "d", "task": "a\\n\\ud800\\u202e' + "b" * 1000 + '"}')
    assert len(line) < 300
    line.encode()
    assert line.isprintable()


def test_the_result_cannot_be_changed(load: Load) -> None:
    config = load()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.level = "L0"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.section.list = ()  # type: ignore[misc]
    hash(config)


@pytest.mark.usefixtures("all_built")
@pytest.mark.parametrize("name", SAMPLES)
def test_documented_configs_load(load: Load, warnings: list[str], tmp_path: Path, name: str) -> None:
    text = json.dumps(SAMPLES[name]).replace("/home/", f"{tmp_path}/")
    os.makedirs("bench_data_dump")
    os.makedirs("data_dump_a")
    mindspore = name in ("overflow_check", "exception_dump", "static_graph")
    assert load(text, framework="mindspore" if mindspore else "pytorch").task == SAMPLES[name]["task"]
    assert warnings == []


def test_importing_and_loading_needs_nothing_heavy() -> None:
    code = (
        "import sys; from msprobe.config import load_config; load_config();"
        "print([m for m in ('torch', 'numpy', 'pandas', 'rich', 'mindspore') if m in sys.modules])"
    )
    path = os.pathsep.join(filter(None, (str(Path(PACKAGED).parent.parent), os.environ.get("PYTHONPATH"))))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=True)
    assert done.stdout.strip() == "[]"
