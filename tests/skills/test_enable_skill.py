"""The skill that switches recording on: its commands do what it says, its code runs, configurations are valid, the translation keeps up."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import warm_python
from docs.documents import ROOT, Block, anchors, blocks, headings, links
from msprobe.cli.main import COMMANDS, Parser, main
from msprobe.config import load_config
from msprobe.errors import UsageError
from msprobe.instrument import fields

SKILL = ROOT / "skills" / "accuracy" / "msprobe-dump-enable"
REFERENCES = ("config-json.md", "api-reference.md", "kernel-dump-l2.md", "nan-check.md", "vllm-ascend.md")
PAGES = ["SKILL.md", *(f"references/{name}" for name in REFERENCES)]
TRAIN = """import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for data in torch.ones(3, 2, 4):
    loss = model(data).sum()
    loss.backward()
    optimizer.step()
"""


STAGES = (SKILL / "SKILL.md").read_text(encoding="utf-8")


def _blocks(page: str, *languages: str) -> list[Block]:
    return [block for block in blocks(SKILL / page) if block.language in languages]


def test_the_commands_do_what_the_stages_say(tmp_path: Path) -> None:
    """Stages 3 to 7 on one script, in order: ask, show, write, try, take out again."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "config.json").write_text('{"dump_path": "./old", "level": "mix"}')
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    for name, command in (("python", warm_python.command()), ("msprobe", [sys.executable, "-m", "msprobe"])):
        script = bin_directory / name
        script.write_text("#!/bin/sh\nexec " + " ".join(f"'{part}'" for part in command) + ' "$@"\n')
        script.chmod(0o755)
    environment = os.environ | {"PATH": f"{bin_directory}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    seen = []
    for block in _blocks("SKILL.md", "shell"):
        for line in block.text.splitlines():
            done = subprocess.run(
                ["sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
            )
            if line.startswith(("msprobe enable", "msprobe disable")):
                answer = json.loads(done.stdout)
                seen.append((answer["status"], done.returncode))
                if answer["status"] == "tried":
                    assert all(check["ok"] for check in answer["checks"]), answer["checks"]
            else:
                assert done.returncode == 0, done.stderr
    assert seen == [("ask", 1), ("ready", 0), ("ready", 0), ("written", 0), ("tried", 0), ("ready", 0), ("written", 0)]
    assert [sorted(step.name for step in (tmp_path / name).iterdir()) for name in ("dump", "dump_second")] == [["step0", "step1"]] * 2
    assert (tmp_path / "train.py").read_text() == TRAIN


@pytest.mark.parametrize("keep", [True, False])
def test_one_answer_at_a_time_leads_to_ready(
    keep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stages 3 and 4 to the letter, for every answer that is offered: the option of each question takes it, and none of them fails."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN + "for data in torch.ones(3, 2, 4):\n    print(model(data))\n")
    Path("config.json").write_text('{"dump_path": "./old", "level": "mix"}')
    ways = [list[str]()]
    ready = []
    while ways:
        given = ways.pop()
        code = main(["enable", "train.py", "--json", "--environment", "skip", *given])
        answer = json.loads(capsys.readouterr().out)
        assert code == {"ask": 1, "ready": 0}[answer["status"]], answer["message"]
        if answer["status"] == "ready":
            ready.append(given)
            continue
        question = answer["questions"][0]
        values = [choice["value"] for choice in question["choices"]] if question["id"] in ("task", "level") else [question["recommended"]]
        if question["id"] == "existing_config":
            values = ["keep" if keep else "overwrite"]
        assert f"| `{question['id']}`" in STAGES or f"`{question['id']}`, " in STAGES or f", `{question['id']}`" in STAGES
        assert question["option"] in STAGES
        ways += [[*given, question["option"], value] for value in values]
    assert ready and all(given[:4:2] == ["--candidate", "--existing-config"] for given in ready)
    assert {len(given) for given in ready} == {4 if keep else 14}
    assert (["--task", "nan_check"] in [given[4:6] for given in ready]) is not keep


@pytest.mark.parametrize("path", [SKILL / "SKILL.md", SKILL / "zh" / "SKILL.md"], ids=["en", "zh"])
def test_a_trainer_without_a_name_ends_where_the_skill_says(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text("from transformers import Trainer\nTrainer(model=1).train()\n")
    assert main(["enable", str(script), "--json", "--environment", "skip"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "failed" and answer["questions"] == [] and "msprobe run" in answer["message"]
    text = path.read_text(encoding="utf-8")
    assert "`Trainer(...).train()`" in text and "`trainer = Trainer(...)`" in text and "`msprobe run -- python train.py`" in text


def _parses(command: str) -> bool:
    """Whether the command line takes it; what it would do is not done."""
    name, *given = shlex.split(command, comments=True)[1:]
    if name not in COMMANDS:
        return False
    module = importlib.import_module(f"msprobe.cli.{name}")
    parser = Parser(prog=f"msprobe {name}", allow_abbrev=False)
    module.add_arguments(parser)
    parse = getattr(module, "parse", Parser.parse_args)
    try:
        parse(parser, given)
    except (SystemExit, UsageError):
        return False
    return True


@pytest.mark.parametrize("path", sorted(SKILL.rglob("*.md")), ids=lambda path: str(path.relative_to(SKILL)))
def test_every_command_that_is_named_is_one(path: Path) -> None:
    """In blocks and in the text; a name alone, as `msprobe compare`, says no more than which command is meant."""
    text = path.read_text(encoding="utf-8")
    named = {line.strip() for line in [*text.splitlines(), *re.findall(r"`([^`\n]+)`", text)] if line.startswith("msprobe ")}
    assert [line for line in sorted(named) if len(line.split()) > 2 and not _parses(line)] == []
    assert all(line.split()[1] in COMMANDS for line in named)
    assert named or path.name != "SKILL.md"


def test_a_command_without_its_options_is_none() -> None:
    assert _parses("msprobe compare -tp TARGET -gp GOLDEN") and not _parses("msprobe compare target golden")
    assert not _parses("msprobe compares -tp a -gp b") and not _parses("msprobe enable train.py --nothing")


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_run(page: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"dump_path": "./dump", "level": "mix"}')
    for block in _blocks(page, "python"):
        command = [shutil.which(warm_python.command()[0]) or warm_python.command()[0], *warm_python.command()[1:], "-c", block.text]
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{block}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES)
def test_configurations_are_valid(page: str, tmp_path: Path) -> None:
    for number, block in enumerate(_blocks(page, "json")):
        content = json.loads(block.text)
        if "task" in content:
            file = tmp_path / f"{number}.json"
            file.write_text(json.dumps(content | {"dump_path": str(tmp_path / "dump")}))
            assert load_config(str(file)).task == content["task"]


@pytest.mark.parametrize("page", PAGES)
def test_the_translation_keeps_up(page: str) -> None:
    translation = SKILL / "zh" / page
    assert [level for level, _ in headings(translation)] == [level for level, _ in headings(SKILL / page)]
    same = [[b.text for b in blocks(path) if b.language not in ("diff", "text")] for path in (SKILL / page, translation)]
    assert same[0] == same[1]


@pytest.mark.parametrize("path", sorted(SKILL.rglob("*.md")), ids=lambda path: str(path.relative_to(SKILL)))
def test_links_and_languages(path: Path) -> None:
    assert [str(block) for block in blocks(path) if not block.language] == []
    for target in links(path):
        if "://" not in target:
            file, _, anchor = target.partition("#")
            assert (path.parent / file).exists(), target
            assert not anchor or anchor in anchors(path.parent / file), target


@pytest.mark.parametrize("path", [SKILL / "SKILL.md", SKILL / "zh" / "SKILL.md"], ids=["en", "zh"])
def test_the_skill_is_one(path: Path) -> None:
    """The head that agents read, the seven stages, and the rule that nobody answers for the user."""
    head = yaml.safe_load(path.read_text(encoding="utf-8").split("---")[1])
    assert head["name"] == SKILL.name
    assert len(head["description"]) < 1024
    stages = [text for level, text in headings(path) if re.match(r"(Stage \d|第 \d 步)", text)]
    assert len(stages) == 7
    commands = [line for block in blocks(path) for line in block.text.splitlines() if line.startswith("msprobe")]
    assert commands and not any("--yes" in command for command in commands)
    assert all(f"references/{name}" in path.read_text(encoding="utf-8") for name in REFERENCES)


def test_the_recommended_values_are_those_of_the_command() -> None:
    """Stage 4's table against what `msprobe enable` recommends; the path is the user's own."""
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|$", STAGES.partition("## Stage 4")[2], re.MULTILINE))
    assert list(rows) == list(fields.FIELDS)
    for name in ("task", "level", "rank", "step"):
        assert f"`{fields.question(name, {}).recommended}`" in rows[name]
    assert os.path.basename(fields.question("dump_path", {}).recommended or "") == "dump_path" and "`dump_path`" in rows["dump_path"]
