"""The whole command, with scripts that run in processes of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from isolation.scripts import BEGIN, BLOCKS, BUFFERS, IN_PLACE, LAUNCHER, RANKS, Scripts
from msprobe.errors import UsageError
from msprobe.isolation import words
from msprobe.isolation.child import Ended
from msprobe.isolation.halving import at_most
from msprobe.isolation.isolate import Result


def found(result: Result) -> list[tuple[str, str]]:
    return [(suspect.kind, suspect.call) for suspect in result.verdict.suspects]


def test_an_equal_run_finds_nothing(scripts: Scripts) -> None:
    command = scripts.write(BLOCKS)
    scripts.record(command)
    result = scripts.isolate(command)
    assert not result.found and result.sentence.startswith("nothing is wrong") and not result.notes
    assert scripts.runs == 2
    assert [path.exists() for path in result.files] == [True, True]
    log = (scripts.directory / "isolate" / "run1" / "output.log").read_text()
    assert "step 1 is over" not in log and "the end" not in log  # what comes after the step is not waited for
    result = scripts.isolate(command, "rounding", to_the_end=True)
    assert not result.found
    assert "the end" in (scripts.directory / "isolate" / "run1" / "output.log").read_text()


def test_faults_of_every_kind_at_once(scripts: Scripts) -> None:
    command = scripts.write(BLOCKS)
    scripts.record(command, level="mix")
    result = scripts.isolate(command, "leaf scale gain mask")
    assert scripts.runs == 1 and result.found
    assert found(result) == [
        ("module", "Module.blocks.1.out.Linear.forward.0"),
        ("between", "Module.blocks.2.attention.o.Linear.forward.0"),
        ("between", "Module.blocks.0.out.Linear.forward.0"),
    ]
    leaf, scale, gain = result.verdict.suspects
    source = BLOCKS.splitlines()
    line = next(number for number, text in enumerate(source, 1) if "# the leaf" in text)
    assert leaf.code == f"{scripts.directory / 'train.py'}:{line}" or leaf.code.endswith(f"train.py:{line}")
    assert result.sentence == f"blocks.1.out (Linear) is wrong (train.py:{line}); and 2 more things, listed below"
    assert leaf.explained == ["Module.blocks.1.Block.forward.0"]
    assert leaf.reached == ["Module.blocks.2.Block.forward.0"]
    assert (scale.owner, scale.after) == ("Module.blocks.2.attention.Attention.forward.0", "Module.blocks.2.attention.v.Linear.forward.0")
    assert scale.frame is not None and scale.frame.source == "return self.o(weights @ v)"
    assert scale.explained == []
    assert gain.owner == "Module.blocks.0.Block.forward.0" and gain.explained == ["Module.blocks.0.Block.forward.0"]
    (remark,) = result.verdict.remarks
    assert remark.startswith("blocks.3.attention (Attention) is called with other arguments") and "mask (4, golden 3)" in remark
    text = "\n".join(line.text for line in words.details(result.verdict))
    assert "explains the wrong output of blocks.1 (Block)" in text and "remark: blocks.3.attention" in text
    assert "Functional" not in result.files[0].read_text()  # the golden dump's APIs have no partner, and are not asked for


def test_parameters_and_a_modules_own_code(scripts: Scripts) -> None:
    command = scripts.write(BLOCKS)
    scripts.record(command)
    result = scripts.isolate(command, "weight tail again")
    assert found(result) == [
        ("module", "Module.blocks.0.attention.o.Linear.forward.0"),
        ("parameter", "Module.blocks.1.attention.v.Linear.forward.0"),
        ("own code", "Module.blocks.3.Block.forward.0"),
    ]
    nan, weight, tail = result.verdict.suspects
    assert nan.differences[0].how == "NaN or infinities at other places"
    assert weight.reached == ["Module.blocks.1.attention.o.Linear.forward.0"] and weight.explained == []
    assert tail.after == "Module.blocks.3.out.Linear.forward.0" and tail.size == 6
    first = 1 + next(number for number, text in enumerate(BLOCKS.splitlines()) if "self.gain, self.tail" in text) + 2
    assert (tail.code.rpartition(":")[2], tail.code_end) == (str(first), first + 2)
    kept = json.loads((scripts.directory / "isolate" / "isolate.json").read_text())["result"]
    assert kept["found"] and [suspect["call"] for suspect in kept["suspects"]] == [call for _, call in found(result)]


def test_data_and_gradients(scripts: Scripts) -> None:
    command = scripts.write(BLOCKS)
    scripts.record(command)
    result = scripts.isolate(command, "data")
    assert found(result) == [("data", "Module.embed.Linear.forward.0")] and result.sentence.startswith("what the model is given is wrong (")
    result = scripts.isolate(command, "backward")
    assert result.found and not result.verdict.suspects
    assert "gradients are not: the code after head (Linear) (called at " in result.sentence
    assert "is wrong, that of the loss, or of the model's own forward (" in result.sentence
    assert "what the last module gives out is right" in scripts.lines[-1]
    result = scripts.isolate(command, "derivative")
    assert "gradients are not: the backward pass of blocks.1.attention.o (Linear) (" in result.sentence
    result = scripts.isolate(command, "detached")
    assert result.found and "gradients are not: none comes to blocks.1.attention.v (Linear) (called at " in result.sentence


def test_a_run_in_another_dtype(scripts: Scripts) -> None:
    command = scripts.write(BLOCKS)
    scripts.record(command)
    assert not scripts.isolate(command, "halved").found
    result = scripts.isolate(command, "halved leaf")
    assert found(result) == [("module", "Module.blocks.1.out.Linear.forward.0")]


def test_another_step_and_a_failure_after_it(scripts: Scripts) -> None:
    command = scripts.write(BLOCKS)
    scripts.record(command)
    result = scripts.isolate(command, "leaf", step=1)
    assert found(result) == [("module", "Module.blocks.1.out.Linear.forward.0")]
    assert (scripts.directory / "isolate" / "run1" / "dump" / "step1").is_dir()
    result = scripts.isolate(command, "late leaf", to_the_end=True)
    assert found(result) == [("module", "Module.blocks.1.out.Linear.forward.0")]
    assert result.notes == ("run 1: the script ended with exit code 1 after the step was recorded",)


def test_a_call_that_changes_its_input_is_cleared_by_a_plain_run(scripts: Scripts) -> None:
    command = scripts.write(IN_PLACE)
    scripts.record(command)
    result = scripts.isolate(command)
    assert not result.found and scripts.runs == 2
    assert "Module.b.Linear.forward.0: input.0 differed only because of the replacement" in result.notes[0]
    result = scripts.isolate(command, "after")
    assert found(result) == [("between", "Module.b.Linear.forward.0")] and scripts.runs == 2
    assert result.verdict.suspects[0].after == "Module.twice.Double.forward.0"


def test_halving_finds_what_one_run_cannot_see_and_resumes(scripts: Scripts, monkeypatch: pytest.MonkeyPatch) -> None:
    command = scripts.write(IN_PLACE)
    scripts.record(command)
    result = scripts.isolate(command, "spoil")
    assert result.found and scripts.runs <= at_most(8) == 5
    assert result.sentence.startswith("halving: the fault lies in spoil (Spoil): it changes its input.0 in place")
    verdicts = [line for line in scripts.lines if " given: " in line or "(a plain run): " in line]
    assert verdicts[2].startswith("run 3/5: inputs of the first 4 of 8 module calls given: right after it -> ")

    path = scripts.directory / "isolate" / "isolate.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "runs": content["runs"][:-1], "result": {}}))
    untouched = (scripts.directory / "isolate" / "run1" / "output.log").stat().st_mtime_ns
    again = scripts.isolate(command, "spoil", resume=True)
    assert again.sentence == result.sentence and scripts.runs == len(content["runs"])
    assert sum("(kept)" in line for line in scripts.lines) == len(content["runs"]) - 1
    assert (scripts.directory / "isolate" / "run1" / "output.log").stat().st_mtime_ns == untouched

    scripts.write(IN_PLACE + "\n")
    monkeypatch.setattr("msprobe.isolation.isolate.child.run", lambda *_: pytest.fail("as expected"))
    with pytest.raises(pytest.fail.Exception, match="as expected"):
        scripts.isolate(command, "spoil", resume=True)
    assert scripts.lines[0].startswith("a file that the command names has changed since the search in")


def test_halving_on_demand(scripts: Scripts) -> None:
    command = scripts.write(BLOCKS)
    scripts.record(command)
    result = scripts.isolate(command, "leaf", halve=True)
    assert found(result) == [("module", "Module.blocks.1.out.Linear.forward.0")]
    assert scripts.runs <= at_most(30)
    assert "behind the input of blocks.1.out (Linear)" in result.notes[0]


def test_a_script_that_fails_when_it_gets_golden_inputs(scripts: Scripts) -> None:
    command = scripts.write(IN_PLACE)
    scripts.record(command)
    result = scripts.isolate(command, "crash")
    assert result.found and scripts.runs <= at_most(8)
    assert "when know (Know) gets its golden inputs" in result.sentence and "RuntimeError: not the tensor that I know" in result.sentence
    result = scripts.isolate(command, "fail")
    assert (scripts.directory / "isolate" / "run1" / "output.log") in result.files
    assert "fails whether inputs are given or not, inside e (Linear) (exit code 1: ZeroDivisionError: division by zero)" in result.sentence
    assert scripts.runs == 2


def test_two_ranks(scripts: Scripts) -> None:
    (scripts.directory / "launch.py").write_text(LAUNCHER)
    client = scripts.write(RANKS)
    command = [sys.executable, "-S", "-E", "launch.py", *client]
    scripts.record(command)
    result = scripts.isolate(command, "rank")
    assert found(result) == [("module", "Module.module.1.ReLU.forward.0")]
    assert result.verdict.suspects[0].ranks == ["rank1"]
    assert [path.name.split("_")[1] for path in result.files] == ["rank0", "rank1"]
    with pytest.raises(UsageError, match="the golden run has rank0, rank1 and the script ran as a process without rank"):
        scripts.isolate(scripts.write(BLOCKS, "alone.py"))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("print('nothing')", r"ended \(exit code 0\) and never constructed a PrecisionDebugger: it needs the lines"),
        ("raise SystemExit(3)", r"failed \(exit code 3\) before it constructed"),
        (BEGIN + "PrecisionDebugger(config_path='config.json')", r"never called start\(\) of its PrecisionDebugger"),
        (BEGIN + "1 / 0", r"failed \(exit code 1: ZeroDivisionError: division by zero\) before it constructed"),
    ],
)
def test_scripts_that_do_not_record(scripts: Scripts, source: str, message: str) -> None:
    scripts.record(scripts.write(IN_PLACE))
    with pytest.raises(UsageError, match=message):
        scripts.isolate(scripts.write(source, "other.py"))
    log = scripts.directory / "isolate" / "run1" / "output.log"
    assert "WARNING" not in log.read_text()  # the user has selected no steps


def test_a_step_that_never_comes(scripts: Scripts) -> None:
    command = scripts.write(BLOCKS)
    scripts.record(command)
    scripts.write(BLOCKS.replace('"2"', '"1"'))
    with pytest.raises(UsageError, match=r"start\(\) was called in step 0, and never in step 1"):
        scripts.isolate(command, step=1)


def test_a_killed_script(scripts: Scripts) -> None:
    command = scripts.write(IN_PLACE)
    scripts.record(command)
    scripts.write(IN_PLACE.replace("lambda x: 1 / 0", "lambda x: os.kill(os.getpid(), 11)"))
    result = scripts.isolate(command, "fail")
    assert "signal SIGSEGV" in result.sentence


def test_a_directory_of_somebody_else(scripts: Scripts) -> None:
    command = scripts.write(IN_PLACE)
    scripts.record(command)
    (scripts.directory / "isolate" / "run1").mkdir(parents=True)
    with pytest.raises(UsageError, match="is of no search that is known here"):
        scripts.isolate(command)
    assert Path("isolate/run1").is_dir()


def test_results_do_not_go_into_the_golden_dump(scripts: Scripts) -> None:
    scripts.record(scripts.write(IN_PLACE))
    with pytest.raises(UsageError, match="lies in the golden dump, which is only read"):
        scripts.isolate(["nothing"], output=scripts.directory / "golden" / "results")


def test_a_run_that_fails_with_golden_inputs_still_says_what_arrived(scripts: Scripts) -> None:
    source = (
        BEGIN
        + """
