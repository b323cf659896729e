from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from msprobe.cli.main import main
from msprobe.launch import child
from msprobe.launch.orders import VARIABLE

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no command is given: msprobe run --level mix --step 0 -- python train.py"),
        (["--step", "a", "--", "python"], "argument --step: 'a': must be numbers and ranges"),
        (["--rank", "-1", "--", "python"], "--rank"),
        (["--step-on", "loss", "--", "python"], "argument --step-on: 'loss': must be auto, optimizer, optimizer:N, forward or forward:N"),
        (["--step-on", "optimizer:0", "--", "python"], "argument --step-on: 'optimizer:0'"),
        (["--step-on", "forward:0", "--", "python"], "argument --step-on: 'forward:0'"),
        (["--level", "L3", "--", "python"], '--level is "L3": must be "L0", "L1" or "mix"'),
        (["--level", "l1", "--", "python"], '--level is "l1": must be "L0", "L1" or "mix"; did you mean "L1"?'),
        (["--level", "debug", "--", "python"], 'level "debug" records what the script hands to save()'),
        (["--task", "acc_check", "--", "python"], "task acc_check is not available yet"),
        (["--step", "5-2", "--", "python"], '"step"'),
        (["--config", ".", "--", "python"], "--config .: is a directory; give the config.json in it"),
        (["--config", "none.json", "--", "python"], "check the path, or leave --config out to use the defaults"),
        (["--", "no-such-program"], "the command 'no-such-program' cannot be run: No such file or directory"),
        (["--", "train.py"], "a script needs its interpreter: python train.py"),
        (["--", "python", "-I", "train.py"], "python runs Python with -I, which keeps msprobe out"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    assert main(["run", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("msprobe run: error: ") and message in error and error.count("\n") == 1


def test_what_the_command_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.json").write_text(json.dumps({"dump_path": "d"}))
    given = []

    def run(command: list[str], variables: dict[str, str]) -> int:
        given.append((command, json.loads(variables[VARIABLE])))
        return 5

    monkeypatch.setattr(child, "run", run)
    options = ["--config", "c.json", "--step", "0,2-3", "--rank", "1", "--step-on", "forward:4", "--models", "all"]
    assert main(["run", *options, "--", "python", "train.py", "--step", "9"]) == 5
    assert main(["run", "python", "train.py"]) == 5
    (first, orders), (second, by_default) = given[:2]
    assert first == ["python", "train.py", "--step", "9"] and second == ["python", "train.py"]
    assert orders == {
        "config": str(tmp_path / "c.json"),
        "arguments": {"step": [0, "2-3"], "rank": [1], "dump_path": str(tmp_path / "d")},
        "step_on": "forward",
        "forwards": 4,
        "optimizer_steps": 1,
        "models": "all",
    }
    assert main(["run", "--step-on", "optimizer:2", "--", "python"]) == 5
    assert [given[2][1][name] for name in ("step_on", "forwards", "optimizer_steps")] == ["optimizer", 1, 2]
    assert by_default["config"] is None and by_default["arguments"] == {"level": "mix", "dump_path": str(tmp_path / "dump_path")}


@pytest.mark.parametrize("code", [0, 3, -15])
def test_the_exit_code_is_the_commands(code: int, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    ended = []
    monkeypatch.setattr(child, "end_like", lambda number: ended.append(number) or 143)
    source = f"import os, sys; sys.exit({code})" if code >= 0 else f"import os; os.kill(os.getpid(), {-code})"
    assert main(["run", "--", sys.executable, "-c", source]) == 143 and ended == [code]
