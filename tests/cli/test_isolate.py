from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from isolation.test_golden import dump
from msprobe.cli.main import main
from msprobe.comparison.block import Line
from msprobe.isolation import isolate
from msprobe.isolation.evidence import Difference
from msprobe.isolation.verdict import Suspect, Verdict

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--", "python"], "the following arguments are required: --golden"),
        (["--golden", "none", "--", "python"], "--golden none: there is no such directory"),
        (["--golden", "golden"], "no command is given: msprobe isolate --golden DUMP -- python train.py"),
        (["--golden", "golden", "--"], "no command is given"),
        (["--golden", "golden", "--step", "-1", "--", "python"], "--step: "),
        (["--golden", "golden", "--step", "x", "--", "python"], "'x' is no number of a step"),
        (["--golden", "golden", "--step", "3", "--", "python"], "it has no step3; there are: step0"),
        (["--golden", "golden", "--", "no-such-program", "--lr", "3"], "the command 'no-such-program' cannot be run"),
        (["--golden", "golden", "--", sys.executable, "-c", "pass"], "never constructed a PrecisionDebugger"),
        (["--golden", "golden", "-o", "golden/step0/rank0/dump.json", "--", "python"], "lies in the golden dump, which is only read"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    dump(tmp_path / "golden")
    assert main(["isolate", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("msprobe isolate: error: ") and message in error and error.count("\n") == 1


@pytest.mark.parametrize("found", [True, False])
def test_the_sentence_comes_first_and_the_exit_code_says_it(found: bool, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    suspect = Suspect("module", "Module.fc.Linear.forward.0", (Difference("output.0", "max abs diff 1"),), 0, 0)
    verdict = Verdict((suspect,)) if found else Verdict()
    given: list[isolate.Options] = []

    def fake(options: isolate.Options, say: object) -> isolate.Result:
        given.append(options)
        say(Line("run 1/3: verdict"))  # type: ignore[operator]
        return isolate.Result("the sentence", verdict, found, ("a note",), (Path("a.csv"),))

    monkeypatch.setattr(isolate, "isolate", fake)
    code = main(
        ["isolate", "--golden", "g", "-o", "out", "--halve", "--resume", "--step", "2", "--", "python", "train.py", "--golden", "x"]
    )
    assert code == int(found)
    assert given == [isolate.Options(Path("g"), ["python", "train.py", "--golden", "x"], Path("out"), 2, True, True)]
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["run 1/3: verdict", "", "the sentence"]
    assert lines[-3:] == ["note: a note", "result: a.csv", f"result: {Path('out') / 'isolate.json'}"]
    assert ("   output.0: max abs diff 1" in lines) is found


def test_a_signal_ends_the_script_too(tmp_path: Path) -> None:
    dump(tmp_path / "golden")
    script = "import os, time; open('pid', 'w').write(str(os.getpid())); print('up', flush=True); time.sleep(600)"
    command = [sys.executable, "-m", "msprobe", "isolate", "--golden", "golden", "--", sys.executable, "-S", "-c", script]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "up\n":
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_it_needs_no_torch() -> None:
    source = "import sys, msprobe.isolation.isolate, msprobe.isolation.words, msprobe.cli.isolate; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", source], check=False).returncode == 0
