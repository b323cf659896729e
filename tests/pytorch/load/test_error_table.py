"""Each row of the document's table of errors (附录 异常处理), by its message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from overriding import TAKES, Around, overridden, source

from msprobe.errors import ConfigError, MsprobeException
from msprobe.pytorch import PrecisionDebugger

GOOD = "Module.inner.Takes.forward.0"


def refused(directory: Path, load: Any) -> str:
    """The text of the error with which the debugger is not made."""
    path = directory / "config.json"
    path.write_text(json.dumps({"dump_path": str(directory / "dump"), "load": load}))
    with pytest.raises(ConfigError) as caught:
        PrecisionDebugger(config_path=str(path))
    assert isinstance(caught.value, MsprobeException)
    return str(caught.value).removeprefix(f"{path}: ")


def test_the_path_is_no_directory(tmp_path: Path) -> None:
    missing, file = tmp_path / "missing", tmp_path / "file"
    file.write_text("")
    assert refused(tmp_path, {"path": str(missing), "modules": [GOOD]}) == f'"load"."path" is "{missing}": no such directory'
    assert refused(tmp_path, {"path": str(file), "modules": [GOOD]}) == f'"load"."path" is "{file}": is a file, a directory is needed'
    assert refused(tmp_path, {"path": "", "modules": [GOOD]}) == '"load"."path" is "": must be the path of a directory, not an empty string'


def test_the_path_holds_no_steps(tmp_path: Path) -> None:
    root = source(tmp_path, {})
    expected = f'"load"."path" is {root / "step0"}: it must be the directory that holds step0, step1 and so on; write {root}'
    assert refused(tmp_path, {"path": str(root / "step0"), "modules": [GOOD]}) == expected
    (tmp_path / "empty").mkdir()
    text = refused(tmp_path, {"path": str(tmp_path / "empty"), "modules": [GOOD]})
    assert text == f'"load"."path" is {tmp_path / "empty"}: it must be the directory that holds step0, step1 and so on'


def test_source_step_is_not_there(tmp_path: Path) -> None:
    for step in range(10):
        root = source(tmp_path, {}, step=step)
    text = refused(tmp_path, {"path": str(root), "modules": [GOOD], "source_step": 12})
    assert text == f'"load"."source_step" is 12: {root} has step0, step1, step2, step3, step4, step5, step6, step7 and 2 more only'


@pytest.mark.parametrize("spelling", ["source", "source/", "./source", "other/../source", "link"])
def test_what_is_loaded_cannot_be_recorded_over(tmp_path: Path, spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = source(tmp_path, {f"{TAKES}.input.0": torch.ones(2)}, place="rank0")
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(root)
    monkeypatch.chdir(tmp_path)
    load = {"path": str(root), "modules": [GOOD]}
    path = tmp_path / "config.json"
    config: dict[str, Any] = {"dump_path": spelling, "load": {**load, "dump_after_load": True}}
    path.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match='is the same directory as "dump_path", so recording would overwrite what is loaded'):
        PrecisionDebugger(config_path=str(path))
    path.write_text(json.dumps({**config, "load": load}))  # nothing is recorded
    PrecisionDebugger(config_path=str(path))


@pytest.mark.parametrize(
    ("modules", "text"),
    [
        ([], " is []: must name at least one module call; an empty list does not mean all"),
        (GOOD, f' is "{GOOD}": must be a list, for example ["Module.relu.ReLU.forward.0"]'),
        (None, ' is null: must be a list, for example ["Module.relu.ReLU.forward.0"]'),
        ([3], "[0] is 3: must be a string"),
        (["inner.Takes.forward.0"], '[0] is "inner.Takes.forward.0": must start with "Module."'),
        (
            ["Module.inner.Takes"],
            '[0] is "Module.inner.Takes": must end with ".forward.N", N being the number of the call, counted from 0',
        ),
        (
            ["Module.inner.Takes.backward.0"],
            '[0] is "Module.inner.Takes.backward.0": only inputs of forward calls can be loaded, the name must not contain .backward.',
        ),
        (
            [f"{GOOD}.input.0.pt"],
            f'[0] is "{GOOD}.input.0.pt": must end with ".forward.N", N being the number of the call, counted from 0; '
            'leave out ".input.0.pt"',
        ),
        (
            ["Module.inner.Takes.forward.01"],
            '[0] is "Module.inner.Takes.forward.01": must end with ".forward.N", N being the number of the call, counted from 0; '
            "without zeros before it",
        ),
        ([GOOD, GOOD], f' is ["{GOOD}", "{GOOD}"]: names "{GOOD}" twice'),
    ],
    ids=["empty", "text", "null", "number", "no Module", "no number", "backward", "name of a file", "zeros", "twice"],
)
def test_modules(tmp_path: Path, modules: Any, text: str) -> None:
    root = source(tmp_path, {})
    assert refused(tmp_path, {"path": str(root), "modules": modules}) == f'"load"."modules"{text}'


def test_modules_without_a_path(tmp_path: Path) -> None:
    text = refused(tmp_path, {"modules": [GOOD]})
    assert text == '"load"."path" is missing: it is required, for example "/home/data_dump_a"'


@pytest.mark.parametrize("value", ["abc", [], 1, True])
def test_a_section_that_is_none(tmp_path: Path, value: Any) -> None:
    example = '{"path": "/home/data_dump_a", "modules": ["Module.relu.ReLU.forward.0"]}'
    assert refused(tmp_path, value) == f'"load" is {json.dumps(value)}: must be an object, for example {example}'


def test_an_empty_section_names_both_fields(tmp_path: Path) -> None:
    lines = refused(tmp_path, {}).splitlines()
    assert ['"path" is missing' in lines[0], '"modules" is missing' in lines[1]] == [True, True]


def test_null_is_no_section(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"dump_path": str(tmp_path / "dump"), "load": None}))
    PrecisionDebugger(config_path=str(path))
    assert PrecisionDebugger._session is not None and PrecisionDebugger._session.override is None


def outcome(directory: Path, log: list[str], modules: list[str], arrived: torch.Tensor) -> tuple[torch.Tensor, list[str]]:
    """What the module saw, and the warnings."""
    model = Around()
    with overridden(directory, modules, model):
        model(arrived)
    return model.inner.args[0], [line for line in log if line.startswith("WARNING")]  # type: ignore[union-attr,return-value]


def test_a_module_that_is_not_in_the_model(tmp_path: Path, log: list[str]) -> None:
    source(tmp_path, {f"{TAKES}.input.0": torch.ones(2)})
    seen, warnings = outcome(tmp_path, log, ["Module.other.Takes.forward.0", TAKES], torch.zeros(2))
    assert seen.tolist() == [1, 1]
    assert warnings[0] == (
        "WARNING [load] invalid module: Module.other.Takes.forward.0: "
        'the model has no module "other"; did you mean "Module.inner.Takes.forward.0"?'
    )


def test_a_call_that_never_came(tmp_path: Path, log: list[str]) -> None:
    source(tmp_path, {f"{TAKES}.input.0": torch.ones(2)})
    seen, warnings = outcome(tmp_path, log, ["Module.inner.Takes.forward.1"], torch.zeros(2))
    assert seen.tolist() == [0, 0]
    assert warnings == [
        "WARNING [load] 1 module(s) were configured but never matched during step 0: "
        "Module.inner.Takes.forward.1 (called once, so its only call is forward.0)"
    ]


def test_a_file_that_is_missing(tmp_path: Path, log: list[str]) -> None:
    root = source(tmp_path, {})
    arrived = torch.zeros(2)
    seen, warnings = outcome(tmp_path, log, [TAKES], arrived)
    assert seen is arrived
    file = root / "step0" / "proc1" / "dump_tensor_data" / f"{TAKES}.input.0.pt"
    assert warnings == [f"WARNING [load] no source for {TAKES}.input.0: {file} does not exist; the value that arrived is kept"]


@pytest.mark.parametrize(
    ("recorded", "there"), [(torch.ones(3), "shape=[3] dtype=torch.float32"), (torch.ones(2).half(), "shape=[2] dtype=torch.float16")]
)
def test_shape_or_dtype_differ(tmp_path: Path, log: list[str], recorded: torch.Tensor, there: str) -> None:
    source(tmp_path, {f"{TAKES}.input.0": recorded})
    seen, warnings = outcome(tmp_path, log, [TAKES], torch.zeros(2))
    assert torch.equal(seen, recorded)
    assert warnings == [
        f"WARNING [load] tensor mismatch for {TAKES}.input.0: source {there} vs current shape=[2] dtype=torch.float32, "
        "override may cause forward error"
    ]
