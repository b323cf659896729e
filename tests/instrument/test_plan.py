"""What is asked, chosen and noted about a script, without the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from instrument.corpus import HERE
from msprobe.errors import UsageError
from msprobe.instrument.answer import Answer
from msprobe.instrument.plan import Options, Planner, config_of

FIELDS = {"task": "statistics", "level": "L1", "rank": "all", "step": "0", "dump_path": "dump"}


def planned(text: str, directory: Path, **options: object) -> Answer:
    path = directory / "script.py"
    path.write_text(text)
    config = str(directory / "config.json")
    return Planner(str(path)).answer(Options(str(path), given=dict(FIELDS), config=config, environment="skip", **options))  # type: ignore[arg-type]


def of(name: str, directory: Path, **options: object) -> Answer:
    return planned((HERE / name).read_text(encoding="utf-8"), directory, **options)


def added(answer: Answer) -> list[str]:
    """The lines that are put in, without the head."""
    lines = [line[1:].partition("  # +msprobe")[0] for line in answer.diff.splitlines() if line.startswith("+") and "+msprobe" in line]
    return [line for line in lines if not line.startswith(("#", "from", "seed_all", "debugger ="))]


def test_compiled_code_is_no_obstacle_and_is_told(tmp_path: Path) -> None:
    answer = of("compiled.py", tmp_path)
    assert answer.status == "ready"
    assert any("torch.compile (line 3)" in note for note in answer.notes)


def test_accumulation_is_told(tmp_path: Path) -> None:
    answer = of("accumulation.py", tmp_path)
    assert answer.candidates[0]["step"] == "optimizer step"
    assert any("one step of the optimizer" in note for note in answer.notes)
    assert added(answer) == ["    debugger.start(net)", "        debugger.stop()", "        debugger.step()", "    debugger.stop()"]


def test_an_accelerator_says_when_a_step_ends(tmp_path: Path) -> None:
    assert added(of("accelerate_loop.py", tmp_path))[-1] == "    if accelerator.sync_gradients: debugger.step()"


def test_a_trainer_gets_a_callback(tmp_path: Path) -> None:
    answer = of("transformers_trainer.py", tmp_path)
    assert added(answer) == ["    trainer.add_callback(MsprobeCallback(debugger=debugger))"]
    assert "from msprobe.integrations.transformers import MsprobeCallback" in answer.diff
    assert added(of("lightning_trainer.py", tmp_path)) == ["    trainer.callbacks.append(MsprobeCallback(debugger=debugger))"]
    with pytest.raises(UsageError, match="takes the trainer's own model"):
        of("transformers_trainer.py", tmp_path, models=["model"])


def test_the_callback_comes_before_what_follows_on_the_same_line(tmp_path: Path) -> None:
    text = "from transformers import Trainer\ntrainer = Trainer(model=1); trainer.train()\n"
    assert (
        "trainer = Trainer(model=1); trainer.add_callback(MsprobeCallback(debugger=debugger)); trainer.train()"
        in planned(text, tmp_path).diff
    )


def test_names_that_are_taken_are_avoided(tmp_path: Path) -> None:
    diff = of("names_taken.py", tmp_path).diff
    assert "import PrecisionDebugger, seed_all as msprobe_seed_all" in diff
    assert "msprobe_debugger_2 = PrecisionDebugger(" in diff and "+    msprobe_debugger_2.start(model)" in diff


def test_a_pipeline_gives_its_model(tmp_path: Path) -> None:
    text = "from transformers import pipeline\npipe = pipeline('x')\nfor t in 'ab':\n    print(pipe(t))\n"
    assert added(planned(text, tmp_path))[0] == "    debugger.start(pipe.model)"


def test_tokens_inside_prompts_are_asked_about(tmp_path: Path) -> None:
    text = "import torch\nmodel = torch.nn.ReLU()\nfor p in [1, 2]:\n    for _ in range(3):\n        model(torch.ones(1))\n"
    answer = planned(text, tmp_path)
    assert [(one["id"], one["recommended"]) for one in answer.candidates] == [("3", False), ("4", False)]
    assert [question.id for question in answer.questions] == ["candidate"]


def test_a_model_without_a_name_is_asked_for(tmp_path: Path) -> None:
    text = "import torch\nfrom x import make\nopt = torch.optim.SGD(make(), 1)\nfor x in []:\n    make()(x).backward()\n    opt.step()\n"
    answer = planned(text, tmp_path)
    assert [(question.id, question.recommended) for question in answer.questions] == [("models", "none")]
    assert "+    debugger.start()" in planned(text, tmp_path, models=["none"]).diff
    assert "+    debugger.start(make.net)" in planned(text, tmp_path, models=["make.net"]).diff


def test_a_model_that_has_no_value_yet_is_not_given(tmp_path: Path) -> None:
    text = "import torch\na = torch.nn.ReLU()\nfor x in torch.ones(2, 1):\n    y = a(x)\n    b = torch.nn.Tanh()\n    b(y)\n"
    answer = planned(text, tmp_path)
    assert answer.models == ["a"]
    assert any(note.startswith("b has no value where recording starts") for note in answer.notes)
    with pytest.raises(UsageError, match="--model b: it has no value yet"):
        planned(text, tmp_path, models=["b"])


def test_a_name_that_only_a_comprehension_has_is_not_given(tmp_path: Path) -> None:
    """start(net) would end the script with a NameError."""
    text = (
        "import torch\nnets = {'a': torch.nn.ReLU()}\nopt = torch.optim.SGD([p for net in nets.values() for p in net.parameters()], 1)\n"
        "for x in []:\n    nets['a'](x).backward()\n    opt.step()\n"
    )
    answer = planned(text, tmp_path)
    assert [question.id for question in answer.questions] == ["models"]
    for name in ("net", "nowhere", "nets['a'](net)"):
        with pytest.raises(UsageError, match="it has no value"):
            planned(text, tmp_path, models=[name])
    assert "debugger.start(nets['a'])" in planned(text, tmp_path, models=["nets['a']"]).diff


@pytest.mark.parametrize("models", [["none", "model"], [""], [",,"], ["model,none"]])
def test_none_stands_alone(models: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="or none alone"):
        of("plain.py", tmp_path, models=models)


def test_an_optimizer_that_steps_under_another_condition_is_told(tmp_path: Path) -> None:
    text = "import torch\nmodel = torch.nn.ReLU()\nopt = torch.optim.SGD([], 1)\nfor x in []:\n    loss = model(x)\n    loss.backward()\n"
    notes = planned(text + "    if loss.isfinite():\n        opt.step()\n", tmp_path).notes
    assert any("under a condition (line 7: if loss.isfinite():)" in note for note in notes)
    assert planned(text + "    if amp:\n        opt.step()\n    else:\n        opt.step()\n", tmp_path).notes == []


def test_a_loop_whose_head_runs_the_model_is_not_taken_unasked(tmp_path: Path) -> None:
    """A generator calls the model before the iteration begins: start() in the loop would be too late."""
    text = (
        "import torch\nmodel = torch.nn.ReLU()\nopt = torch.optim.SGD(model.parameters(), 1)\n"
        "def losses():\n    for x in []:\n        yield model(x)\n"
        "for loss in losses():\n    loss.backward()\n    opt.step()\n"
    )
    answer = planned(text, tmp_path, yes=True)
    assert [question.id for question in answer.questions] == ["candidate"]
    assert "no forward pass would be recorded here" in answer.candidates[1]["notes"][0]


def test_an_exception_that_is_caught_outside_of_the_loop_is_told(tmp_path: Path) -> None:
    loop = "for x in []:\n        model(x).backward()\n        opt.step()\n"
    head = "import torch\nmodel = torch.nn.ReLU()\nopt = torch.optim.SGD([], 1)\ntry:\n    "
    for handler, told in (
        ("except ValueError:\n    pass\n", True),
        ("except KeyboardInterrupt:\n    pass\n", False),
        ("except OSError:\n    raise\n", False),
    ):
        notes = planned(head + loop + handler, tmp_path).notes
        assert any("an exception that is caught in line 8 leaves its iteration open" in note for note in notes) is told


def test_a_trainer_with_two_names_has_one(tmp_path: Path) -> None:
    text = "import lightning as L\na = trainer = L.Trainer()\ntrainer.fit(1)\n"
    assert added(planned(text, tmp_path)) == ["trainer.callbacks.append(MsprobeCallback(debugger=debugger))"]


def test_what_only_looks_enabled_can_be_enabled(tmp_path: Path) -> None:
    text = (HERE / "plain.py").read_text(encoding="utf-8") + 's = """\ndebugger.stop()  # +msprobe 5704\n"""\n'
    assert planned(text, tmp_path).status == "ready"