class Routed(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.expert = nn.Linear(4, 2), nn.Linear(4, 4)

    def forward(self, x):
        chosen = self.router(x)[:, 0] > (0.0 if FAULT else -0.2)
        out = x.clone()
        out[chosen] = self.expert(x[chosen])
        return out

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 4), Routed())
debugger = PrecisionDebugger(config_path="config.json")
debugger.start(net)
net(torch.randn(8, 4))
debugger.stop()
debugger.step()
"""
    )
    command = scripts.write(source)
    scripts.record(command)
    result = scripts.isolate(command, "router")
    assert found(result) == [("between", "Module.1.expert.Linear.forward.0")] and scripts.runs == 2
    assert "shape [" in result.verdict.suspects[0].differences[0].how
    assert "with all inputs given the script fails, inside 1 (Routed)" in result.notes[0]


def test_a_run_that_could_not_be_written_is_no_verdict(scripts: Scripts, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts.record(scripts.write(IN_PLACE))
    ended = Ended(0, "", "/a/b cannot be written (No space left on device)")
    monkeypatch.setattr("msprobe.isolation.isolate.child.run", lambda *_: ended)
    with pytest.raises(UsageError, match=r"no complete record: /a/b cannot be written .*; make room, or give another directory with -o"):
        scripts.isolate(["nothing"])
    assert scripts.runs == 0


def test_buffers_are_told_where_nothing_is_wrong(scripts: Scripts) -> None:
    """A BatchNorm that averages by another momentum gives out the same while training: nothing that a dump holds shows it."""
    command = scripts.write(BUFFERS)
    scripts.record(command)
    result = scripts.isolate(command, "momentum")
    assert not result.found
    assert result.sentence == (
        "nothing is wrong in what was looked at: every module is right on golden inputs, and so is the last one of a plain run; buffers, "
        "which no dump holds, were not looked at: those of 1 (BatchNorm1d) (running_mean, running_var and num_batches_tracked) and of "
        "1 more module"
    )
