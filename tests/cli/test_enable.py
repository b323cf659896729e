"""`msprobe enable` and `msprobe disable` from the command line: what is asked, written and left alone."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from msprobe.cli.main import main
from msprobe.config import load_config
from msprobe.format import trial

SCRIPT = """\
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.ones(3, 1, 2):
    model(x).sum().backward()
    optimizer.step()
for x in torch.ones(2, 1, 2):
    print(model(x).shape)
"""
ONE = SCRIPT.partition("for x in torch.ones(2")[0]
FIELDS = ["--task", "statistics", "--level", "L1", "--rank", "all", "--step", "0,1", "--dump-path", "dump"]
KEYS = [
    "protocol", "command", "status", "message", "script", "questions", "environment", "candidates", "candidate", "models", "config", "diff",
    "notes", "written", "checks", "off",
]  # fmt: skip
Answers = Callable[..., None]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(ONE)
    return path


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Makes input() give these lines; an exception class is raised in the place of a line, and EOFError after the last."""

    def answers(*lines: str | type[BaseException]) -> None:
        left: Iterator[str | type[BaseException]] = iter(lines)

        def read(prompt: str = "") -> str:
            line = next(left, EOFError)
            if isinstance(line, str):
                return line
            raise line

        monkeypatch.setattr("builtins.input", read)

    return answers


def enable(*arguments: str) -> int:
    return main(["enable", "train.py", "--environment", "skip", *arguments])


def asked(capsys: pytest.CaptureFixture[str], *arguments: str, code: int, command: str = "enable") -> dict[str, Any]:
    """The answer of a call with --json; its exit code and its keys are checked."""
    capsys.readouterr()
    skip = ["--environment", "skip"] if command == "enable" and "--environment" not in arguments else []
    assert main([command, "train.py", "--json", *skip, *arguments]) == code
    out = capsys.readouterr().out
    answer: dict[str, Any] = json.loads(out)
    assert list(answer) == KEYS
    assert (answer["protocol"], answer["command"]) == (1, command)
    return answer


def ids(answer: dict[str, Any]) -> list[str]:
    return [question["id"] for question in answer["questions"]]


