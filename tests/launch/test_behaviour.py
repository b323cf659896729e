"""What `msprobe run` leaves alone, and what it says where it can do nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from launch import programs
from launch.runs import Runs

OUR_FAULT = (
    """
import msprobe.launch.models
def broken(self, *_):
    raise RuntimeError("ours")
msprobe.launch.models.Family.root_of = broken
"""
    + programs.PLAIN
)


def test_nothing_is_left_on_torch_after_the_last_step(runs: Runs) -> None:
    done = runs.both(programs.LEFT_ON_TORCH, "--step", "0")
    assert done.steps() == ["step0"]
    done = runs.recorded(*runs.client, runs.script(programs.LEFT_ON_TORCH), options=("--step", "0-5"))
    assert "msprobe_entries" in done.out  # else this test would see nothing


@pytest.mark.parametrize("step", ["0-9", "9"])
def test_tracebacks_warnings_and_the_depth_of_the_stack_are_as_without(step: str, runs: Runs) -> None:
    done = runs.both(programs.FRAMES, "--step", step)
    assert done.out.count("Traceback") == 3 and len(done.steps()) == (0 if step == "9" else 4)


def test_a_script_that_clears_its_environment_is_reported(runs: Runs) -> None:
    done = runs.both("import os\nos.environ.clear()\n" + programs.PLAIN)
    assert done.said[0] == f"recorded 4 steps (0-3): {done.dump}"


@pytest.mark.parametrize(
    ("in_the_way", "said"),
    [
        ("dump", ["nothing was recorded: no file of steps 1-2 could be written; why is told in the lines above"]),
        ("dump/step2", ["recorded 1 step (1): {}", "not written: step 2; why is told in the lines above"]),
    ],
)
def test_steps_that_could_not_be_written_are_not_told_as_recorded(in_the_way: str, said: list[str], runs: Runs) -> None:
    make = f"os.makedirs(os.path.dirname({in_the_way!r}) or '.', exist_ok=True), open({in_the_way!r}, 'w').close()"
    block = f"    show(loss)\n    import os; 'MSPROBE_RUN' in os.environ and ({make})\n"
    done = runs.both(programs.PLAIN.replace("    show(loss)\n", block), "--step", "1-2")
    assert done.said[: len(said)] == [line.format(done.dump) for line in said]
    assert "dump.json of step 2 is not there: " in done.err
    assert f"dump.json is at {done.dump}/step2" not in done.err
    assert "not complete: step" not in done.err, "told once"


def test_a_place_where_not_even_root_can_write_is_refused_before_the_script_runs(alone: Runs) -> None:
    if not os.path.isdir("/proc/self"):
        pytest.skip("needs Linux's /proc")
    done = alone.recorded(sys.executable, "-c", "print('ran')", options=("--dump-path", "/proc/foo"))
    assert (done.code, done.out) == (2, "")
    assert done.err.splitlines() == [
        'msprobe run: error: argument "dump_path" is "/proc/foo": there is no permission to write in /proc, choose another directory'
    ]


def test_an_error_of_ours_does_not_reach_the_script(runs: Runs) -> None:
    done = runs.both(OUR_FAULT.replace("import msprobe", "import sys, msprobe"))
    assert done.steps() == [] and len(done.said) == 1
    assert done.said[0].startswith("recording failed in process ") and done.said[0].endswith("RuntimeError: ours")


@pytest.mark.parametrize(("ending", "code"), [("sys.exit(3)", 3), ("raise ValueError('boom')", 1), ("os.kill(os.getpid(), 9)", -9)])
def test_an_early_end_leaves_a_valid_step_and_its_own_code(ending: str, code: int, runs: Runs) -> None:
    source = programs.PLAIN.replace(
        "    show(loss)", f"    show(loss)\n    import os, sys, time; sys.stdout.flush()\n    time.sleep(0.7); {ending}"
    )
    command = [*runs.client, runs.script(source)]
    without, done = runs.plain(*command), runs.recorded(*command)
    assert (without.code, without.out) == (done.code, done.out) and done.code == code
    assert without.err.splitlines()[-1:] == done.others[-1:]
    assert done.steps() == ["step0"] and "Module.first.Linear.parameters_grad.0" in done.data(0)
    if code == -9:
        assert "was cut off while it recorded Net into" in done.said[0]
    else:
        assert done.said[0].startswith("recorded 1 step (0)")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("print(torch.ones(2))", "nothing was recorded: torch was imported, but the script called no nn.Module"),
        ("print(nn.ReLU()(torch.ones(2)))", "nothing was recorded: only modules without parameters were called: ReLU (1 call); "),
        (programs.PLAIN, "nothing was recorded: the script made 4 steps, 0 to 3, and none of them is selected"),
        (programs.INFERENCE + "#", "nothing was recorded: Net was called 3 times (called before there was an optimizer"),
    ],
)
def test_why_nothing_was_recorded(source: str, said: str, runs: Runs) -> None:
    done = runs.both(source, "--step", "7", *(["--step-on", "optimizer"] if source.endswith("#") else []))
    assert done.steps() == [] and len(done.said) == 1
    assert done.said[0].startswith(said)


def test_a_module_without_parameters_is_a_model_where_that_is_asked_for(runs: Runs) -> None:
    done = runs.both("print(nn.Sequential(nn.ReLU())(torch.ones(2)))", "--models", "all")
    assert done.calls(0) == ["0.ReLU.0"]


def test_fields_of_the_file_and_options_before_them(runs: Runs) -> None:
    (runs.directory / "c.json").write_text(json.dumps({"dump_path": "other", "level": "L0", "step": [0, 1], "task": "tensor"}))
    done = runs.both("import os; os.chdir('/')\n" + programs.PLAIN, "--config", "c.json", "--step", "2")
    assert done.steps() == ["step2"] and not any(name.startswith("Functional") for name in done.data(2))
    assert list(done.dump.glob("step2/*/dump_tensor_data/*.pt"))


def wait_for(path: os.PathLike[str]) -> None:
    until = time.monotonic() + 60
    while not os.path.exists(path):
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_script(number: signal.Signals, alone: Runs) -> None:
    (alone.directory / "s.py").write_text(
        "import signal, sys, time\n"
        "def ended(number, frame):\n    print('got', number, flush=True)\n    sys.exit(7)\n"
        f"signal.signal({int(number)}, ended)\nopen('ready', 'w').close()\ntime.sleep(60)\n"
    )
    command = [sys.executable, "-m", "msprobe", "run", "--", sys.executable, "s.py"]
    with subprocess.Popen(command, cwd=alone.directory, env=alone.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for(alone.directory / "ready")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (7, f"got {int(number)}\n".encode())
    assert b"torch was never imported" in err


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
def test_the_script_ends_with_us(alone: Runs) -> None:
    (alone.directory / "s.py").write_text("import os, time\nopen('ready', 'w').write(str(os.getpid()))\ntime.sleep(60)\n")
    command = [sys.executable, "-m", "msprobe", "run", "--", sys.executable, "s.py"]
    with subprocess.Popen(command, cwd=alone.directory, env=alone.environment, stdout=subprocess.PIPE) as process:
        wait_for(alone.directory / "ready")
        process.kill()
        assert process.communicate(timeout=30)[0] == b""  # the script held the pipe open as long as it lived


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo terminals")
def test_the_terminal_and_ctrl_c(alone: Runs) -> None:
    import pty

    (alone.directory / "s.py").write_text(
        "import sys, time\nprint(sys.stdin.isatty(), sys.stdout.isatty(), flush=True)\nopen('ready', 'w').close()\n"
        "count = 0\nuntil = time.monotonic() + 1\n"
        "while time.monotonic() < until:\n"
        "    try:\n        time.sleep(0.1)\n"
        "    except KeyboardInterrupt:\n        count += 1\n"
        "print('interrupted', count, flush=True)\n"
    )
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(alone.directory)
        os.execve(sys.executable, [sys.executable, "-m", "msprobe", "run", "--", sys.executable, "s.py"], alone.environment)
    wait_for(alone.directory / "ready")
    os.write(terminal, b"\x03")
    text = b""
    while True:
        try:
            text += os.read(terminal, 1000)
        except OSError:
            break
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"True True" in text and b"interrupted 1\r\n" in text
