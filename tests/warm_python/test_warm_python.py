"""A program is told the same, and ends in the same way, as in an interpreter of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import warm_python

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

TELL = """
import atexit, os, sys, threading, time
print(__name__, globals().get("__file__"), sys.argv, sys.orig_argv[1:], [p for p in sys.path if "warm_python" in p], sys.path[0])
print(sys.modules["__main__"].__dict__ is globals(), os.getcwd(), os.environ.get("ASKED"), sys.stdin.read(), __debug__)
atexit.register(print, "at the end")
threading.Thread(target=lambda: (time.sleep(0.05), print("a thread outlives the script"))).start()
"""
ENDINGS = {
    "by its end": "",
    "exit": "raise SystemExit(3)",
    "exit with a text": "import sys; sys.exit('it is over')",
    "an error": "def f():\n    1 / 0\nf()",
    "an error that has a cause": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError('so') from error",
    "Ctrl-C": "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(5)",
    "abort": "import os; os.abort()",
    "_exit": "import os; os._exit(9)",
    "SIGKILL": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "at exit": "import atexit; atexit.register(print, 'bye'); 1 / 0",
}


def both(directory: Path, *arguments: str, given: str = "") -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    """What a real interpreter and a forked process make of the same arguments."""
    environment = {**os.environ, "ASKED": "1", "PYTHONPATH": str(directory / "more")}
    commands = [[sys.executable], warm_python.command()]
    options = {"cwd": directory, "env": environment, "input": given, "capture_output": True, "text": True, "check": False}
    real, warm = (subprocess.run([*command, *arguments], **options) for command in commands)  # type: ignore[call-overload]
    return real, warm


@pytest.mark.parametrize("way", ["a file", "a file elsewhere", "text", "a module", "standard input"])
def test_what_a_program_is_told(tmp_path: Path, way: str) -> None:
    (tmp_path / "more" / "below").mkdir(parents=True)
    for path in ("told.py", "more/found.py", "more/below/told.py"):
        (tmp_path / path).write_text(TELL)
    arguments = {
        "a file": ["told.py"],
        "a file elsewhere": ["more/below/told.py"],
        "text": ["-c", TELL],
        "a module": ["-m", "found"],
        "standard input": ["-"],
    }
    real, warm = both(tmp_path, *arguments[way], "x", "-y", given=TELL if way == "standard input" else "given")
    assert "a thread outlives" in real.stdout and real.returncode == 0
    assert (warm.stdout, warm.stderr, warm.returncode) == (real.stdout, real.stderr, real.returncode)


@pytest.mark.parametrize("way", ENDINGS)
def test_how_a_program_ends(tmp_path: Path, way: str) -> None:
    (tmp_path / "ends.py").write_text(ENDINGS[way])
    real, warm = both(tmp_path, "ends.py")
    assert (warm.stdout, warm.stderr, warm.returncode) == (real.stdout, real.stderr, real.returncode)


@pytest.mark.parametrize(("option", "variable"), [(["-O"], {}), ([], {"PYTHONOPTIMIZE": "1"})])
def test_what_is_read_at_the_start_gets_a_real_interpreter(option: list[str], variable: dict[str, str]) -> None:
    command = [*warm_python.command(), *option, "-c", "import sys; print(sys.flags.optimize, 'torch' in sys.modules)"]
    done = subprocess.run(command, env={**os.environ, **variable}, capture_output=True, text=True, check=True)
    assert done.stdout == "1 False\n"


def test_torch_is_there_and_random_numbers_are_not_shared() -> None:
    program = "import sys; t = 'torch' in sys.modules; import random, numpy, torch; print(t, random.random(), numpy.random.rand())"
    one, two = (
        subprocess.run([*warm_python.command(), "-c", program], capture_output=True, text=True, check=True).stdout.split() for _ in "ab"
    )
    assert one[0] == two[0] == "True" and one[1] != two[1] and one[2] != two[2]


@pytest.mark.parametrize("signal", ["terminate", "kill"])
def test_who_ends_the_command_ends_the_program(signal: str) -> None:
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    process = subprocess.Popen([*warm_python.command(), "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    getattr(process, signal)()
    assert process.wait() == {"terminate": -15, "kill": -9}[signal]
    while Path(f"/proc/{pid}").exists():  # it is gone soon
        time.sleep(0.01)


@pytest.mark.parametrize("part", ["left behind", "gone again"])
def test_a_test_leaves_no_variable_behind_that_an_interpreter_reads(part: str) -> None:
    """Else the scripts of all later tests would get a real interpreter, and the hashes of this one."""
    assert "PYTHONHASHSEED" not in os.environ or os.environ["PYTHONHASHSEED"] == warm_python.ENVIRONMENT["PYTHONHASHSEED"]
    os.environ["PYTHONHASHSEED"] = "1234"
