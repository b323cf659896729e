from __future__ import annotations

import sys
from pathlib import Path

import pytest

from msprobe.errors import UsageError
from msprobe.isolation.child import Ended, run


def python(source: str, log: Path, **variables: str) -> Ended:
    return run([sys.executable, "-S", "-c", source], variables, log)


def test_output_goes_to_the_terminal_and_to_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ended = python(
        "import os, sys; print(os.environ['WORD']); print('beside', file=sys.stderr); sys.exit(3)", tmp_path / "log", WORD="hello"
    )
    assert (ended.code, ended.how, ended.last_words) == (3, "exit code 3", "beside")
    assert sorted((tmp_path / "log").read_text().split()) == ["beside", "hello"]
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("hello\n", "beside\n")


def test_the_last_words_are_not_those_of_our_log(tmp_path: Path) -> None:
    source = "import sys; print('ValueError: no', '', '2026-01-01 00:00:00 (1) [WARNING] a step', sep='\\n', file=sys.stderr); 1 / 0"
    assert python(source, tmp_path / "log").last_words == "ZeroDivisionError: division by zero"
    assert python(source.replace("; 1 / 0", ""), tmp_path / "log").last_words == "ValueError: no"


def test_a_signal_has_its_name(tmp_path: Path) -> None:
    ended = python("import os; os.kill(os.getpid(), 9)", tmp_path / "log")
    assert ended.code == -9 and ended.how == "signal SIGKILL"


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the command 'no-such-program' cannot be run: No such file or directory"):
        run(["no-such-program"], {}, tmp_path / "log")