def test_questions_one_by_one(script: Path, typed: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    typed("tensors", "tensor", "mix", "9-4", "0-1", "", "/data/my dump", "y", "n")
    assert enable() == 0
    assert json.loads(Path("config.json").read_text()) == {
        "task": "tensor",
        "dump_path": "/data/my dump",
        "rank": ["0-1"],
        "step": [0, 1],
        "level": "mix",
        "async_dump": False,
        "extra_info": True,
        "tensor": {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"},
    }
    out = capsys.readouterr().out
    assert "'tensors' is no answer; allowed: statistics, tensor" in out
    assert "--rank is '9-4'" in out and "reversed" in out
    parts = ("What is recorded?", "Max, Min, Mean and Norm", "+    debugger.start(model)", "train.py compiles", "msprobe disable train.py")
    assert [part for part in parts if part not in out] == []
    assert main(["disable", "train.py", "--yes"]) == 0
    assert script.read_text() == ONE


def test_yes_takes_what_is_recommended(script: Path, tmp_path: Path) -> None:
    assert enable("--yes", "--level", "mix") == 0
    config = load_config("config.json")
    assert (config.task, config.level, config.rank, config.step) == ("statistics", "mix", frozenset(), frozenset({0, 1}))
    assert config.dump_path == str(tmp_path / "dump_path")


def test_a_no_writes_nothing(script: Path, typed: Answers) -> None:
    for answer in ("", "n", "no"):
        typed(answer)
        assert enable(*FIELDS) == 0
    assert os.listdir() == ["train.py"]
    assert script.read_text() == ONE


def test_after_an_empty_answer_the_answers_are_there_as_a_command(script: Path, typed: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    typed("tensor", "mix", "all", "0", "my dump", "")
    assert enable("--config", "a.json", "--no-seed") == 0
    said = capsys.readouterr().out.splitlines()
    assert os.listdir() == ["train.py"]
    assert said[-2] == "nothing was written"
    command = shlex.split(said[-1].partition(": ")[2])
    assert main(command[1:]) == 0
    assert json.loads(Path("a.json").read_text())["dump_path"] == "my dump"
    assert "seed_all" not in script.read_text()


@pytest.mark.parametrize("text", ["０，２、４-６", "[0，2、4－6]", "0,2,4-6"])
def test_numbers_of_a_full_width_keyboard(text: str, script: Path) -> None:
    assert enable("--yes", "--step", text) == 0
    assert json.loads(Path("config.json").read_text())["step"] == [0, 2, "4-6"]


@pytest.mark.parametrize("text", ["全部", "0,x"])
def test_a_wrong_number_is_quoted_once(text: str, script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = asked(capsys, "--step", text, code=2)["message"]
    assert message.startswith(f"--step is {text!r}: ") and message.count("全部") < 2


@pytest.mark.parametrize("at", range(3))
def test_control_c_and_the_end_of_input_change_nothing(script: Path, typed: Answers, at: int, capsys: pytest.CaptureFixture[str]) -> None:
    before = ["tensor", "L1", "all"][:at]
    typed(*before, KeyboardInterrupt)
    assert enable() == 130
    assert "interrupted" in capsys.readouterr().err
    typed(*before)
    assert enable() == 2
    assert "standard input ended at a question; nothing was changed" in capsys.readouterr().err
    assert os.listdir() == ["train.py"]


def test_no_standard_input_and_no_answer_that_is_understood(script: Path, typed: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    typed(RuntimeError)  # what input() raises where standard input is closed
    assert enable() == 2
    assert "standard input ended at a question; nothing was changed" in capsys.readouterr().err
    typed("\u662f", "")
    assert enable(*FIELDS) == 0
    assert "'\u662f' is no answer; allowed: y, n" in capsys.readouterr().out
    assert os.listdir() == ["train.py"]


def test_an_interrupted_trial_is_an_answer(script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from msprobe.instrument import trial

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trial, "run", interrupted)
    answer = asked(capsys, *FIELDS, "--write", "--trial", code=130)
    assert answer["status"] == "failed" and answer["message"].startswith("interrupted; written by then:")
    assert len(answer["written"]) == 2


def test_a_second_enable_changes_nothing(script: Path, typed: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    assert enable("--yes") == 0
    there = {name: Path(name).read_bytes() for name in os.listdir()}
    typed()
    assert enable("--level", "mix") == 0
    assert "enabled already" in capsys.readouterr().out
    assert asked(capsys, *FIELDS, "--write", code=0)["status"] == "already"
    assert {name: Path(name).read_bytes() for name in os.listdir()} == there


def test_a_debugger_put_in_by_hand_is_left_alone(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text("from msprobe.pytorch import PrecisionDebugger\n" + ONE)
    assert enable("--yes") == 2
    assert "by hand (line 1: from msprobe.pytorch import PrecisionDebugger)" in capsys.readouterr().err


def test_several_places(script: Path, typed: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text(SCRIPT)
    answer = asked(capsys, *FIELDS, "--write", code=1)
    assert ids(answer) == ["candidate"]
    assert [(c["id"], c["purpose"], c["recommended"]) for c in answer["candidates"]] == [("4", "training", True), ("7", "inference", False)]
    assert answer["questions"][0]["recommended"] == "4"
    typed("8", "7", "y", "n")
    assert enable(*FIELDS) == 0
    lines = script.read_text().splitlines()
    assert lines.index(next(line for line in lines if "debugger.start" in line)) == lines.index("for x in torch.ones(2, 1, 2):") + 1


def test_two_equal_places_are_never_chosen_silently(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop = ONE[ONE.index("for x") :]
    script.write_text(ONE + loop)
    assert enable("--yes") == 1
    err = capsys.readouterr().err
    assert "--candidate" in err and "4: training, loop" in err and "7: training, loop" in err
    assert asked(capsys, *FIELDS, "--yes", "--write", code=1)["written"] == []
    assert script.read_text() == ONE + loop
    assert enable("--yes", "--candidate", "7") == 0


def test_the_protocol(script: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The five calls of docs/enable.md."""
    answer = asked(capsys, code=1)
    assert (answer["status"], ids(answer)) == ("ask", ["task", "rank", "step", "dump_path"])
    assert answer["questions"][0]["option"] == "--task"
    assert "statistics" in [choice["value"] for choice in answer["questions"][0]["choices"]]
    assert [question["recommended"] for question in answer["questions"]] == ["statistics", "all", "0,1", str(tmp_path / "dump_path")]
    assert asked(capsys, "--write", code=1)["written"] == []
    level = asked(capsys, "--task", "statistics", code=1)["questions"][0]
    assert (level["id"], level["recommended"]) == ("level", "L1")

    ready = asked(capsys, *FIELDS, code=0)
    assert (ready["status"], ready["written"], os.listdir()) == ("ready", [], ["train.py"])
    assert (ready["candidate"], ready["models"]) == ("4", ["model"])
    assert ready["config"]["content"]["step"] == [0, 1]
    assert "+    debugger.start(model)" in ready["diff"]

    written = asked(capsys, *FIELDS, "--write", code=0)
    assert (written["status"], written["written"]) == ("written", [str(tmp_path / "config.json"), str(script)])
    assert [(check["name"], check["ok"]) for check in written["checks"]] == [("compiles", True), ("config", True)]
    assert json.loads(Path("config.json").read_text()) == ready["config"]["content"]

    out = asked(capsys, code=0, command="disable")
    assert (out["status"], script.read_text() == ONE) == ("ready", False)
    assert asked(capsys, "--write", code=0, command="disable")["status"] == "written"
    assert script.read_text() == ONE
    assert asked(capsys, "--write", code=0, command="disable")["status"] == "already"


def test_a_task_is_asked_with_the_levels_it_has(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No choice that is offered fails when all else is answered."""

    def offered(name: str, *arguments: str) -> list[str]:
        (question,) = [one for one in asked(capsys, *arguments, code=1)["questions"] if one["id"] == name]
        return [choice["value"] for choice in question["choices"]]

    assert offered("level", "--task", "nan_check") == ["L1"]
    assert offered("level", "--task", "structure") == ["mix", "L0"]
    assert "nan_check" in offered("task") and "nan_check" not in offered("task", "--level", "mix")
    wrong = asked(capsys, "--task", "nan_check", "--level", "mix", code=2)
    assert wrong["message"] == "--level is 'mix': with task nan_check it must be \"L1\""


def test_a_trainer_without_a_name_is_told_before_anything_is_asked(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text("from transformers import Trainer\nTrainer(model=1).train()\n")
    Path("config.json").write_text("{}")
    answer = asked(capsys, code=2)
    assert (answer["status"], answer["questions"]) == ("failed", [])
    assert "write `trainer = ...` in a line of its own first, or record the script with msprobe run" in answer["message"]


def test_the_end_of_input_at_the_trial_says_what_was_written(script: Path, typed: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    typed("what?", "y")
    assert enable(*FIELDS, "--config", "gan.json") == 0
    shown = capsys.readouterr()
    assert "'what?' is no answer; allowed: y, n" in shown.out
    assert "written: " in shown.out and "not run; a trial later:" in shown.out and "nothing was changed" not in shown.out + shown.err
    assert sorted(os.listdir()) == ["gan.json", "train.py"]
    assert enable() == 0
    assert "train.py is enabled already: change ./gan.json for what is recorded" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--task", "tensors"], 'did you mean "tensor"?'),
        (["--task", "acc_check"], "--task is 'acc_check'"),
        (["--level", "L2"], "--level is 'L2'"),
        (["--rank", "1-0"], "--rank is '1-0'"),
        (["--step", "a"], "--step is 'a'"),
        (["--dump-path", ""], "--dump-path is ''"),
        (["--candidate", "5"], "there is 4: for x in"),
        (["--model", "a b"], "is no expression"),
        (["--model", "none", *FIELDS, "--level", "mix"], "needs the model"),
        (["--existing-config", "keep"], "there is no ./config.json"),
        (["--task", "nan_check", "--level", "mix", "--rank", "all", "--step", "all", "--dump-path", "d"], 'must be "L1"'),
        (["--config", "no/where/c.json", *FIELDS, "--write"], "there is no directory"),
    ],
)
def test_wrong_options(script: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    answer = asked(capsys, *arguments, code=2)
    assert answer["status"] == "failed" and said in answer["message"], answer["message"]
    assert os.listdir() == ["train.py"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"x = 1\n", "no loop, function or statement that calls a model"),
        (b"", "no loop, function or statement"),
        (b"for x in y\n    pass\n", "line 1: expected ':'"),
        (b"import torch\n!pip install x\n", "a notebook's"),
        (b"print 'x'\n", "Python 2"),
        (b"def f[T!](x): pass\n", "msprobe runs under Python 3."),
        (b"x = '\xff'\n", "no Python source"),
        (b"# coding: nonsense\n", "no Python source"),
        (b"x = 1\0\n", "zero bytes"),
        (b"import lightning as L\nclass M(L.LightningModule):\n    pass\n", "the file that makes the Trainer"),
        (b"from vllm import LLM\nllm = LLM('x')\nllm.generate('a')\n", "docs/vllm.md"),
        (b"import jax\nmodel = f()\nfor x in y:\n    model(x)\n", "it imports jax and no PyTorch"),
        (b"import verl, torch\n", "verl starts its own processes"),
        (b"import torch, torchair\n", "without torchair"),
        (b"from transformers import Trainer\nTrainer(model=1).train()\n", "write `trainer = ...`"),
    ],
)
def test_scripts_that_cannot_be_enabled(script: Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str) -> None:
    script.write_bytes(content)
    answer = asked(capsys, *FIELDS, "--write", code=2)
    assert said in answer["message"], answer["message"]
    assert script.read_bytes() == content
    assert enable(*FIELDS, "--yes") == 2
    err = capsys.readouterr().err
    assert said in err and "Traceback" not in err and err.count("\n") == 1


@pytest.mark.parametrize("command", ["enable", "disable"])
def test_a_program_gets_an_answer_for_wrong_arguments_too(command: str, script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "--nonsense", code=2, command=command)["message"].startswith("unrecognized arguments: --nonsense")
    assert main([command, "train.py", "--nonsense"]) == 2
    assert "unrecognized arguments: --nonsense" in capsys.readouterr().err


def test_files_that_are_no_scripts(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, said in (("nothing.py", "no such file"), (".", "is a directory"), ("a.ipynb", "jupyter nbconvert")):
        for command in ("enable", "disable"):
            assert main([command, name]) == 2
            assert said in capsys.readouterr().err


def test_an_existing_configuration(script: Path, typed: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    mine = '{"task": "tensor", "dump_path": "./mine", "level": "mix"}'
    Path("config.json").write_text(mine)
    answer = asked(capsys, *FIELDS, "--write", code=1)
    assert ids(answer) == ["existing_config"]
    assert [choice["value"] for choice in answer["questions"][0]["choices"]] == ["keep", "overwrite"]
    assert enable("--yes") == 1
    assert (script.read_text(), Path("config.json").read_text()) == (ONE, mine)

    kept = asked(capsys, "--existing-config", "keep", "--write", code=0)
    assert (kept["config"]["action"], kept["written"]) == ("keep", [str(script)])
    assert Path("config.json").read_text() == mine
    assert main(["disable", "train.py", "--yes"]) == 0

    typed("overwrite", "y", "n")
    assert enable(*FIELDS) == 0
    assert load_config("config.json").dump_path == "dump"
    assert main(["disable", "train.py", "--yes"]) == 0
    assert asked(capsys, *FIELDS, "--write", code=0)["written"] == [str(script)]  # it says the same already


def test_a_foreign_config_json_is_not_taken_for_ours(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("config.json").write_text('{"hidden_size": 8}')
    answer = asked(capsys, *FIELDS, code=1)
    assert [choice["value"] for choice in answer["questions"][0]["choices"]] == ["overwrite"]
    assert asked(capsys, *FIELDS, "--config", "msprobe.json", "--write", code=0)["status"] == "written"
    assert 'config_path="./msprobe.json"' in script.read_text()
    assert Path("config.json").read_text() == '{"hidden_size": 8}'


def test_no_configuration_takes_the_place_of_something_else(script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A device that is replaced by a file is gone for the whole machine."""
    os.mkfifo("pipe")
    Path("link.json").symlink_to("pipe")
    Path("again.py").symlink_to("train.py")
    for name, said in (
        ("pipe", "is no file"),
        ("link.json", "is no file"),
        (".", "is a directory"),
        ("train.py", "is the script itself"),
        ("again.py", "is the script itself"),
        ("", "must be the path of a file"),
        ("train.py/c.json", "Not a directory"),
    ):
        answer = asked(capsys, *FIELDS, "--config", name, "--existing-config", "overwrite", "--write", code=2)
        assert said in answer["message"], answer["message"]
    assert stat.S_ISFIFO(os.lstat("pipe").st_mode) and script.read_text() == ONE
    assert sorted(os.listdir()) == ["again.py", "link.json", "pipe", "train.py"]


def test_a_configuration_elsewhere_is_named_in_full(script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "a\u00e4 b"
    place.mkdir()
    asked(capsys, *FIELDS, "--config", str(place / "c.json"), "--write", code=0)
    assert str(place / "c.json") in script.read_text(encoding="utf-8")


def test_a_read_only_script(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.chmod(0o444)
    for arguments in (["enable", "train.py", "--yes", "--environment", "skip"],):
        assert main(arguments) == 2
        assert "train.py is read-only" in capsys.readouterr().err
    assert script.read_text() == ONE


def test_links_and_permissions_stay(script: Path, tmp_path: Path) -> None:
    real = tmp_path / "real" / "script.py"
    real.parent.mkdir()
    script.rename(real)
    real.chmod(0o751)
    script.symlink_to(real)
    assert enable("--yes") == 0
    assert script.is_symlink() and "debugger" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o751
    assert main(["disable", "train.py", "--yes"]) == 0
    assert (real.read_text(), stat.S_IMODE(real.stat().st_mode)) == (ONE, 0o751)
    assert sorted(os.listdir(real.parent)) == ["script.py"]


def test_a_failing_disk_changes_nothing(script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    replace = os.replace

    def full(source: str, target: object) -> None:
        if str(target).endswith("train.py"):
            raise OSError(28, "No space left on device", str(target))
        replace(source, str(target))

    monkeypatch.setattr(os, "replace", full)
    assert enable("--yes") == 2
    assert "No space left on device" in capsys.readouterr().err
    assert (os.listdir(), script.read_text()) == (["train.py"], ONE)


def test_a_script_that_changes_while_it_is_asked(script: Path, typed: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(prompt: str = "") -> str:
        script.write_text(ONE + "# more\n")
        return "y"

    monkeypatch.setattr("builtins.input", read)
    assert enable(*FIELDS) == 2
    assert (script.read_text(), os.listdir()) == (ONE + "# more\n", ["train.py"])


def test_several_models(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text(ONE.replace("    model(x)", "    net2(x); model(x)").replace("model =", "net2 = torch.nn.ReLU()\nmodel ="))
    answer = asked(capsys, *FIELDS, code=1)
    assert ids(answer) == ["models"]
    assert (answer["questions"][0]["recommended"], answer["questions"][0]["many"]) == ("net2,model", True)
    for given, shown in ((["--model", "net2,model"], "[net2, model]"), (["--model", "model", "--model", "net2"], "[model, net2]")):
        assert f"debugger.start({shown})" in asked(capsys, *FIELDS, *given, code=0)["diff"]
    assert "debugger.start([net2, model])" in asked(capsys, "--yes", code=0)["diff"]
    assert "debugger.start()" in asked(capsys, *FIELDS, "--model", "none", code=0)["diff"]


def test_no_seed(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    diff = asked(capsys, *FIELDS, "--no-seed", code=0)["diff"]
    assert "seed_all" not in diff and "import PrecisionDebugger" in diff


def test_write_needs_json(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert enable("--write") == 2
    assert main(["disable", "train.py", "--write"]) == 2
    assert capsys.readouterr().err.count("--write belongs to --json") == 2


def test_the_environment(script: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A Python of its own, in which there is nothing."""
    answer = asked(capsys, *FIELDS, "--environment", "ignore", code=0)
    found = answer["environment"]
    assert found["ok"] and found["msprobe"] and found["torch"] and found["npu"] is None
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    capsys.readouterr()
    for python, problem in ((str(bare), "PyTorch is not installed"), (str(tmp_path / "none"), "cannot be run")):
        assert main(["enable", "train.py", "--json", "--python", python, *FIELDS]) == 1
        answer = json.loads(capsys.readouterr().out)
        assert ids(answer) == ["environment"]
        assert any(problem in one for one in answer["environment"]["problems"])


def test_edited_lines(script: Path, typed: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    def edit() -> None:
        script.write_text(ONE)
        assert enable("--yes", "--existing-config", "overwrite") == 0
        script.write_text(script.read_text().replace("debugger.start(model)", "debugger.start([model])") + "debugger.save(model, 'x')\n")

    edit()
    answer = asked(capsys, "--write", code=1, command="disable")
    assert ids(answer) == ["edited"]
    assert "9: debugger.start([model])" in answer["questions"][0]["text"] and "debugger.save" in answer["questions"][0]["text"]
    assert main(["disable", "train.py", "--yes"]) == 1
    typed("keep", "y")
    assert main(["disable", "train.py"]) == 0
    text = script.read_text()
    assert "debugger.start([model])" in text and "PrecisionDebugger(" in text and "debugger.stop()" not in text

    edit()
    assert main(["disable", "train.py", "--yes", "--edited", "remove"]) == 0
    assert script.read_text() == ONE + "debugger.save(model, 'x')\n"
    assert "still use what is gone: 7: debugger.save" in capsys.readouterr().out


@pytest.mark.parametrize("config", ["{}", "{"])
def test_nothing_is_asked_of_a_script_that_is_broken_since(script: Path, config: str) -> None:
    """disable works on what is no Python at the moment."""
    assert enable("--yes") == 0
    Path("config.json").write_text(config)
    script.write_text(script.read_text() + "def broken(:\n")
    assert main(["disable", "train.py", "--yes"]) == 0
    assert script.read_text() == ONE + "def broken(:\n"


def test_no_framework_is_imported() -> None:
    code = "import sys, msprobe.cli.enable, msprobe.instrument.writing, msprobe.instrument.trial; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_trials(script: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One that goes on for ever is ended at its first step; its recording goes beside dump_path and is removed again."""
    for_ever = ONE.replace("torch.ones(3, 1, 2)", "iter(lambda: torch.ones(1, 2), None)").replace("import torch", "import torch, time")
    script.write_text(f"{for_ever}    time.sleep(0.05)\n")
    assert asked(capsys, *FIELDS, "--step", "100", "--write", code=0)["status"] == "written"
    answer = asked(capsys, "--trial", code=0)
    assert answer["status"] == "tried"
    (check,) = answer["checks"]
    assert check["ok"] and "dump.json is at" in check["text"] and "calls of 1 process" in check["text"]
    assert sorted(os.listdir()) == ["config.json", "train.py"]


def test_a_trial_goes_elsewhere_where_nothing_can_be_made_beside_dump_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network mount that takes root for nobody: the mode bits allow it."""
    from msprobe.instrument import trial

    make, place = os.mkdir, tmp_path / "mount"
    place.mkdir()

    def refusing(path: str, *mode: int) -> None:
        if Path(path).parent == place:
            raise PermissionError(13, "Permission denied", path)
        make(path, *mode)

    monkeypatch.setattr(os, "mkdir", refusing)
    check = trial.run(["sh", "-c", "true"], str(place / "dump"), 10, lambda line: None)
    assert not check.ok and check.text.startswith("no step was recorded; the script ended with exit code 0")


_DUMP = '{"task": "statistics", "level": "L1", "data": {"a": {}}}'
_RECORDED = f"mkdir -p s/proc1; echo '{_DUMP}' > s/proc1/dump.json; echo '[INFO] dump.json is at s'"


@pytest.mark.parametrize(
    ("then", "said"),
    [
        (f"echo '[INFO] {trial.ENDED}'; sleep 0.3; echo model > model.pt; exit 3", "the script had ended by itself then, with exit code 3"),
        ("sleep 100", "then the script was ended by the trial"),
    ],
)
def test_a_trial_says_who_ended_the_script(
    then: str, said: str, script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msprobe.instrument.trial._OTHERS", 0.05)
    asked(capsys, *FIELDS, "--write", code=0)
    answer = asked(capsys, "--trial", "--", "sh", "-c", f"{_RECORDED}; {then}", code=0)
    assert answer["message"].endswith(said), answer["message"]
    assert os.path.exists("model.pt") == ("itself" in said)


@pytest.mark.slow
def test_an_enabled_script_says_when_it_has_come_to_its_end(script: Path) -> None:
    """By this line a trial knows that it need not end the script."""
    assert enable("--yes") == 0
    environment = {**os.environ, trial.VARIABLE: os.path.abspath("elsewhere"), "MSPROBE_LOG_LEVEL": "1"}
    done = subprocess.run([sys.executable, "train.py"], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1].endswith(trial.ENDED)


def test_the_configuration_is_the_one_that_the_script_names(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked(capsys, *FIELDS, "--write", "--config", "own.json", code=0)
    answer = asked(capsys, "--trial", "--", "false", code=1)
    assert answer["config"]["path"] == os.path.abspath("own.json") and answer["config"]["exists"]
    script.write_text(script.read_text().replace('config_path="./own.json"', "config_path=OWN"))
    assert asked(capsys, "--trial", "--", "false", code=1)["config"]["path"] is None


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["sh", "-c", "echo broken; exit 3"], "ended with exit code 3: broken"),
        (["sh", "-c", "sleep 100 & echo '[INFO] dump.json is at /x'; sleep 100"], "a step without calls was recorded"),
        (["sh", "-c", "sleep 100"], "no step was recorded within 1 seconds"),
        (["sh", "-c", f"echo broken; echo '[INFO] {trial.ENDED}'; exit 3"], "ended with exit code 3: broken"),
        (["/nowhere/python"], "cannot be run"),
    ],
)
def test_trials_that_record_nothing(script: Path, capsys: pytest.CaptureFixture[str], command: list[str], said: str) -> None:
    asked(capsys, *FIELDS, "--write", code=0)
    answer = asked(capsys, "--trial", "--trial-timeout", "1", "--", *command, code=1)
    assert not answer["checks"][0]["ok"] and said in answer["message"], answer["message"]
    assert sorted(os.listdir()) == ["config.json", "train.py"]


def test_a_trial_that_is_asked_for(script: Path, typed: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    typed("y", "y")
    assert main(["enable", "train.py", "--environment", "skip", *FIELDS, "--", "sh", "-c", "exit 4"]) == 1
    assert "trial: no step was recorded; the script ended with exit code 4" in capsys.readouterr().out