def test_evaluation_is_not_taken_for_training(tmp_path: Path) -> None:
    answer = of("epochs.py", tmp_path)
    (taken,) = [one for one in answer.candidates if one["recommended"]]
    assert (taken["line"], taken["purpose"]) == (37, "training")
    assert {one["purpose"] for one in answer.candidates if not one["recommended"]} <= {"inference"}


def test_the_configuration_of_an_enabled_script() -> None:
    assert config_of('debugger = PrecisionDebugger(config_path="./c.json")  # +msprobe 0000\n') == "./c.json"
    assert config_of("debugger = PrecisionDebugger(config_path='a\\'b \\xe4')  # +msprobe 0000\n") == "a'b ä"
    assert config_of("x = 1\n") is None


@pytest.mark.parametrize(
    ("coding", "written"),
    [("utf-8", "采集.json"), ("gbk", "采集.json"), ("latin-1", "\\u91c7\\u96c6.json"), ("ascii", "\\u91c7\\u96c6.json")],
)
def test_the_path_is_written_in_its_own_characters_where_the_file_can_hold_them(coding: str, written: str, tmp_path: Path) -> None:
    script, config = tmp_path / "script.py", tmp_path / "采集.json"
    script.write_text(f"# coding: {coding}\n" + (HERE / "plain.py").read_text(encoding="utf-8"), encoding=coding)
    planner = Planner(str(script))
    answer = planner.answer(Options(str(script), given=dict(FIELDS), config=str(config), environment="skip"))
    assert answer.status == "ready" and f'{written}")  # +msprobe' in answer.diff
    assert planner.text is not None and planner.source.encoded(planner.text)
    assert config_of(planner.text) == str(config)


def test_marks_that_cannot_be_seen_are_escaped(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text((HERE / "plain.py").read_text(encoding="utf-8"))
    answer = Planner(str(script)).answer(Options(str(script), given=dict(FIELDS), config=f"{tmp_path}/a\u202eb.json", environment="skip"))
    assert "a\\u202eb.json" in answer.diff and "\u202e" not in answer.diff


def test_the_choices_of_models_say_why_each_is_one(tmp_path: Path) -> None:
    text = "import torch\nnetG, netD = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)\n"
    text += "opt = torch.optim.SGD([*netG.parameters(), *netD.parameters()])\n"
    text += "for x in torch.ones(2, 1):\n    netD(netG(x)).backward()\n    opt.step()\n"
    (question,) = planned(text, tmp_path).questions
    assert question.recommended == "netD,netG" and "commas between them or --model once for each" in question.text
    assert {choice.text for choice in question.choices} == {"the script gives this name a model"}
    assert question.recommended is not None
    assert (
        planned(text, tmp_path, models=[question.recommended]).models
        == planned(text, tmp_path, models=["netD", "netG"]).models
        == ["netD", "netG"]
    )
