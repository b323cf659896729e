from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from msprobe.errors import UsageError
from msprobe.isolation.child import Ended, LastWords, run


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


def words(code: int, text: str) -> str:
    last = LastWords()
    for line in text.encode().splitlines():
        last.add(line)
    return last.text(code)


TRACEBACK = "Traceback (most recent call last):\n  File 'a.py', line 3\n    boom()\n    ~~~~^^\nValueError: boom\nsecond line\n"


def test_of_a_message_of_several_lines_the_first_counts() -> None:
    assert words(1, TRACEBACK) == "ValueError: boom"
    assert words(3, TRACEBACK) == "second line"
    assert words(1, "no more data") == "no more data"
    assert words(1, "x" * 1000) == "x" * 240 + "..."


def test_torchrun_adds_nothing_to_what_a_rank_said() -> None:
    of_rank = "".join(f"[rank1]: {line}\n" for line in TRACEBACK.splitlines())
    launcher = TRACEBACK.replace("ValueError: boom", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ") + "=====\n"
    assert words(1, of_rank + launcher) == "ValueError: boom"
    assert words(1, of_rank + of_rank.replace("rank1", "rank0").replace("boom", "connection closed") + launcher) == "ValueError: boom"


def test_a_file_as_standard_input_is_read_from_its_beginning_by_every_run(tmp_path: Path) -> None:
    (tmp_path / "input").write_text("hello\n")
    source = (
        "import pathlib, sys; from msprobe.isolation.child import run\n"
        "for n in '12': run([sys.executable, '-S', '-c', 'print(input())'], {}, pathlib.Path(sys.argv[1] + n))"
    )
    with open(tmp_path / "input") as file:
        subprocess.run([sys.executable, "-c", source, str(tmp_path / "log")], stdin=file, check=True, capture_output=True)
    assert [(tmp_path / f"log{n}").read_text() for n in "12"] == ["hello\n", "hello\n"]


def test_a_script_without_its_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    with pytest.raises(UsageError, match=r"'train.py' cannot be run: .*; a script needs its interpreter: python train.py"):
        run(["train.py"], {}, tmp_path / "log")


def test_what_could_not_be_written_is_noticed() -> None:
    last = LastWords()
    for text in (
        "2026-01-01 00:00:00 (1) [rank 0] [ERROR] msprobe isolate: /a/b cannot be written: No space left on device",
        "ValueError: no",
    ):
        last.add(text.encode())
    assert last.unwritten == "msprobe isolate: /a/b cannot be written: No space left on device"
    assert last.text(1) == "ValueError: no"
